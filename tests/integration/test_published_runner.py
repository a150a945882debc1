"""Published wheels fetched just before a run: what the inner runner gets, and whose fault it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.helpers.package_index import FakeIndex, serving
from tests.helpers.running import failure, make_benchmark, success

from perfbisect.core.states import FailureKind
from perfbisect.ports import CancelToken, Failure, RunRequest, RunSuccess
from perfbisect.running.published import PublishedRunner

NAME = "demo-1.0-py3-none-any.whl"
LIMIT = 10_000


class Inner:
    """Reads the file that it is given, and says whether it was there."""

    def __init__(self) -> None:
        self.requests: list[RunRequest] = []
        self.read: list[bytes] = []

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        self.requests.append(request)
        self.read.append(request.wheel.read_bytes())
        return RunSuccess(1.0, (1.0,), 0.0)


@pytest.fixture
def index() -> Iterator[FakeIndex]:
    with serving(FakeIndex(files={NAME: b"a wheel"})) as index:
        yield index


def request_for(index: FakeIndex, tmp_path: Path, published: bool = True) -> RunRequest:
    wheel = index.published(NAME)
    return RunRequest(
        id="run-1",
        wheel=Path(NAME),
        wheel_sha256=wheel.sha256,
        benchmark=make_benchmark(""),
        benchmark_dir=tmp_path,
        host="host-a",
        work_dir=tmp_path / "work",
        log_path=tmp_path / "logs" / "run-1.log",
        cache_dir=tmp_path / "cache",
        published=wheel.to_dict() if published else None,
    )


def run(
    index: FakeIndex, request: RunRequest, limit: int = LIMIT
) -> tuple[RunSuccess | Failure, Inner]:
    inner = Inner()
    runner = PublishedRunner(inner, f"{index.url}/simple/", limit)
    return runner.run(request, CancelToken()), inner


def test_the_file_is_there_while_it_runs(index: FakeIndex, tmp_path: Path) -> None:
    """The wheel is fetched under its own name once; the log says so while it is waited for."""
    request = request_for(index, tmp_path)
    for _ in range(2):
        result, inner = run(index, request)
        success(result)
        assert inner.read == [b"a wheel"]
        assert inner.requests[0].wheel.name == NAME
        assert inner.requests[0].published is None
    assert request.log_path.read_text().startswith(f"downloading {NAME} (7 B)")
    assert len(index.asked_for(NAME)) == 1


def test_other_wheels_are_passed_on(index: FakeIndex, tmp_path: Path) -> None:
    """A wheel that was built is run as it is, and the index hears nothing."""
    request = request_for(index, tmp_path, published=False)
    built = tmp_path / NAME
    built.write_bytes(b"built here")
    inner = Inner()
    given = replace(request, wheel=built)
    PublishedRunner(inner, f"{index.url}/simple/", LIMIT).run(given, CancelToken())
    assert inner.requests == [given]
    assert index.asked == []


def test_a_wheel_that_is_gone_is_broken_for_good(index: FakeIndex, tmp_path: Path) -> None:
    """It fails for certain: it need not be tried twice."""
    request = request_for(index, tmp_path)
    del index.files[NAME]
    result, inner = run(index, request)
    failed = failure(result)
    assert failed.kind is FailureKind.PERMANENT
    assert failed.certain
    assert inner.requests == []


def test_an_index_in_trouble_passes(index: FakeIndex, tmp_path: Path) -> None:
    """Trouble of the server is none of the wheel's."""
    request = request_for(index, tmp_path)
    index.statuses = [503] * 20
    result, _ = run(index, request)
    failed = failure(result)
    assert failed.kind is FailureKind.TRANSIENT
    assert not failed.certain


def test_a_limit_below_one_wheel_is_a_mistake(index: FakeIndex, tmp_path: Path) -> None:
    """The settings are to blame, and the message says which."""
    result, _ = run(index, request_for(index, tmp_path), limit=3)
    failed = failure(result)
    assert failed.kind is FailureKind.OURS
    assert "raise the limit" in failed.cause
