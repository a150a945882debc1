"""Reports of a real small bisection with its proofs: by command line, by API, on the pages."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.helpers.command_line import Ended, call
from tests.helpers.conducting import (
    FactorRunner,
    SmallRepository,
    make_conductor,
    make_factor_repository,
    open_services,
    request_for,
)
from tests.helpers.serving import client_of, listening, shown_app

from perfbisect.settings import Settings
from perfbisect.store.tables import ExperimentRow
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder

CULPRIT = 9
HOSTILE = "Fuse | <img src=x onerror=alert(1)> [x](y) @everyone #1 `tick`"


@dataclass(frozen=True)
class Proven:
    """A finished bisection whose culprit is proven, in a data directory."""

    data_dir: Path
    directory: Path
    repository: SmallRepository
    bisection: str
    proof: str

    def report(self, job_id: str, *options: str) -> Ended:
        arguments = ["report", job_id, f"--data-dir={self.data_dir}", *options]
        return call(arguments, self.directory)


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Proven:
    directory = tmp_path_factory.mktemp("reports")
    repository = make_factor_repository(
        directory / "repository", {CULPRIT: 0.5}, 14, {CULPRIT: HOSTILE}
    )
    services = open_services(directory)
    submitted = submit(
        services,
        request_for(repository, prove=True),
        requested_by="tester",
        origin="command line",
        base_dir=directory,
        allow_local=True,
    )
    conductor = make_conductor(services, ScriptedBuilder(), FactorRunner(services), directory)
    conductor.conduct_until_finished(submitted.id)
    conductor.stop()
    with services.database.read() as session:
        (proof,) = session.scalars(select(ExperimentRow.id))
    services.close()
    return Proven(directory / "data", directory, repository, submitted.id, proof)


def test_the_markdown_tells_all_of_it(proven: Proven) -> None:
    """What changed, where, how sure, the proof, the measured sides, and what to type."""
    ended = proven.report(proven.bisection)
    assert ended.code == 0
    text, shas = ended.out, proven.repository.shas
    answer = text.splitlines()[2]
    assert shas[CULPRIT][:10] in answer
    assert "verified, proven by revert and pick" in answer
    for heading in ("Proofs", "Measured revisions", "Environment", "Reproduce", "Decisions"):
        assert f"\n## {heading}\n" in text
    assert f"| before step 1 | {shas[CULPRIT - 1][:10]} |" in text
    assert f"| after step 1 | {shas[CULPRIT][:10]} |" in text
    assert f"--good {shas[0]}" in text
    assert f"--base {shas[-1]} \\\n  --revert {shas[CULPRIT]}" in text
    assert f"--base {shas[0]} \\\n  --pick {shas[CULPRIT]}" in text
    assert 'kind = "command"' in text


def test_what_a_commit_says_is_never_markup(proven: Proven) -> None:
    """A hostile subject stays text in Markdown and HTML: no tag, no link, nobody is notified."""
    markdown = proven.report(proven.bisection).out
    assert "<img" not in markdown.replace("\\<img", "")
    assert "[x](y)" not in markdown
    assert "@everyone" not in markdown
    page = proven.report(proven.bisection, "--format=html").out
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "<script" not in page
    assert "src=" not in page.replace("img src=x", "")


def test_json_and_csv_hold_the_same(proven: Proven) -> None:
    """JSON is the verdict with what the report adds; CSV has a line for each measured revision."""
    told = json.loads(proven.report(proven.bisection, "--format=json").out)
    assert told["id"] == proven.bisection
    assert told["outcome"] == "culprits"
    measured = told["report"]["measured"]
    rows = list(csv.DictReader(io.StringIO(proven.report(proven.bisection, "--format=csv").out)))
    assert [row["commit"] for row in rows] == [each["commit"] for each in measured]
    assert [row["role"] for row in rows if row["role"]] == [
        "good end",
        "before step 1",
        "after step 1",
        "bad end",
    ]
    assert all(float(row["mean"]) > 0 for row in rows)


def test_an_experiment_has_a_report_of_its_own(proven: Proven) -> None:
    """The id of the proof gives its arms, in Markdown and in CSV."""
    text = proven.report(proven.proof).out
    assert f"# Experiment {proven.proof}" in text
    sha = proven.repository.shas[CULPRIT]
    assert f"revert {sha[:10]} on {proven.repository.shas[-1][:10]}" in text
    assert f"--revert {sha}" in text
    rows = list(csv.DictReader(io.StringIO(proven.report(proven.proof, "--format=csv").out)))
    assert [row["difference"] for row in rows if row["against"]] == ["better", "worse"]


def test_an_unknown_id_is_bad_input(proven: Proven) -> None:
    """An id that is neither a bisection nor an experiment is said to be neither; exit code 2."""
    ended = proven.report("01NOTHING")
    assert ended.code == 2
    assert "neither a bisection nor an experiment" in ended.err


def test_a_report_is_written_to_a_file(proven: Proven, tmp_path: Path) -> None:
    """``--output`` writes the file and leaves standard output empty."""
    target = tmp_path / "report.html"
    ended = proven.report(proven.bisection, "--format=html", f"--output={target}")
    assert ended.out == ""
    assert target.read_text().startswith("<!doctype html>")


def test_a_server_gives_the_same_reports(proven: Proven) -> None:
    """Against a server each format is, letter for letter, what the local database gives."""
    local = {
        (job, wanted): proven.report(job, f"--format={wanted}").out
        for job in (proven.bisection, proven.proof)
        for wanted in ("md", "html", "json", "csv")
    }
    with listening(shown_app(Settings(data_dir=proven.data_dir))) as server:
        for (job, wanted), text in local.items():
            ended = call(["report", job, f"--server={server}", f"--format={wanted}"])
            assert ended.code == 0, ended.err
            assert ended.out == text
        missing = call(["report", "01NOTHING", f"--server={server}"])
    assert missing.code == 2


def test_reports_over_http_have_their_types_and_policies(proven: Proven) -> None:
    """Each format has its media type; the page may use its own style and load nothing."""
    with client_of(shown_app(Settings(data_dir=proven.data_dir))) as client:
        base = f"/api/v1/bisections/{proven.bisection}/report"
        types: dict[str, Any] = {}
        for wanted in ("md", "html", "json", "csv"):
            answer = client.get(base, params={"format": wanted})
            types[wanted] = answer.headers["content-type"].partition(";")[0]
        page = client.get(base, params={"format": "html"})
        refused = client.get(base, params={"format": "pdf"})
    assert types == {
        "md": "text/markdown",
        "html": "text/html",
        "json": "application/json",
        "csv": "text/csv",
    }
    assert page.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha")
    assert refused.status_code == 422
