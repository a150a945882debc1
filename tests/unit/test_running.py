"""The parts of a runner that need no environment: commands, leases, observation, outcomes."""

from __future__ import annotations

import sys
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perfbisect.core.recipe import Benchmark, Metric
from perfbisect.core.states import FailureKind
from perfbisect.ports import CancelledWork, CancelToken, Failure
from perfbisect.processes import ProcessResult
from perfbisect.running.commands import clean_environment, format_command
from perfbisect.running.environments import choose_python, installer_variables
from perfbisect.running.failures import RunFailed, last_lines
from perfbisect.running.leases import LeasedDirectories
from perfbisect.running.outcome import KeptOutput, require_success
from perfbisect.running.wheels import importable_module

BENCHMARK = Benchmark(
    name="b", command="b", metric=Metric(pattern="(x)"), unit="x", timeout=900.0, env={"A": "1"}
)


# --------------------------------------------------------------------------- commands


def test_a_path_with_a_space_stays_one_argument() -> None:
    """Words are split before placeholders are filled in."""
    argv = format_command("{python} 'a b.py' --out={wheel}", {"python": "/x y/p", "wheel": "w w"})
    assert argv == ["/x y/p", "a b.py", "--out=w w"]


def test_braces_that_are_no_placeholders_stay() -> None:
    """JSON and a shell's variables reach the program as they are written."""
    argv = format_command("""sh -c 'echo ${X} {"a": 1} {A}'""", {})
    assert argv == ["sh", "-c", 'echo ${X} {"a": 1} {A}']


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("{pyton} x", "did you mean 'python'"),
        ("{artifact}/x", "leaves no archive"),
        ("echo 'x", "can't be split into words: No closing quotation"),
        ("   ", "is empty"),
    ],
)
def test_commands_that_cannot_be_right(command: str, says: str) -> None:
    """Each is the request's mistake and says what is wrong."""
    with pytest.raises(RunFailed, match=says) as caught:
        format_command(command, {"python": "p", "wheel": "w", "jobs": "2"})
    assert caught.value.failure.kind is FailureKind.OURS


def test_the_benchmark_has_the_last_word_on_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own env wins, GPUs are named by number, and nothing of ours is passed on."""
    monkeypatch.setenv("SECRET", "x")
    benchmark = Benchmark(
        name="b", command="b", metric=Metric(), unit="x", gpus=2, env={"LANG": "fr", "B": "2"}
    )
    variables = clean_environment(benchmark, environment="/e", home="/h", temporary="/t")
    assert variables["LANG"] == "fr"
    assert variables["B"] == "2"
    assert variables["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert variables["PATH"].startswith("/e/bin:")
    assert "SECRET" not in variables


def test_installers_know_the_way_to_the_index_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies and uv's own settings are passed on, other variables are not."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://index")
    monkeypatch.setenv("PYTHONPATH", "/x")
    variables = installer_variables("/cache", "/home/x", "/bin")
    assert variables["HTTPS_PROXY"] == "http://proxy"
    assert variables["UV_DEFAULT_INDEX"] == "http://index"
    assert variables["UV_CACHE_DIR"] == "/cache"
    assert "PYTHONPATH" not in variables


# ----------------------------------------------------------------------------- wheels


def test_python_for_a_wheel(tmp_path: Path) -> None:
    """This interpreter is taken where it fits, else one that is on the way, else it is said."""
    assert choose_python(None, []) == sys.executable
    assert choose_python(Path("x-1-py3-none-any.whl"), []) == sys.executable
    other = Path("x-1-cp399-cp399-linux_x86_64.whl")
    with pytest.raises(RunFailed, match="is for cp399 on linux_x86_64") as caught:
        choose_python(other, [str(tmp_path)])
    assert caught.value.failure.kind is FailureKind.PERMANENT
    program = tmp_path / "python3.99"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert choose_python(other, [str(tmp_path)]) == str(program)
    with pytest.raises(RunFailed, match="no name of a wheel"):
        choose_python(Path("x.whl"), [])


def test_module_of_a_wheel(tmp_path: Path) -> None:
    """The module is told by the distribution's name; where none fits, none is imported."""

    def module(name: str, *members: str) -> str:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for member in members:
                archive.writestr(member, "")
        return importable_module(tmp_path / name)

    assert module("tensorflow_cpu-2-py3-none-any.whl", "tensorflow/__init__.py", "t.py") == (
        "tensorflow"
    )
    assert module("fast_sum-1-py3-none-any.whl", "fast_sum.cpython-311-x86_64-linux-gnu.so") == (
        "fast_sum"
    )
    assert module("Other-1-py3-none-any.whl", "tests/__init__.py", "_x.py") == ""
    (tmp_path / "junk-1-py3-none-any.whl").write_bytes(b"junk")
    assert importable_module(tmp_path / "junk-1-py3-none-any.whl") == ""


# ----------------------------------------------------------------------------- leases


class Filler:
    """Counts how often it had to fill a directory."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count = 0
        self.error = error

    def __call__(self, directory: Path) -> Mapping[str, Any]:
        self.count += 1
        (directory / "content").write_text(str(self.count))
        if self.error:
            raise self.error
        return {"count": self.count}


def lease(kept: LeasedDirectories, key: str, fill: Filler) -> dict[str, Any]:
    with kept.lease(key, fill, CancelToken()) as (_, facts):
        return {name: value for name, value in facts.items() if name != "content_bytes"}


def test_a_directory_is_filled_once(tmp_path: Path) -> None:
    """Later leases get the directory and the facts of the first; other keys their own."""
    kept, fill = LeasedDirectories(tmp_path, keep=5), Filler()
    assert lease(kept, "a", fill) == {"count": 1}
    assert lease(kept, "a", fill) == {"count": 1}
    assert lease(kept, "b", fill) == {"count": 2}


def test_what_fails_to_fill_leaves_nothing(tmp_path: Path) -> None:
    """An error while filling removes the directory, and the next lease fills it again."""
    kept = LeasedDirectories(tmp_path, keep=5)
    with pytest.raises(ValueError, match="no"):
        lease(kept, "a", Filler(ValueError("no")))
    assert not (tmp_path / "a").exists()
    assert lease(kept, "a", Filler()) == {"count": 1}


@pytest.mark.parametrize("content", [None, "", "{", "[]"])
def test_unfinished_directories_are_filled_again(tmp_path: Path, content: str | None) -> None:
    """A directory without a readable mark of completion is made anew, whatever is in it."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "half").touch()
    if content is not None:
        (tmp_path / "a" / "complete.json").write_text(content)
    assert lease(LeasedDirectories(tmp_path, keep=5), "a", Filler()) == {"count": 1}
    assert not (tmp_path / "a" / "half").exists()


def test_what_is_in_use_is_not_removed(tmp_path: Path) -> None:
    """Pruning takes the longest unused, but nothing that somebody holds."""
    kept, fill = LeasedDirectories(tmp_path, keep=1), Filler()
    with kept.lease("held", fill, CancelToken()) as (held, _):
        for key in ("b", "c"):
            lease(kept, key, fill)
        assert held.exists()
        assert not (tmp_path / "b").exists()
    lease(kept, "d", fill)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["d"]


def test_no_more_bytes_are_kept_than_allowed(tmp_path: Path) -> None:
    """The longest unused go when all are too large together; the last one used always stays."""

    def fill(directory: Path) -> Mapping[str, Any]:
        (directory / "file").write_bytes(b"x" * 600)
        return {}

    kept = LeasedDirectories(tmp_path, keep=10, keep_bytes=1500)
    for key in ("a", "b", "c"):
        with kept.lease(key, fill, CancelToken()) as (_, facts):
            assert facts["content_bytes"] == 600
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["b", "c"]
    with LeasedDirectories(tmp_path, keep=10, keep_bytes=1).lease("d", fill, CancelToken()):
        pass
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["d"]


def test_two_at_once_fill_once(tmp_path: Path) -> None:
    """Who comes while somebody else fills waits, and gets what was filled."""
    entered, go_on = threading.Event(), threading.Event()

    def fill(directory: Path) -> Mapping[str, Any]:
        entered.set()
        go_on.wait()
        return {"by": "first"}

    def first() -> None:
        with LeasedDirectories(tmp_path, keep=5).lease("a", fill, CancelToken()):
            pass

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait()
    threading.Timer(0.3, go_on.set).start()
    assert lease(LeasedDirectories(tmp_path, keep=5), "a", Filler())["by"] == "first"
    thread.join()


def test_waiting_for_a_lease_can_be_cancelled(tmp_path: Path) -> None:
    """Who waits for somebody else's filling stops when asked to."""
    kept, cancel = LeasedDirectories(tmp_path, keep=1), CancelToken()

    def fill_and_want(directory: Path) -> Mapping[str, Any]:
        cancel.cancel()
        with kept.lease("a", Filler(), cancel):
            raise AssertionError("two at once")

    with pytest.raises(CancelledWork), kept.lease("a", fill_and_want, CancelToken()):
        raise AssertionError("filled")


# --------------------------------------------------------------------------- outcomes


def result(returncode: int, *, timed_out: bool = False) -> ProcessResult:
    return ProcessResult(
        returncode=returncode, seconds=1.0, timed_out=timed_out, cancelled=False, tail=""
    )


@pytest.mark.parametrize(
    ("ended", "kind", "says"),
    [
        (result(-15, timed_out=True), FailureKind.TRANSIENT, "hung: killed after 15m"),
        (result(1), FailureKind.PERMANENT, "failed with status 1"),
        (result(127), FailureKind.OURS, "can't be started"),
        (result(126), FailureKind.OURS, "can't be started"),
        (result(-9), FailureKind.TRANSIENT, "killed from outside"),
        (result(-11), FailureKind.PERMANENT, "crashed: SIGSEGV"),
        (result(-15), FailureKind.PERMANENT, "crashed: SIGTERM"),
        (result(-40), FailureKind.PERMANENT, "crashed: signal 40"),
    ],
)
def test_who_is_to_blame(ended: ProcessResult, kind: FailureKind, says: str) -> None:
    """How a process ended tells whose fault it was."""
    with pytest.raises(RunFailed, match=says) as caught:
        require_success(BENCHMARK, ended, "a\nb\n")
    failure: Failure = caught.value.failure
    assert failure.kind is kind
    assert failure.lines == ("a", "b")


def test_success_is_silent() -> None:
    """A process that ended with status 0 passes."""
    require_success(BENCHMARK, result(0), "")


def test_kept_output_is_bounded() -> None:
    """Only the last part is kept, and at least as much of it as asked for."""
    output = KeptOutput(limit=10)
    for index in range(100):
        output.add(f"{index:04d}".encode())
    assert output.text.endswith("00980099")
    assert 10 <= len(output.text) < 14


def test_last_lines_are_bounded() -> None:
    """Blank lines are left out, and lines and their number are bounded."""
    lines = last_lines("\n".join(["x" * 2000, "", *map(str, range(30))]))
    assert lines == tuple(map(str, range(10, 30)))
    assert max(map(len, last_lines("x" * 2000))) == 500
