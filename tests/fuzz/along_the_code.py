"""Coverage-guided fuzzing of the metric readers, with atheris.

python -m tests.fuzz.along_the_code -runs=100000 [CORPUS]

Options are libFuzzer's. Without ``-runs`` or ``-max_total_time`` it goes on until it finds
something.
"""

from __future__ import annotations

import sys

import atheris
from tests.fuzz.seeds import SEEDS

with atheris.instrument_imports(include=["perfbisect.core"]):
    from tests.fuzz.readers import READERS

_READERS = list(READERS.values())
_SHORT = [seed for seed in SEEDS if 0 < len(seed) < 500]


def feed_one(data: bytes) -> None:
    """Feed one reader, which the first byte chooses, after a seed that the second one does."""
    if len(data) < 2:
        return
    seed = _SHORT[data[1] % len(_SHORT)] if data[1] & 1 else b""
    _READERS[data[0] % len(_READERS)](seed + data[2:])


def main() -> None:
    """Fuzz as the command line says."""
    atheris.Setup(sys.argv, feed_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
