"""What two revisions mean, before a bisection is submitted: from the mirror alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfbisect.core.states import Find
from perfbisect.errors import PerfbisectError
from perfbisect.git.process import Git
from perfbisect.git.values import CommitInfo
from perfbisect.history import Mirror
from perfbisect.services import Services, known_repository
from perfbisect.work_orders import mirror_path


@dataclass(frozen=True, slots=True)
class End:
    """One end, as far as it is known."""

    commit: CommitInfo | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RangePreview:
    """What the form says of the range; everything is empty until something is typed."""

    good: End = End()
    bad: End = End()
    #: Commits between the ends on the line of first parents, the later end included.
    commits: int | None = None
    problem: str = ""


def preview_range(services: Services, values: Mapping[str, str]) -> RangePreview:
    """Return what is known of a form's revisions; a guess of the form, not a check of the request.

    Commits that were never fetched are not known here, so nothing is said to be wrong for good.
    """
    repository = values.get("repository", "")
    if values.get("bisect_companion"):
        return RangePreview()
    row = known_repository(services, repository) if repository else None
    path = mirror_path(services, row.url) if row is not None else None
    if path is None or not path.is_dir():
        if repository and repository not in services.settings.allowed_repositories and row is None:
            return RangePreview(problem="This service does not know that repository.")
        return RangePreview()
    mirror = Mirror(path)
    good, bad = (_end(mirror, values.get(name, ""), name) for name in ("good", "bad"))
    if good.commit is None or bad.commit is None:
        return RangePreview(good, bad)
    earlier, later = good.commit, bad.commit
    if values.get("find") == Find.FIX:
        earlier, later = later, earlier
    return _counted(Git(path), good, bad, earlier.sha, later.sha)


def _end(mirror: Mirror, revision: str, name: str) -> End:
    if not revision:
        return End()
    try:
        return End(mirror.resolve(revision, name))
    except PerfbisectError as error:
        return End(problem=error.message)


def _counted(git: Git, good: End, bad: End, earlier: str, later: str) -> RangePreview:
    if earlier == later:
        return RangePreview(good, bad, problem="Both ends are the same commit.")
    try:
        if git.run("merge-base", "--is-ancestor", earlier, later, ok=(0, 1)).returncode:
            why = "The good end does not lie before the bad one."
            return RangePreview(good, bad, problem=why)
        count = git.text("rev-list", "--count", "--first-parent", f"{earlier}..{later}")
    except PerfbisectError as error:
        return RangePreview(good, bad, problem=error.message)
    return RangePreview(good, bad, commits=int(count))
