"""Git: mirrors, candidate commits, revision to tree, and what commits say of each other.

mirror = open_mirror("https://example.org/repository.git", Path("mirrors"))
good, bad = mirror.resolve("v1.0", "good"), mirror.resolve("master", "bad")
axis = mirror.candidates(good, bad)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from perfbisect.core.relations import Relation
from perfbisect.core.revision import Action, Change, Revision
from perfbisect.core.states import Find
from perfbisect.git import (
    axis,
    checkout,
    kinship,
    mirroring,
    prerequisites,
    resolving,
    revisions,
    widening,
)
from perfbisect.git.axis import same_wheel
from perfbisect.git.fetching import UNCHECKED, Fetching
from perfbisect.git.log import read_commits
from perfbisect.git.merging import ConflictFile
from perfbisect.git.prerequisites import NearestMiss, PickSet
from perfbisect.git.process import Git, Progress
from perfbisect.git.revisions import Conflict, Empty, Resolved
from perfbisect.git.source import Source, parse_source
from perfbisect.git.values import Candidate, CommitInfo, DiffText, many_lines
from perfbisect.git.widening import NothingWider, Wider

__all__ = [
    "Candidate",
    "CommitInfo",
    "Conflict",
    "ConflictFile",
    "DiffText",
    "Empty",
    "Mirror",
    "NearestMiss",
    "NothingWider",
    "PickSet",
    "Resolved",
    "Wider",
    "open_mirror",
    "same_wheel",
]


def open_mirror(
    source: str | Path,
    mirrors_dir: Path,
    *,
    allow_local: bool = True,
    update: bool = True,
    progress: Progress | None = None,
    fetching: Fetching = UNCHECKED,
) -> Mirror:
    """Return the mirror of a repository, made on the first call and brought up to date on each.

    Branches, tags, the source's HEAD and, of a local repository, its remote-tracking branches are
    mirrored. Processes wait for each other; one that was killed in the middle leaves nothing that a
    later call does not clear away.

    Args:
        source: a URL (https, ssh, http, git), or a path or ``file`` URL on this machine.
        mirrors_dir: directory of all mirrors; made if missing.
        allow_local: accept paths; an API that serves others should not.
        update: fetch even if the mirror is there; False lets work go on without the network.
        progress: is told git's progress, line by line.
        fetching: bounds of size and time, and the machines that may be fetched from.

    Raises:
        BadInputError: not a repository, not readable, without a commit, of a refused kind, too
            large, or on a machine that may not be reached.
        TransientError: the network, the server or the disk failed.
    """
    where = parse_source(source, allow_local=allow_local)
    path = mirroring.update_mirror(
        where, mirrors_dir, update=update, progress=progress, fetching=fetching
    )
    return Mirror(path, where, fetching)


class Mirror:
    """A bare mirror. Nothing here needs the network but ``resolve`` of commits not yet fetched."""

    def __init__(
        self, path: Path, source: Source | None = None, fetching: Fetching = UNCHECKED
    ) -> None:
        """Use a mirror that is there, e.g. on the machine that builds.

        Args:
            path: its directory.
            source: where it came from, if more may be fetched from there.
            fetching: bounds of that.
        """
        self.path = path.resolve()
        self.source = source
        self._fetching = fetching

    def __repr__(self) -> str:
        return f"Mirror({str(self.path)!r})"

    @property
    def shallow(self) -> bool:
        """Whether the history is cut off somewhere, as in a clone with ``--depth``."""
        return resolving.is_shallow(self.path)

    def resolve(self, rev: str, field: str = "good") -> CommitInfo:
        """Return the commit that ``rev`` names: a (short) SHA, branch, tag, or ``HEAD~3`` and such.

        Raises:
            BadInputError: no such commit; names ``field``, the value and the nearest name.
        """
        return resolving.resolve(self.path, self.source, rev, field, self._fetching)

    def commit(self, sha: str) -> CommitInfo:
        """Return the commit with this SHA."""
        return self.resolve(sha, "commit")

    def candidates(
        self,
        good: CommitInfo | str,
        bad: CommitInfo | str,
        *,
        find: Find = Find.ALL,
        all_parents: bool = False,
        paths: Sequence[str] = (),
    ) -> list[Candidate]:
        """Return the commits of the axis, the earliest first and both ends included.

        Indices are positions: 0 is the good end, n the bad end; with ``find = fix``, where the good
        end is the later one, 0 is the bad end.

        Args:
            find: what is looked for; decides which end must be the earlier one.
            all_parents: walk all commits of merged branches too (in topological order), rather than
                the line of first parents.
            paths: keep only commits that touch these paths (as git takes them after ``--``), and
                both ends.

        Raises:
            BadInputError: the ends are equal, the wrong way round, or not one above the other; or
                no commit between them touches the paths.
        """
        return axis.candidates(
            self.path,
            self._as_commit(good, "good"),
            self._as_commit(bad, "bad"),
            find=find,
            all_parents=all_parents,
            paths=paths,
        )

    def first_parents(self, rev: str, field: str = "revision") -> list[CommitInfo]:
        """Return the line of first parents that ends in ``rev``, the earliest first."""
        sha = self.resolve(rev, field).sha
        return read_commits(Git(self.path), "--first-parent", sha, "--")[::-1]

    def contains(self, later: str, earlier: str) -> bool:
        """Return whether a commit is, or descends from, another; both by full SHA."""
        return later == earlier or axis.is_ancestor(Git(self.path), earlier, later)

    def resolve_revision(
        self, revision: Revision, patches: Mapping[str, bytes] | None = None
    ) -> Resolved | Conflict | Empty:
        """Return the tree of a base commit with changes, merged without a working copy.

        The first change that does not apply, or changes nothing, ends it. Objects are written into
        the mirror only, on no branch.

        Args:
            revision: base and changes; commits may be named as in ``resolve``.
            patches: name -> text of every patch; files are never opened here.

        Raises:
            BadInputError: an unknown commit, a merge without its parent, or no patch at all.
        """
        return revisions.resolve_revision(self.path, revision, self.resolve, patches or {})

    def prerequisites(
        self,
        base: CommitInfo | str,
        fix: str,
        *,
        parent: int | None = None,
        max_seconds: float = 120.0,
        progress: Progress | None = None,
    ) -> PickSet | NearestMiss:
        """Return a smallest set of earlier commits with which ``fix`` can be picked onto ``base``.

        Smallest: no member can be left out. Each member applies where it stands, too.

        Args:
            parent: for a fix that is a merge, the parent against which it is seen.
            max_seconds: how long to look; what was found by then is returned, or the nearest miss.
            progress: is told how far it is.

        Raises:
            BadInputError: an unknown commit, a merge without its parent, a fix that the base
                contains, or histories without a common commit.
        """
        return prerequisites.find_prerequisites(
            self.path,
            self._as_commit(base, "base"),
            Change(Action.PICK, fix, parent),
            self.resolve,
            max_seconds=max_seconds,
            progress=progress,
        )

    def widen(
        self,
        base: CommitInfo | str,
        fix: Change,
        members: Sequence[str],
        lines: Sequence[str],
        *,
        max_seconds: float = 30.0,
    ) -> Wider | NothingWider:
        """Return a larger pick set than one that applies and does not build.

        Args:
            members: full SHAs of the commits before ``fix``.
            lines: the telling lines of the failed build: what they name is looked for in history.
            max_seconds: how long to look.
        """
        return widening.widen(
            self.path,
            self._as_commit(base, "base"),
            fix,
            members,
            lines,
            self.resolve,
            max_seconds=max_seconds,
        )

    def checkout_tree(self, tree: str, commit: str, dest: Path) -> None:
        """Write a tree into ``dest`` with a real ``.git``; see ``git.checkout.checkout_tree``.

        Args:
            tree: full SHA of the tree.
            commit: full SHA of the commit it is, or is based on; HEAD afterwards (or its child).
            dest: a directory that is empty or not there.
        """
        checkout.checkout_tree(self.path, tree, commit, dest)

    def diff(self, sha: str, max_bytes: int = 256 * 1024) -> DiffText:
        """Return the patch of a commit against its first parent, for reading."""
        arguments = ("show", "--format=", "--patch", "--stat", "--diff-merges=first-parent")
        plain = (
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--end-of-options",
            self._sha(sha),
            "--",
        )
        content, cut = Git(self.path).head(*arguments, *plain, limit=max_bytes)
        return DiffText(many_lines(content.decode("utf-8", "replace")), cut)

    def message(self, sha: str) -> str:
        """Return the whole message of a commit."""
        shown = Git(self.path).text("show", "-s", "--format=%B", self._sha(sha), "--")
        return many_lines(shown).strip()

    def read_file(self, tree: str, path: str, max_bytes: int = 1024 * 1024) -> str | None:
        """Return the beginning of a file in a tree or commit; None if there is no such file."""
        name = f"{self._sha(tree)}:{path}"
        kind = Git(self.path).run("cat-file", "-t", name, ok=(0, 128))
        if kind.stdout.strip() != b"blob":
            return None
        content, _ = Git(self.path).head("cat-file", "blob", name, limit=max_bytes)
        return content.decode("utf-8", "replace")

    def branches_containing(self, sha: str) -> tuple[str, ...]:
        """Return the branches that contain a commit, remote-tracking ones as ``origin/name``."""
        return kinship.containing(self.path, self._sha(sha), "refs/heads", "refs/remotes")

    def tags_containing(self, sha: str) -> tuple[str, ...]:
        """Return the tags that contain a commit."""
        return kinship.containing(self.path, self._sha(sha), "refs/tags")

    def describe(self, sha: str) -> str:
        """Return the nearest tag before a commit and the distance to it, or its short name."""
        return kinship.describe(self.path, self._sha(sha))

    def relations(self, sha: str, within: CommitInfo | str | None = None) -> tuple[Relation, ...]:
        """Return who reverted, relanded or picked a commit later, and what itself does to others.

        Args:
            sha: full SHA of the commit.
            within: look only at what this revision contains; None: at all branches.
        """
        tips = () if within is None else (self._as_commit(within, "within").sha,)
        return kinship.relations(self.path, self._sha(sha), tips)

    def relations_between(self, earlier: str, later: str) -> dict[str, tuple[Relation, ...]]:
        """Return SHA -> relations among the commits from ``earlier`` to ``later``, both ends in."""
        return kinship.relations_between(self.path, self._sha(earlier), self._sha(later))

    def counterpart(self, sha: str, branch: str) -> Relation | None:
        """Return the commit of a branch that makes the same change under another name, if any."""
        return kinship.counterpart(self.path, self._sha(sha), self.resolve(branch, "branch").sha)

    def _sha(self, given: str) -> str:
        """Return a full SHA as it is; anything else is looked up, so that git gets no option."""
        return given if resolving.is_full_sha(given) else self.commit(given).sha

    def _as_commit(self, given: CommitInfo | str, field: str) -> CommitInfo:
        return self.resolve(given, field) if isinstance(given, str) else given
