"""A commit's message and patch from the mirror, where it is there."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from perfbisect.errors import PerfbisectError
from perfbisect.history import Mirror
from perfbisect.services import Services
from perfbisect.store.queries import Listing
from perfbisect.store.tables import CandidateRow
from perfbisect.work_orders import mirror_path

#: Bytes of a patch that a page shows at most.
PATCH_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line of a patch."""

    text: str
    #: ``add``, ``del``, ``hunk``, ``file`` or empty: colours the line.
    kind: str


@dataclass(frozen=True, slots=True)
class CommitText:
    """What git says of a commit."""

    #: The message after its subject.
    body: str
    patch: list[PatchLine]
    cut: bool


def commit_text(services: Services, listing: Listing, sha: str) -> CommitText | None:
    """Return message and patch; None where there is no mirror, or it lacks the commit."""
    if listing.repository is None:
        return None
    try:
        path = mirror_path(services, listing.repository.url)
        if not path.is_dir():
            return None
        mirror = Mirror(path)
        message, diff = mirror.message(sha), mirror.diff(sha, PATCH_BYTES)
    except PerfbisectError:
        return None
    lines = [PatchLine(line, _kind(line)) for line in diff.text.splitlines()]
    return CommitText(message.partition("\n")[2].strip(), lines, diff.cut)


def _kind(line: str) -> str:
    if line.startswith(("diff ", "index ", "--- ", "+++ ")):
        return "file"
    return {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "")


def reproduce(listing: Listing, candidate: CandidateRow) -> str:
    """Return a command that measures this commit against the one before it; empty at the start."""
    request = listing.row.request
    recipe, benchmark = request.get("recipe"), request.get("benchmark")
    if candidate.position == 0 or not (isinstance(recipe, str) and isinstance(benchmark, str)):
        return ""
    repository = request.get("repository")
    if not repository:
        return ""
    words = {
        "--repo": repository,
        "--good": f"{candidate.sha}~1",
        "--bad": candidate.sha,
        "--recipe": recipe,
        "--benchmark": benchmark,
    }
    options = [f"{name} {shlex.quote(str(value))}" for name, value in words.items()]
    for name, on in (request.get("recipe_options") or {}).items():
        options.append(f"--recipe-option {name}={'on' if on else 'off'}")
    return " \\\n  ".join(["perfbisect bisect", *options])
