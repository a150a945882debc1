"""Who took a commit back, brought it back, or carried it to another branch.

Messages tell most of it (``core.relations``); equal patches and subjects tell what they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfbisect.core.relations import (
    TELLING,
    Deed,
    Naming,
    Relation,
    RelationKind,
    Said,
    read_mentions,
    relate,
)
from perfbisect.git.axis import is_ancestor
from perfbisect.git.process import Git, GitError

#: Most messages read for the relations of one commit.
_MOST_MESSAGES = 5000
#: How far a commit's own claims (it reverts a revert of a revert…) are followed back.
_DEEPEST_CHAIN = 10
#: Most commits of another branch compared for the same change.
_MOST_COMPARED = 2000
#: Most commits on the same files that are compared with a commit unasked, the newest.
_MOST_REPEATED = 300


def relations(path: Path, sha: str, tips: Sequence[str]) -> tuple[Relation, ...]:
    """Return what other commits are to ``sha``; see ``Mirror.relations``."""
    git = Git(path)
    earlier = _earlier(git, sha)
    reachable = list(tips) or ["--branches", "--remotes"]
    later = _read(
        git,
        f"--max-count={_MOST_MESSAGES}",
        "--regexp-ignore-case",
        "--extended-regexp",
        f"--grep={TELLING}",
        *reachable,
        f"^{sha}",
    )
    said_of = relate([*earlier, *reversed(later)])
    told = said_of.get(sha, ())
    # Of what says itself what it does nothing is guessed.
    known = said_of.keys() | {said.sha for said in (*earlier, *later) if _takes_back(said)}
    same = _repeated(git, sha, reachable)
    return (*told, *(relation for relation in same if relation.commit not in known))


def _takes_back(said: Said) -> bool:
    return any(mention.deed is not Deed.PICK for mention in read_mentions(said.message))


def _repeated(git: Git, sha: str, reachable: Sequence[str]) -> list[Relation]:
    """Return the commits that make the same change without saying so.

    An equal patch is certain; an equal subject on some of the same files, on another line of
    history, is called likely.
    """
    (own, files) = _moment_and_subject(git, sha), _files(git, sha)
    if not files:
        return []
    spelled = [f":(literal){name}" for name in files]
    limits = (f"--max-count={_MOST_REPEATED}", "--no-merges", "--format=%H %ct %s")
    shown = git.text("log", *limits, *reachable, f"^{sha}", "--", *spelled)
    near = [line.split(" ", 2) for line in shown.split("\n") if line.count(" ") >= 2]
    identities = _patch_ids(git, [sha, *(name for name, _, _ in near)])
    found = []
    for name, moment, subject in near:
        same = identities.get(name, name) == identities.get(sha)
        if not same and subject != own[1]:
            continue
        later_here = is_ancestor(git, sha, name)
        if same and later_here:
            found.append(Relation(RelationKind.RELANDED_AS, name))
        elif not later_here:
            before = int(moment) < own[0]
            kind = RelationKind.CHERRY_PICKED_FROM if before else RelationKind.CHERRY_PICKED_AS
            found.append(Relation(kind, name, likely=not same))
    return found


def _moment_and_subject(git: Git, sha: str) -> tuple[int, str]:
    moment, _, subject = git.text("log", "--no-walk", "--format=%ct %s", sha, "--").partition(" ")
    return int(moment), subject


def _files(git: Git, sha: str) -> list[str]:
    """Return the files that a commit touches, not more than can be looked for."""
    shown = git.text("diff-tree", "-r", "--no-commit-id", "--name-only", "-z", sha)
    return [name for name in shown.split("\0") if name][:_MOST_COMPARED]


def relations_between(path: Path, earlier: str, later: str) -> dict[str, tuple[Relation, ...]]:
    """Return the relations among all commits of ``later`` that ``earlier`` has not, and itself."""
    git = Git(path)
    inside = _read(git, later, f"^{earlier}")
    return relate([*_read(git, "--no-walk", earlier), *reversed(inside)])


def _read(git: Git, *selection: str) -> list[Said]:
    """Return commits and messages, newest first."""
    tokens = git.tokens("log", "-z", "--topo-order", "--format=%H%x00%B", *selection, "--")
    texts = [token.decode("utf-8", "replace") for token in tokens]
    return [Said(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)]


def _earlier(git: Git, sha: str) -> list[Said]:
    """Return ``sha`` after the commits that its message names, and those that theirs name…"""
    found: list[Said] = []
    wanted = [sha]
    for _ in range(_DEEPEST_CHAIN):
        next_wanted: list[str] = []
        for name in wanted:
            (said,) = _read(git, "--no-walk", name)
            found.append(said)
            for mention in read_mentions(said.message):
                other = _find(git, mention.naming, mention.name, name)
                if other and all(other != known.sha for known in found):
                    next_wanted.append(other)
        wanted = list(dict.fromkeys(next_wanted))
        if not wanted:
            break
    return found[::-1]


def _find(git: Git, naming: Naming, name: str, before: str) -> str:
    """Return the full SHA of a commit that a message names; empty if it is not here."""
    if naming is Naming.SHA:
        arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        return git.run(*arguments, ok=(0, 1, 128)).stdout.decode().strip()
    needle = {
        Naming.CHANGELIST: f"PiperOrigin-RevId: {name}",
        Naming.PULL_REQUEST: f"#{name}",
        Naming.SUBJECT: name,
    }[naming]
    near = _read(git, "--max-count=20", "--fixed-strings", f"--grep={needle}", f"{before}^@")
    for said in near:
        # The rules of ``relate`` decide which of them is meant.
        probe = relate([said, Said(before, _claim(naming, name))])
        if before in probe:
            return said.sha
    return ""


def _claim(naming: Naming, name: str) -> str:
    shown = {
        Naming.CHANGELIST: f"changelist {name}",
        Naming.PULL_REQUEST: f"#{name}",
        Naming.SUBJECT: f'"{name}"',
    }
    return f"Reverts {shown[naming]}"


def counterpart(path: Path, sha: str, branch: str) -> Relation | None:
    """Return the commit of ``branch`` that makes the same change as ``sha`` under another name.

    The same patch is certain; the same subject on some of the same files is called likely.
    """
    git = Git(path)
    files = _files(git, sha)
    if not files:
        return None
    limits = (f"--max-count={_MOST_COMPARED}", "--no-merges")
    spelled = [f":(literal){name}" for name in files]
    found = git.text("log", "--format=%H %s", *limits, branch, f"^{sha}", "--", *spelled)
    near = [line.partition(" ") for line in found.split("\n") if line]
    names = [name for name, _, _ in near]
    same = set(_patch_ids(git, [sha]).values())
    for name, identity in _patch_ids(git, names).items():
        if identity in same:
            return Relation(RelationKind.CHERRY_PICKED_AS, name)
    subject = git.text("log", "--no-walk", "--format=%s", sha, "--")
    for name, _, other in near:
        if other == subject:
            return Relation(RelationKind.CHERRY_PICKED_AS, name, likely=True)
    return None


def _patch_ids(git: Git, names: Sequence[str]) -> dict[str, str]:
    """Return commit -> identity of its patch, which does not change with its place."""
    if not names:
        return {}
    listed = "".join(f"{name}\n" for name in names).encode()
    patches = git.run("diff-tree", "--stdin", "-p", "--root", stdin=listed).stdout
    lines = git.text("patch-id", "--stable", stdin=patches).split("\n")
    return {line.split()[1]: line.split()[0] for line in lines if line}


def containing(path: Path, sha: str, *spaces: str) -> tuple[str, ...]:
    """Return the short names of the refs below ``spaces`` that contain ``sha``."""
    found = Git(path).text(
        "for-each-ref", f"--contains={sha}", "--format=%(refname:lstrip=2)", *spaces
    )
    return tuple(line for line in found.split("\n") if line and not line.endswith("/HEAD"))


def describe(path: Path, sha: str) -> str:
    """Return ``git describe --tags``: the nearest tag before, the distance, the short name."""
    try:
        return Git(path).text("describe", "--tags", "--always", sha)
    except GitError:
        return sha[:12]
