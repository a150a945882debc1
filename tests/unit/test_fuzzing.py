"""Every parser of what others write takes anything, or says why not."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS

from perfbisect.core.readers import ReadingError
from perfbisect.core.recipe import Metric, ReaderKind
from perfbisect.running.reading import read_apart

ROOT = Path(__file__).resolve().parents[2]

_LINES = st.sampled_from([seed[:200] for seed in SEEDS if seed])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=12,
)
#: Any bytes, any text, and pieces of what parsers look for in any order.
ANYTHING = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(_LINES | st.binary(max_size=20), max_size=6).map(b"\n".join),
)


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_made_to_break_a_parser(name: str) -> None:
    """Endless brackets, digits and repetitions are read, or refused as the parser promises."""
    for seed in SEEDS:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
def test_anything_at_all(name: str) -> None:
    """Random bytes, text and pieces of real input are read, or refused as the parser promises."""
    feed = TARGETS[name]

    @settings(max_examples=30, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(ANYTHING)
    def fed(data: bytes) -> None:
        feed(data)

    fed()


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_real_and_damaged(name: str) -> None:
    """Real output of tools with bytes changed, dropped and doubled is read, or refused."""
    real = sorted((ROOT / "tests/data").rglob("*"))
    texts = [path.read_bytes()[:4000] for path in real if path.suffix in (".txt", ".log", ".json")]
    chance = random.Random(name)
    assert texts
    for _ in range(20):
        data = bytearray(chance.choice(texts))
        for _ in range(chance.randint(1, 8)):
            place = chance.randrange(len(data))
            data[place : place + chance.randint(0, 9)] = chance.randbytes(chance.randint(0, 3))
        TARGETS[name](bytes(data))


def test_a_short_walk_along_the_code() -> None:
    """A fuzzer that follows what the readers' code does finds nothing in a few thousand tries."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris has no wheel for this Python or machine")
    walk = [sys.executable, "-m", "tests.fuzz.along_the_code", "-seed=1", "-runs=5000"]
    done = subprocess.run(walk, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_pattern_that_never_ends_is_given_up() -> None:
    """Output that a pattern goes through again and again holds up nobody but its own reading."""
    metric = Metric(reader=ReaderKind.REGEX, pattern=r"(?:x+x+)+y(\d+)")
    with pytest.raises(ReadingError, match="took more than 1 s"):
        read_apart(metric, "x" * 300_000, {}, seconds=1)


def test_large_output_is_read_as_small_output_is() -> None:
    """A process of its own finds the same value, and refuses for the same reason."""
    metric = Metric(reader=ReaderKind.REGEX, pattern=r"^images/sec: (\S+)$")
    filler = "nothing here\n" * 50_000
    assert read_apart(metric, f"{filler}images/sec: 12.5\n", {}).value == 12.5
    with pytest.raises(ReadingError, match="matches nothing") as refused:
        read_apart(metric, filler, {})
    assert "correct metric.pattern" in refused.value.advice
