"""The command line on a real repository, with real builds and runs that take milliseconds."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import psutil
import pytest
from sqlalchemy import func, select
from tests.helpers.command_line import Project, call, make_project

from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.store.tables import BisectionRow, BuildRow, PointRow, RunRow


def rows(project: Project) -> dict[str, int]:
    """How many rows of each kind there are."""
    services = Services.open(Settings(data_dir=project.data_dir))
    with services.database.read() as session:
        counts = {
            model.__tablename__: session.scalar(select(func.count()).select_from(model)) or 0
            for model in (BisectionRow, BuildRow, RunRow, PointRow)
        }
        states = session.scalars(select(BisectionRow.state)).all()
    services.close()
    return counts | {"unfinished": sum(state != "finished" for state in states)}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Twelve commits with a drop of a third at the eighth."""
    return make_project(tmp_path, [900.0] * 8 + [600.0] * 5)


def test_a_culprit_in_json(project: Project) -> None:
    """The whole job: one JSON object on standard output with the right, verified culprit."""
    ended = call([*project.arguments, "--json"], project.directory)
    assert ended.code == 0, ended.err
    verdict = ended.json
    assert [c["commits"] for c in verdict["culprits"]] == [[project.shas[8]]]
    assert verdict["culprits"][0]["verified"] is True
    assert verdict["culprits"][0]["subject"] == "Commit 8"
    assert verdict["outcome"] == "culprits"
    assert 0 < verdict["points"] <= rows(project)["points"]
    # Progress went to standard error, line by line, with the reasons of the decisions.
    assert "decided build" in ended.err
    assert "images/s" in ended.err


def test_a_culprit_for_people(project: Project) -> None:
    """Without --json the verdict is a sentence, a table, the cost, and where the evidence is."""
    ended = call(project.proving, project.directory)
    assert ended.code == 0, ended.err
    short = project.shas[8][:10]
    assert f'{short} "Commit 8" is a regression' in ended.out
    assert "proven by revert" in ended.out
    assert "Cost:" in ended.out
    assert str(project.data_dir) in ended.out


def test_the_same_command_again_uses_what_is_there(project: Project) -> None:
    """A second search builds nothing again, and says the same."""
    first = call([*project.arguments, "--json"], project.directory)
    builds = rows(project)["builds"]
    second = call([*project.arguments, "--json"], project.directory)
    assert second.json["culprits"][0]["commits"] == first.json["culprits"][0]["commits"]
    assert rows(project)["builds"] == builds
    assert rows(project)["bisections"] == 2


def test_unbuildable_commits_become_a_set(tmp_path: Path) -> None:
    """Where the culprit can't be told from commits that do not build, the answer is their set."""
    project = make_project(tmp_path, [900.0] * 8 + [600.0] * 5, broken=(7, 8))
    ended = call([*project.arguments, "--json"], project.directory)
    assert ended.code == 0, ended.err
    assert [c["commits"] for c in ended.json["culprits"]] == [list(project.shas[7:10])]


def test_no_change_is_not_reproduced(tmp_path: Path) -> None:
    """Equal ends give exit code 1 and nothing but the ends is built."""
    project = make_project(tmp_path, [900.0] * 12)
    ended = call([*project.arguments, "--json"], project.directory)
    assert ended.code == 1, ended.err
    assert ended.json["outcome"] == "not_reproduced"
    assert rows(project)["builds"] == 2


def test_a_spent_budget(project: Project) -> None:
    """A budget of runs is kept, and its end is an honest outcome with exit code 1."""
    ended = call([*project.arguments, "--max-runs=5", "--json"], project.directory)
    assert ended.code == 1, ended.err
    assert ended.json["outcome"] == "budget_exhausted"
    assert rows(project)["runs"] <= 5


def test_export(project: Project, tmp_path: Path) -> None:
    """Points are exported as CSV and as JSON, the same ones, with their places on the axis."""
    verdict = call([*project.arguments, "--json"], project.directory).json
    option = f"--data-dir={project.data_dir}"
    exported = call(["export", verdict["id"], option])
    table = list(csv.DictReader(io.StringIO(exported.out)))
    file = tmp_path / "points.json"
    assert call(["export", verdict["id"], option, "--json", "-o", str(file)]).code == 0
    whole = json.loads(file.read_text())
    assert [point["id"] for point in whole["points"]] == [row["id"] for row in table]
    # Proofs are measured on trees of the axis too; what they measured speaks for it as well.
    own = [row for row in table if row["bisection_id"] == verdict["id"]]
    assert len(own) == verdict["points"]
    assert whole["verdict"]["id"] == verdict["id"]
    assert {project.shas[int(row["position"])] for row in table} == {row["commit"] for row in table}


def test_doctor(tmp_path: Path) -> None:
    """The doctor looks at everything without leaving a trace, for people and as JSON."""
    option = f"--data-dir={tmp_path / 'data'}"
    told = call(["doctor", option, "--json"])
    assert told.code == (0 if told.json["ready"] else 1)
    names = [check["name"] for check in told.json["checks"]]
    assert {"Python", "git", "Docker", "disk", "database"} <= set(names)
    printed = call(["doctor", option]).out
    assert all(name in printed for name in names)
    assert not (tmp_path / "data").exists()


# ---------------------------------------------------------------------- bad input


def replaced(project: Project, option: str, value: str) -> list[str]:
    """The project's command with one option changed."""
    changed = [each for each in project.arguments if not each.startswith(f"{option}=")]
    assert len(changed) == len(project.arguments) - 1
    return [*changed, f"{option}={value}", "--json"]


def refused(project: Project, arguments: list[str]) -> str:
    """Run a command that must be refused; return what it said, without line breaks."""
    ended = call(arguments, project.directory)
    assert ended.code == 2, ended.err
    assert rows(project)["unfinished"] == 0
    return ended.err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--repo", "/nowhere/at/all", "/nowhere/at/all"),
        ("--good", "--upload-pack=evil", "--upload-pack=evil"),
        ("--good", "-x", "-x"),
        ("--good", "nosuchtag", "nosuchtag"),
        ("--bad", "main~99", "main~99"),
        ("--recipe", "cpy", "copy"),
        ("--recipe", "none.toml", "none.toml"),
        ("--benchmark", "reed", "read"),
    ],
)
def test_names_that_lead_nowhere(project: Project, option: str, value: str, words: str) -> None:
    """A repository, revision, recipe or benchmark that is not there is named in the message."""
    said = refused(project, replaced(project, option, value))
    assert words in said
    assert rows(project)["bisections"] == 0


def test_not_a_repository(project: Project, tmp_path: Path) -> None:
    """A directory that is no repository is refused as such."""
    empty = tmp_path / "empty"
    empty.mkdir()
    said = refused(project, replaced(project, "--repo", str(empty)))
    assert "repository" in said
    assert str(empty) in said


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kind = "command"', 'kind = "command"\ncomand = "x"', ("comand", "'command'")),
        ('unit = "images/s"', 'unit = "images/s"\nbeter = "higher"', ("beter", "'better'")),
        ('timeout = "20s"', 'timeout = "soon"', ("timeout", "soon")),
        ("docker = false", "docker = maybe", ("perfbisect.toml",)),
    ],
)
def test_wrong_files(project: Project, old: str, new: str, words: tuple[str, ...]) -> None:
    """An unknown key is named with the nearest right one; so is a value that can't be read."""
    file = project.directory / "perfbisect.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    said = refused(project, [*project.arguments, "--json"])
    for word in words:
        assert word in said
    assert rows(project)["bisections"] == 0


def test_ends_in_the_wrong_order(project: Project) -> None:
    """A good end that is newer than the bad one is refused, with what to do about it."""
    arguments = replaced(project, "--good", project.shas[-1])
    arguments = [each for each in arguments if not each.startswith("--bad=")]
    said = refused(project, [*arguments, f"--bad={project.shas[0]}"])
    assert "swap" in said


def test_equal_ends(project: Project) -> None:
    """The same commit twice is an empty range."""
    said = refused(project, replaced(project, "--bad", project.shas[0]))
    assert project.shas[0][:7] in said


def test_swapped_ends(tmp_path: Path) -> None:
    """A good end that is slower than the bad one is noticed as soon as both are measured."""
    project = make_project(tmp_path, [600.0] * 6 + [900.0] * 6)
    ended = call([*project.arguments, "--json"], project.directory)
    assert ended.code == 2, ended.err
    assert "swap" in ended.json["sentence"]
    assert rows(project)["unfinished"] == 0
    assert rows(project)["builds"] == 2


def benchmark_says(project: Project, script: str, timeout: str = "20s") -> str:
    """Replace the benchmark; return what the command says when it is refused."""
    (project.directory / "bench.py").write_text(script)
    file = project.directory / "perfbisect.toml"
    file.write_text(file.read_text().replace('timeout = "20s"', f'timeout = "{timeout}"'))
    ended = call(project.arguments, project.directory)
    assert ended.code == 2, ended.err
    assert rows(project)["unfinished"] == 0
    return ended.out + ended.err


def test_a_pattern_that_never_matches(project: Project) -> None:
    """The last lines of the output are shown, so that one sees what the pattern should match."""
    said = benchmark_says(project, "for i in range(40): print('speed', i)")
    assert "images/sec" in said
    assert "speed 39" in said
    assert "speed 20" in said
    assert "speed 19" not in said


@pytest.mark.parametrize("value", ["nan", "0", "-3.5", "inf"])
def test_values_that_can_not_be(project: Project, value: str) -> None:
    """NaN, zero, infinite and negative throughputs are refused with the value."""
    file = project.directory / "perfbisect.toml"
    file.write_text(file.read_text().replace("([0-9.]+)", r"(\\S+)").replace(r"\\S", r"\S"))
    said = benchmark_says(project, f"print('images/sec: {value}')")
    assert value in said


def test_a_benchmark_that_hangs(project: Project) -> None:
    """A hang ends with its time limit, the message names it, and no process is left."""
    said = benchmark_says(
        project, "import time\nprint('thinking', flush=True)\ntime.sleep(600)", timeout="1s"
    )
    assert "1s" in said
    assert "thinking" in said
    assert psutil.Process().children(recursive=True) == []
