"""From how a benchmark's process ended, and what it left, to a value or a failure."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from perfbisect.core.readers import MAX_CHARACTERS, Reading, ReadingError
from perfbisect.core.recipe import Benchmark, Metric, ReaderKind
from perfbisect.core.states import FailureKind
from perfbisect.overruns import words_of
from perfbisect.processes import ProcessResult
from perfbisect.running.failures import failed
from perfbisect.running.reading import read_apart
from perfbisect.units import format_duration, format_size
from perfbisect.untrusted import glob_files

#: Bytes of the file, or of all files, that are read for a metric.
MAX_FILE = 256 * 1024**2

#: Signals by which a program is ended for its own faults, and what that tells.
_CRASHES: dict[int, str] = {
    signal.SIGSEGV: "it used memory that is not its own",
    signal.SIGILL: "the wheel uses instructions that this CPU lacks, e.g. by -march",
    signal.SIGABRT: "it aborted itself",
    signal.SIGBUS: "it used memory that is not there",
    signal.SIGFPE: "it divided by zero",
}


class KeptOutput:
    """The last part of an output, as much as readers look at."""

    def __init__(self, limit: int = MAX_CHARACTERS) -> None:
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Append; drop what is beyond the limit from the front."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) >= self._limit:
            self._size -= len(self._chunks.popleft())

    @property
    def text(self) -> str:
        """What is kept, decoded."""
        return b"".join(self._chunks).decode(errors="replace")


def require_success(benchmark: Benchmark, result: ProcessResult, output: str) -> None:
    """Return if the process ended by itself with status 0.

    Raises:
        RunFailed: transient: it hung or was killed from outside; ours: there is no such program;
            permanent: it failed, which is what this revision does.
    """
    if result.overrun is not None:
        words = words_of(result.overrun)
        cause, advice, kind = words.cause, words.advice, words.kind
    elif result.timed_out:
        cause = f"hung: killed after {format_duration(benchmark.timeout)}"
        advice = "see where the output stops; raise the benchmark's 'timeout' if it was not done"
        kind = FailureKind.TRANSIENT
    elif result.returncode in (126, 127):
        cause = f"the command can't be started (status {result.returncode})"
        advice, kind = "correct the benchmark's command", FailureKind.OURS
    elif result.returncode == -signal.SIGKILL:
        cause = "killed from outside (SIGKILL), most likely as memory ran out"
        advice = "free memory on this host, or lower what the benchmark needs"
        kind = FailureKind.TRANSIENT
    elif result.returncode < 0:
        cause = f"crashed: {_signal_name(-result.returncode)}"
        advice, kind = _CRASHES.get(-result.returncode, ""), FailureKind.PERMANENT
    elif result.returncode > 0:
        cause = f"the benchmark failed with status {result.returncode}"
        advice, kind = "", FailureKind.PERMANENT
    else:
        return
    raise failed(kind, cause, output=output, advice=advice, seconds=result.seconds)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # real-time signals have no names


def read_value(benchmark: Benchmark, output: str, directory: Path, seconds: float) -> Reading:
    """Return what the metric's reader finds.

    Raises:
        RunFailed: ours: nothing, or no value that can be measured; permanent: the tool says that
            the benchmark failed.
    """
    try:
        files = _metric_files(benchmark.metric, directory)
        return read_apart(benchmark.metric, output, files)
    except ReadingError as error:
        kind = FailureKind.PERMANENT if error.benchmark_failed else FailureKind.OURS
        raise failed(
            kind, error.message, output=output, advice=error.advice, seconds=seconds
        ) from error


def _metric_files(metric: Metric, directory: Path) -> dict[str, str]:
    """Return the text of the one file that the glob fits, or of all where they are counted in."""
    if not metric.file:
        return {}
    root = directory.resolve()
    # A link may lead to what only we may read: it is not followed.
    found = glob_files(root, metric.file)
    if metric.reader is ReaderKind.ARTIFACT_COUNT:
        return _all_texts(found, root)
    if len(found) > 1:
        names = ", ".join(str(path.relative_to(root)) for path in found[:5])
        raise ReadingError(f"'{metric.file}' fits {len(found)} files: {names}")
    if not found:
        # Their names, so that the message can say what is there instead.
        return {path.name: "" for path in sorted(root.iterdir())[:20] if not path.is_symlink()}
    _require_readable(f"'{metric.file}' is", found[0].stat().st_size)
    return {metric.file: found[0].read_text(encoding="utf-8", errors="replace")}


def _all_texts(found: Sequence[Path], root: Path) -> dict[str, str]:
    _require_readable("the files are", sum(path.stat().st_size for path in found))
    return {
        str(path.relative_to(root)): path.read_text(encoding="utf-8", errors="replace")
        for path in found
    }


def _require_readable(what: str, size: int) -> None:
    if size > MAX_FILE:
        raise ReadingError(f"{what} {format_size(size)}, more than {format_size(MAX_FILE)}")
