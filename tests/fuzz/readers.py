"""The metric readers as targets; what else is fuzzed is in ``targets``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfbisect.core.readers import ReadingError, read_metric
from perfbisect.core.recipe import Metric, ReaderKind

#: Feeds one parser with bytes; what it raises is a finding.
Feed = Callable[[bytes], None]


def _reader(kind: ReaderKind) -> Feed:
    pattern = r"^v: (\S+) img/s" if kind in (ReaderKind.REGEX, ReaderKind.ARTIFACT_COUNT) else ""
    metrics = [
        Metric(reader=kind, pattern=pattern, path=path, file="f") for path in ("", "v", "a.*.0")
    ]

    def feed(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        for metric in metrics:
            try:
                reading = read_metric(metric, text, {"f": text})
            except ReadingError as error:
                if len(error.message) + len(error.advice) > 20_000:
                    raise AssertionError("a message without end") from error
                continue
            assert reading.value > 0

    return feed


READERS: Mapping[str, Feed] = {f"reader {kind}": _reader(kind) for kind in ReaderKind}
