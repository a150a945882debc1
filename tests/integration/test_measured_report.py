"""The table of measured revisions: ends, dates, ranges, and what was measured since."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.conducting import make_conductor, make_repository, open_services, request_for

from perfbisect.reports.formats import render_dossier
from perfbisect.routers.dossiers import bisection_dossier
from perfbisect.submission import submit
from perfbisect.testing import ScriptedBuilder, ScriptedRunner


def test_the_newest_revision_that_another_bisection_measured_is_the_current_one(
    tmp_path: Path,
) -> None:
    """The first half was bisected, and later the second: its report tells how it is now."""
    services = open_services(tmp_path)
    repository = make_repository(tmp_path / "repository", 12)
    runner = ScriptedRunner(
        lambda sha: 9000.0 if repository.position(sha) < 3 else 2900.0, noise=0.01, seed=3
    )
    ids = []
    for good, bad in ((0, 6), (2, 12)):
        request = request_for(repository, good=repository.shas[good], bad=repository.shas[bad])
        submitted = submit(
            services,
            request,
            requested_by="tester",
            origin="command line",
            base_dir=tmp_path,
            allow_local=True,
        )
        ids.append(submitted.id)
        conductor = make_conductor(services, ScriptedBuilder(), runner, tmp_path)
        conductor.conduct_until_finished(submitted.id)
        conductor.stop()
    with services.database.read() as session:
        first, second = (bisection_dossier(session, each) for each in ids)
    services.close()
    (current,) = [row for row in first["measured"] if row["role"] == "current"]
    assert current["commit"] == repository.shas[12]
    assert current["date"] == "2019-08-01"
    assert 2700 < current["lowest"] <= current["mean"] <= current["highest"] < 3100
    assert f"| current | {repository.shas[12][:10]} | commit 12 | 2019-08-01 |" in render_dossier(
        first, "md"
    )
    assert all(row["role"] != "current" for row in second["measured"])
    ends = {row["role"]: row["date"] for row in first["measured"] if "end" in row["role"]}
    assert set(ends.values()) == {"2019-08-01"}
