from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from perfbisect.core.recipe import Benchmark, Metric, Recipe, RecipeKind
from perfbisect.core.states import FailureKind
from perfbisect.ports import (
    Builder,
    BuildRequest,
    BuildSuccess,
    CancelledWork,
    CancelToken,
    Failure,
    Runner,
    RunRequest,
    RunSuccess,
)
from perfbisect.testing import ScriptedBuilder, ScriptedRunner


def build_request(work: Path, commit: str = "c" * 40) -> BuildRequest:
    return BuildRequest(
        id="build-1",
        mirror=work,
        commit=commit,
        tree="e" * 40,
        recipe=Recipe(name="r", kind=RecipeKind.COMMAND, command="true"),
        work_dir=work / "build",
        log_path=work / "build.log",
        cache_dir=work / "cache",
    )


def run_request(work: Path, wheel: BuildSuccess) -> RunRequest:
    metric = Metric(pattern="value: (.*)")
    return RunRequest(
        id="run-1",
        wheel=wheel.path,
        wheel_sha256=wheel.sha256,
        benchmark=Benchmark(name="b", command="b", metric=metric, unit="x"),
        benchmark_dir=work,
        host="h",
        work_dir=work / "run",
        log_path=work / "run.log",
        cache_dir=work / "cache",
    )


def build(builder: Builder, work: Path) -> BuildSuccess:
    wheel = builder.build(build_request(work), CancelToken())
    assert isinstance(wheel, BuildSuccess)
    return wheel


def test_the_value_depends_on_the_commit_alone(tmp_path: Path) -> None:
    """A wheel carries its commit, from which the runner computes the value."""
    wheel = build(ScriptedBuilder(), tmp_path)
    assert wheel.sha256 == hashlib.sha256(wheel.path.read_bytes()).hexdigest()
    runner: Runner = ScriptedRunner(lambda commit: 7.0 if commit == "c" * 40 else 1.0)
    result = runner.run(run_request(tmp_path, wheel), CancelToken())
    assert isinstance(result, RunSuccess)
    assert result.value == 7.0
    assert "value: 7.0" in (tmp_path / "run.log").read_text()


def test_noise_is_seeded(tmp_path: Path) -> None:
    """The same seed gives the same noisy values, and two runs of one wheel differ."""
    request = run_request(tmp_path, build(ScriptedBuilder(), tmp_path))

    def values(seed: int) -> list[object]:
        runner = ScriptedRunner(lambda commit: 100.0, noise=0.05, seed=seed)
        return [runner.run(request, CancelToken()) for _ in range(2)]

    assert values(1) == values(1)
    assert values(1) != values(2)
    assert values(1)[0] != values(1)[1]


def test_scripted_failures_are_values(tmp_path: Path) -> None:
    """A scripted failure comes back as it was given and is in the log."""
    failure = Failure(FailureKind.PERMANENT, "does not compile")
    builder = ScriptedBuilder(fails=lambda request: failure)
    assert builder.build(build_request(tmp_path), CancelToken()) is failure
    assert "does not compile" in (tmp_path / "build.log").read_text()
    assert len(builder.requests) == 1


def test_cancelled_work_raises(tmp_path: Path) -> None:
    """Both honour a token that asks for the end."""
    wheel = build(ScriptedBuilder(), tmp_path)
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(CancelledWork):
        ScriptedBuilder(seconds=60).build(build_request(tmp_path), cancel)
    with pytest.raises(CancelledWork):
        ScriptedRunner(lambda commit: 1.0).run(run_request(tmp_path, wheel), cancel)
