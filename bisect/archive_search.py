"""Which archives the commits of a range download: read from their trees, without a checkout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perfbisect.core.archives import Archive, Found, merged, read_archives
from perfbisect.git.process import Git

#: Files that name archives.
_NAMES = ("WORKSPACE", "WORKSPACE.bazel")
_ENDING = ".bzl"
#: A file without this word names no archive that can be kept.
_MARK = b"sha256"
#: Larger files are generated, and name nothing that a person wrote down, bytes.
_LARGEST = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RangeArchives:
    """What the commits of a range download."""

    archives: tuple[Archive, ...]
    #: What was not understood: ``third_party/x.bzl line 3: http_archive(name)``.
    puzzles: tuple[str, ...]
    #: Files that were read, each version once.
    files: int


def archives_between(mirror: Path, earlier: str, later: str) -> RangeArchives:
    """Return what the trees from ``earlier`` to ``later``, both included, name.

    Each version of a file is read once, however many commits have it.

    Args:
        mirror: bare mirror of the repository.
        earlier: full SHA of a commit.
        later: full SHA of a descendant.
    """
    git = Git(mirror)
    blobs = dict(_in_tree(git, earlier))
    for blob, path in _changed(git, earlier, later):
        blobs.setdefault(blob, path)
    found = [(blobs[blob], read_archives(text)) for blob, text in _contents(git, blobs)]
    return RangeArchives(
        archives=merged([archive for _, each in found for archive in each.archives]),
        puzzles=tuple(dict.fromkeys(_puzzles(found))),
        files=len(found),
    )


def _puzzles(found: Iterable[tuple[str, Found]]) -> Iterator[str]:
    for path, each in found:
        for puzzle in each.puzzles:
            yield f"{path} {puzzle}"


def _is_wanted(path: str) -> bool:
    return path in _NAMES or path.endswith(_ENDING)


def _in_tree(git: Git, commit: str) -> Iterator[tuple[str, str]]:
    """Yield (blob, path) of the wanted files of a commit."""
    for entry in git.tokens("ls-tree", "-r", "-z", "--full-tree", commit):
        facts, _, name = entry.decode("utf-8", "replace").partition("\t")
        mode, kind, blob = facts.split()
        # A link leads to a file that is read under its own name.
        if kind == "blob" and mode != "120000" and _is_wanted(name):
            yield blob, name


def _changed(git: Git, earlier: str, later: str) -> Iterator[tuple[str, str]]:
    """Yield (blob, path) of every version that a commit after ``earlier`` brings."""
    arguments = ("log", "-m", "--raw", "--no-abbrev", "--no-renames", "--format=", "-z")
    between = ("--end-of-options", f"{earlier}..{later}", "--", *_NAMES, f"*{_ENDING}")
    tokens = git.tokens(*arguments, *between)
    for token in tokens:
        facts = token.decode("utf-8", "replace").strip().split()
        if not facts or not facts[0].startswith(":"):
            continue
        path = next(tokens, b"").decode("utf-8", "replace")
        mode, blob = facts[1], facts[3]
        if set(blob) != {"0"} and mode not in ("120000", "160000") and _is_wanted(path):
            yield blob, path


def _contents(git: Git, blobs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (blob, text) of those that may name archives."""
    listed = list(blobs)
    if not listed:
        return
    done = git.run("cat-file", "--batch", stdin="".join(f"{each}\n" for each in listed).encode())
    place = 0
    for blob in listed:
        end = done.stdout.index(b"\n", place)
        size = int(done.stdout[place:end].split()[2])
        content = done.stdout[end + 1 : end + 1 + size]
        place = end + 1 + size + 1
        if size <= _LARGEST and _MARK in content:
            yield blob, content.decode("utf-8", "replace")
