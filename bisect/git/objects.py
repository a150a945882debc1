"""Reading commits and trees with one git process, and writing small objects without any."""

from __future__ import annotations

import subprocess
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha1, sha256
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from perfbisect.errors import InternalError, TransientError
from perfbisect.git.process import Git, bound
from perfbisect.git.values import BareCommit

#: Names asked for in one go: few enough that they fit into a pipe whose reader is busy answering.
_AT_ONCE = 50


class Entry(NamedTuple):
    """What a directory holds under one name."""

    #: As git writes it: ``40000`` is a directory.
    mode: bytes
    #: Full hexadecimal name of the object.
    sha: str

    @property
    def is_tree(self) -> bool:
        """Whether it is a directory."""
        return self.mode == b"40000"


#: A directory: name -> what it is.
Tree = Mapping[bytes, Entry]


class Objects:
    """The objects of one repository by name; holds a git process, so use ``with``."""

    def __init__(self, git_dir: Path) -> None:
        self._folder = git_dir / "objects"
        self._git = Git(git_dir)
        #: By full names, and commits by the names asked for, too.
        self._commits: dict[str, BareCommit | None] = {}
        self._trees: dict[str, Tree] = {}
        #: Begins when it is first needed.
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Objects:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.communicate()

    def commit(self, name: str) -> BareCommit | None:
        """Return the commit that a name means, or None if it means none, or more than one.

        Args:
            name: a revision without line breaks; it can't be taken for an option here.
        """
        if name not in self._commits:
            self.read_commits([name])
        return self._commits[name]

    def read_commits(self, names: Iterable[str]) -> None:
        """Read commits, their first parents and the trees of both in one go, to be asked later."""
        wanted = [name for name in names if name not in self._commits]
        asked = [
            f"{name}{above}{{{kind}}}"
            for name in wanted
            for above in ("^", "^1^")
            for kind in ("commit", "tree")
        ]
        found = list(self._read(asked))
        for name, (sha, kind, body) in zip(wanted, found[::4], strict=True):
            self._commits[name] = _read_commit(sha, body) if kind == "commit" else None

    def tree(self, sha: str) -> Tree:
        """Return a directory by its full name.

        Raises:
            InternalError: there is no such tree.
        """
        if sha not in self._trees:
            self.read_trees([sha])
        if sha not in self._trees:
            raise InternalError(f"the mirror has no tree {sha}")
        return self._trees[sha]

    def read_trees(self, names: Iterable[str]) -> None:
        """Read directories in one go, to be asked for later."""
        for _ in self._read([sha for sha in names if sha not in self._trees]):
            pass

    def write_tree(self, entries: Tree, digits: int) -> str:
        """Store a directory as git would; return its name, which has so many ``digits``."""
        body = b"".join(
            b"%s %s\0%s" % (entry.mode, name, bytes.fromhex(entry.sha))
            for name, entry in sorted(entries.items(), key=_as_git_sorts)
        )
        sha = self.write("tree", body, digits)
        self._trees[sha] = dict(entries)
        return sha

    def write(self, kind: str, body: bytes, digits: int) -> str:
        """Store an object as git would (``hash-object -w``), without a process of its own.

        Raises:
            TransientError: the disk is full, or the mirror can't be written.
        """
        content = b"%s %d\0%s" % (kind.encode(), len(body), body)
        name = (sha1 if digits == 40 else sha256)(content, usedforsecurity=False).hexdigest()
        place = self._folder / name[:2] / name[2:]
        if not place.exists():
            partial = place.with_name(f"tmp_obj_{uuid.uuid4().hex}")
            try:
                place.parent.mkdir(exist_ok=True)
                partial.write_bytes(zlib.compress(content, 1))
                partial.chmod(0o444)
                partial.rename(place)
            except OSError as error:
                raise TransientError(f"could not write into the mirror: {error}") from error
        return name

    def _read(self, names: Sequence[str]) -> Iterator[tuple[str, str, bytes]]:
        """Yield full name, kind and content of each object, and remember it.

        All of it is empty where a name means none, or more than one.
        """
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            process = self._started()
            assert process.stdin is not None
            process.stdin.write("".join(f"{name}\n" for name in some).encode())
            process.stdin.flush()
            for _ in some:
                sha, kind, body = _answer(process)
                if kind == "tree" and sha not in self._trees:
                    self._trees[sha] = _read_tree(body, len(sha) // 2)
                elif kind == "commit" and sha not in self._commits:
                    self._commits[sha] = _read_commit(sha, body)
                yield sha, kind, body

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._git.command(["cat-file", "--batch"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._git.environment,
            )
            bound(self._process.pid)
        return self._process


def _answer(process: subprocess.Popen[bytes]) -> tuple[str, str, bytes]:
    """Read ``<name> <kind> <bytes>`` and the content; or the name asked for and what is wrong."""
    assert process.stdout is not None
    words = process.stdout.readline().decode("utf-8", "replace").split()
    if len(words) != 3 or not words[2].isdigit():
        return "", "", b""
    return words[0], words[1], process.stdout.read(int(words[2]) + 1)[:-1]


def _read_commit(sha: str, body: bytes) -> BareCommit:
    head = body.partition(b"\n\n")[0].decode("utf-8", "replace").split("\n")
    fields = [line.partition(" ") for line in head]
    trees = [value for key, _, value in fields if key == "tree"]
    parents = tuple(value for key, _, value in fields if key == "parent")
    return BareCommit(sha, trees[0], parents)


def _read_tree(body: bytes, size: int) -> Tree:
    """Read a tree object, whose binary names have ``size`` bytes."""
    entries: dict[bytes, Entry] = {}
    place = 0
    while place < len(body):
        space = body.index(b" ", place)
        end = body.index(b"\0", space)
        sha = body[end + 1 : end + 1 + size].hex()
        entries[body[space + 1 : end]] = Entry(body[place:space], sha)
        place = end + 1 + size
    return entries


def _as_git_sorts(item: tuple[bytes, Entry]) -> bytes:
    """Directories stand where their names with a slash would."""
    name, entry = item
    return name + b"/" if entry.is_tree else name
