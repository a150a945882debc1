"""Files that runs leave: collected, stored, listed and counted in; and variables as identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.helpers.conducting import make_conductor, make_repository, open_services, request_for
from tests.helpers.running import make_benchmark, make_request, make_wheel, success
from tests.helpers.serving import client_of, shown_app

from perfbisect.collecting import Collector
from perfbisect.config import benchmark_from_dict
from perfbisect.core.recipe import Metric, ReaderKind
from perfbisect.core.retention import Kind, Limit
from perfbisect.core.states import BisectionState
from perfbisect.ports import CancelToken, Failure, RunRequest, RunSuccess
from perfbisect.runner import LocalRunner
from perfbisect.running.leftovers import collect
from perfbisect.services import Services
from perfbisect.store.artifact_tables import RunArtifactRow
from perfbisect.store.tables import BenchmarkRow, BisectionRow, RunRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder

#: Dumps graphs where it is told to, with as many copies as the variable says.
PROGRAM = """
import os, pathlib
dump = pathlib.Path(os.environ["TF_DUMP_GRAPH_PREFIX"])
dump.mkdir()
copies = int(os.environ.get("COPIES", "0"))
(dump / "a.pbtxt").write_text("name: GpuToHost\\n" * copies)
(dump / "b.pbtxt").write_text("nothing")
(dump / "c.log").write_text("not asked for")
os.symlink("/etc/hostname", dump / "d.pbtxt")
print("images/sec: 5")
"""

DUMPS = {"artifacts": ("dump/*.pbtxt",), "env": {"TF_DUMP_GRAPH_PREFIX": "dump", "COPIES": "3"}}


def run(tmp_path: Path, **changes: Any) -> RunSuccess:
    wheel = make_wheel(tmp_path / "wheels", {"tiny.py": ""})
    request = make_request(tmp_path, wheel, PROGRAM, **{**DUMPS, **changes})
    return success(LocalRunner().run(request, CancelToken()))


def test_files_that_fit_are_kept_and_links_are_not(tmp_path: Path) -> None:
    """Only what the globs name is kept, by its name, and the point says so."""
    done = run(tmp_path)
    assert list(done.artifacts) == ["dump/a.pbtxt", "dump/b.pbtxt"]
    assert done.artifacts["dump/b.pbtxt"].read_text() == "nothing"
    assert done.environment["artifacts"] == ["dump/a.pbtxt", "dump/b.pbtxt"]
    assert done.environment["artifacts_left_out"] == 0
    assert done.environment["variables"]["TF_DUMP_GRAPH_PREFIX"] == "dump"


def test_a_count_in_the_files_is_the_value(tmp_path: Path) -> None:
    """Three copies are a value of 4: one more, as a value may not be zero."""
    metric = Metric(reader=ReaderKind.ARTIFACT_COUNT, file="dump/*.pbtxt", pattern=r"\bGpuToHost\b")
    assert run(tmp_path, metric=metric, artifacts=()).value == 4.0


def test_too_many_files_are_left_out_and_counted(tmp_path: Path) -> None:
    """A limit on files and one on bytes; the first by name stay."""
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("x" * 10)
    few = collect(["*.txt"], tmp_path, max_files=3)
    assert (list(few.files), few.left_out) == (["0.txt", "1.txt", "2.txt"], 2)
    assert collect(["*.txt", "0.*"], tmp_path, max_bytes=25).left_out == 3


def test_variables_are_part_of_the_identity() -> None:
    """Another value of TF_XLA_FLAGS or TF_DUMP_GRAPH_PREFIX is another benchmark."""
    digests = {
        make_benchmark("", env=env).digest({})
        for env in (
            {},
            {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"},
            {"TF_XLA_FLAGS": "--tf_xla_auto_jit=1"},
            {"TF_DUMP_GRAPH_PREFIX": "dump"},
        )
    }
    assert len(digests) == 4


class Leaving:
    """A runner whose runs leave a file."""

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        request.work_dir.mkdir(parents=True, exist_ok=True)
        path = request.work_dir / "graph.txt"
        path.write_text(f"of {request.id}")
        facts = {"artifacts": ["dump/graph.txt"]}
        return RunSuccess(100.0, (100.0,), 0.0, facts, artifacts={"dump/graph.txt": path})


def measured(services: Services, tmp_path: Path) -> str:
    """Return a finished bisection whose runs left files."""
    repository = make_repository(tmp_path / "source", 3)
    request = request_for(repository, env={"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"})
    submitted = submit(
        services,
        request,
        requested_by="tester",
        origin="command line",
        base_dir=tmp_path,
        allow_local=True,
    )
    conductor = make_conductor(services, ScriptedBuilder(), Leaving(), tmp_path)
    conductor.conduct_until_finished(submitted.id)
    conductor.stop()
    return submitted.id


def test_files_are_stored_with_the_run_and_served(tmp_path: Path) -> None:
    """API and page list them; the content comes as a download, never as a page."""
    services = open_services(tmp_path)
    bisection_id = measured(services, tmp_path)
    with services.database.read() as session:
        row = session.get_one(BisectionRow, bisection_id)
        benchmark = benchmark_from_dict(dict(row.benchmark))
    # Variables of the request are the benchmark's from then on.
    assert benchmark.env == {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}
    services.close()
    with client_of(shown_app(services.settings)) as client:
        (run, *_) = client.get(f"/api/v1/bisections/{bisection_id}/runs").json()
        listed = client.get(f"/api/v1/runs/{run['id']}/artifacts").json()
        size = len(f"of {run['id']}")
        assert listed == [{"position": 0, "name": "dump/graph.txt", "size": size, "kept": True}]
        got = client.get(f"/api/v1/runs/{run['id']}/artifacts/0")
        assert got.text == f"of {run['id']}"
        assert got.headers["content-disposition"] == 'attachment; filename="graph.txt"'
        assert got.headers["x-content-type-options"] == "nosniff"
        assert client.get(f"/api/v1/runs/{run['id']}/artifacts/1").status_code == 404
        assert "dump/graph.txt" in client.get(f"/logs/runs/{run['id']}").text
        page = client.get(f"/bisections/{bisection_id}/commits/0").text
        assert f'href="/logs/runs/{run["id"]}#files">1 file</a>' in page


def test_files_of_finished_work_are_collected_and_their_names_stay(tmp_path: Path) -> None:
    """None of an open bisection goes; of a finished one the oldest go, as the dry run said."""
    services = open_services(tmp_path)
    bisection_id = measured(services, tmp_path)
    with services.database.write() as session:
        session.get_one(BisectionRow, bisection_id).state = BisectionState.RUNNING
    nothing = Collector(services, {Kind.ARTIFACT: Limit(size=0)})
    assert nothing.collect().removals == ()
    with services.database.write() as session:
        session.get_one(BisectionRow, bisection_id).state = BisectionState.FINISHED
        rows = session.query(RunRow).order_by(RunRow.created_at, RunRow.id).all()
        oldest, newest = rows[0].id, rows[-1].id
    # Room for the newest alone: all files are as large as their run's name.
    one = Collector(services, {Kind.ARTIFACT: Limit(size=len(f"of {newest}"))})
    planned = one.collect(dry_run=True)
    assert len(planned.removals) == len(rows) - 1
    assert planned.removals[0].item.name == f"dump/graph.txt of run {oldest}"
    keys = [each.item.handle for each in planned.removals]
    assert all(services.artifacts.exists(key) for key in keys)
    assert one.collect().removals == planned.removals
    assert not any(services.artifacts.exists(key) for key in keys)
    assert one.collect().removals == ()
    services.close()
    with client_of(shown_app(services.settings)) as client:
        (listed,) = client.get(f"/api/v1/runs/{oldest}/artifacts").json()
        assert (listed["name"], listed["kept"]) == ("dump/graph.txt", False)
        gone = client.get(f"/api/v1/runs/{oldest}/artifacts/0")
        assert gone.status_code == 404
        assert "no longer kept" in gone.json()["detail"]
        assert "no longer kept" in client.get(f"/logs/runs/{oldest}").text
        assert client.get(f"/api/v1/runs/{newest}/artifacts/0").text == f"of {newest}"


def test_content_that_something_else_needs_is_no_file_of_a_run_alone(tmp_path: Path) -> None:
    """A file with the very bytes of the benchmark's script stays as long as that does."""
    services = open_services(tmp_path)
    bisection_id = measured(services, tmp_path)
    with services.database.write() as session:
        row = session.get_one(BisectionRow, bisection_id)
        benchmark = session.get_one(BenchmarkRow, row.benchmark_digest)
        shared = session.query(RunArtifactRow).first()
        assert shared is not None
        key = shared.artifact
        benchmark.files = {"same.py": key}
    collected = Collector(services, {Kind.ARTIFACT: Limit(size=0)}).collect()
    assert collected.removals
    assert services.artifacts.exists(key)
    services.close()
