"""A source tree that is kept from build to build, and updated in place.

Beside the tree stands a record of what it holds: the tree's name, and each file as the file system
knew it once it was written. An update writes what differs between the two trees, and what a build
changed, and removes what a build left. While it is under way there is no record; so where one was
killed in the middle, the next one compares everything with a fresh checkout.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perfbisect.building.checkout import remove, sync_tree
from perfbisect.git.checkout import checkout_tree, make_git
from perfbisect.git.process import GitError
from perfbisect.git.updating import (
    Listing,
    TreeChange,
    changes_between,
    list_index,
    read_index,
    refresh_index,
    write_files,
)

#: Paths are as ``os.fsdecode`` gives them, relative to the tree.
_ATTRIBUTES = ".gitattributes"
_BOOT = Path("/proc/sys/kernel/random/boot_id")

#: Inode, size, times of change of content and of anything, mode: what tells a file untouched.
Seen = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update did."""

    #: Only what differs was written.
    in_place: bool
    written: int
    removed: int
    #: Files that are there now.
    files: int

    def __str__(self) -> str:
        if not self.in_place:
            return f"source tree: checked out, {self.files:,} files"
        stayed = self.files - self.written
        return (
            f"source tree: {self.written:,} files written, {self.removed:,} removed, "
            f"{stayed:,} as they were"
        )


@dataclass(frozen=True, slots=True)
class _Record:
    """What a kept tree holds."""

    tree: str
    #: The machine's run: after a crash of it, files may not be what was written.
    boot: str
    files: Mapping[str, Seen]
    modules: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Found:
    """How the files of a kept tree are."""

    #: What the tree does not have.
    strays: tuple[str, ...]
    #: Files of the tree that are missing or were touched.
    touched: frozenset[str]


class KeptTree:
    """A directory that holds one tree after the other. The caller holds its slot."""

    def __init__(self, path: Path) -> None:
        """Take a directory, which may be missing; beside it, ``incoming`` and names with its own
        name in front are used.
        """
        self._path = path
        self._incoming = path.with_name("incoming")
        self._record = path.with_name(f"{path.name}.record.json")
        self._index = path.with_name(f"{path.name}.index")

    def update(self, mirror: Path, tree: str, commit: str) -> Updated:
        """Make the directory what ``checkout_tree`` makes; files that stay are not touched.

        Links named ``bazel-*`` at the top are Bazel's own and stay.

        Raises:
            BadInputError: the tree holds what git refuses to write.
            TransientError: the disk failed.
            InternalError: the mirror lacks the objects.
        """
        remove(self._incoming)
        record = self._read()
        updated = None
        if record is not None:
            # A mirror that was made anew lacks the trees of changes that were tried before.
            with contextlib.suppress(GitError):
                updated = self._update(record, mirror, tree, commit)
        return updated or self._replace(mirror, tree, commit)

    def settle(self) -> None:
        """Take the files as they are, if but their owner changed since they were written.

        To be called before any command of a build has run.
        """
        record = self._read()
        if record is None:
            return
        files = {}
        for name, seen in record.files.items():
            now = _seen(self._path / name)
            # Inode, size and content's time.
            files[name] = now if now is not None and now[:3] == seen[:3] else seen
        if files != record.files:
            self._write(replace(record, files=files))

    def _replace(self, mirror: Path, tree: str, commit: str) -> Updated:
        """Check out afresh, and take over what differs, byte for byte."""
        kept = self._path.exists()
        remove(self._incoming)
        checkout_tree(mirror, tree, commit, self._incoming)
        self._forget()
        sync_tree(self._incoming, self._path)
        folder = self._path / ".git"
        if kept:
            refresh_index(folder, self._path)
        listing = list_index(folder)
        shutil.copyfile(folder / "index", self._index)
        self._remember(tree, listing, {})
        count = len(listing.files)
        return Updated(in_place=False, written=count, removed=0, files=count)

    def _update(self, record: _Record, mirror: Path, tree: str, commit: str) -> Updated | None:
        """Write what differs; None: nothing was touched, and a fresh checkout must tell.

        Raises:
            GitError: as for None, or in the middle of it.
        """
        change = changes_between(mirror, record.tree, tree)
        make_git(mirror, tree, commit, self._incoming)
        folder = self._incoming / ".git"
        listing = read_index(folder, self._path, tree, self._index)
        found = _look(self._path, record)
        if any(_base(name) == _ATTRIBUTES for name in (*change.gone, *change.come, *found.touched)):
            # They decide how files look that did not change themselves.
            return None
        self._forget()
        written = self._apply(change, found, listing, folder)
        shutil.copyfile(folder / "index", self._index)
        remove(self._path / ".git")
        os.rename(folder, self._path / ".git")
        remove(self._incoming)
        same = record.files.keys() & listing.files - written
        self._remember(tree, listing, {name: record.files[name] for name in same})
        removed = len(found.strays) + len(change.gone - change.come)
        return Updated(True, len(written & listing.files), removed, len(listing.files))

    def _apply(
        self, change: TreeChange, found: _Found, listing: Listing, folder: Path
    ) -> frozenset[str]:
        """Remove and write files; return the paths that were written."""
        for name in found.strays:
            remove(self._path / name)
        for name in (*change.gone, *found.touched):
            remove(self._path / name)
        self._remove_empty(change.gone, listing)
        for name in {name.partition("/")[0] for name in change.come}:
            # A link of Bazel's may be where the tree has something now.
            if (self._path / name).is_symlink():
                remove(self._path / name)
        paths = change.come | (found.touched & (listing.files | listing.modules))
        write_files(folder, self._path, paths)
        return paths

    def _remove_empty(self, gone: Iterable[str], listing: Listing) -> None:
        """Remove directories of which the tree has nothing any more, the innermost first."""
        left = _parents(gone) - _parents((*listing.files, *listing.modules))
        for name in sorted(left, key=lambda each: -each.count("/")):
            remove(self._path / name)

    def _remember(self, tree: str, listing: Listing, known: Mapping[str, Seen]) -> None:
        files = dict(known)
        for name in listing.files - known.keys():
            seen = _seen(self._path / name)
            if seen is not None:
                files[name] = seen
        self._write(_Record(tree, _boot(), files, listing.modules))

    def _forget(self) -> None:
        self._record.unlink(missing_ok=True)

    def _write(self, record: _Record) -> None:
        temporary = self._record.with_suffix(".new")
        text = json.dumps(
            {
                "tree": record.tree,
                "boot": record.boot,
                "files": record.files,
                "modules": sorted(record.modules),
            }
        )
        temporary.write_text(text, encoding="ascii")
        temporary.replace(self._record)

    def _read(self) -> _Record | None:
        """Return what the directory holds; None: nobody knows."""
        try:
            told = json.loads(self._record.read_text(encoding="ascii"))
            files = {name: _as_seen(seen) for name, seen in told["files"].items()}
            record = _Record(told["tree"], told["boot"], files, frozenset(told["modules"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return record if record.boot == _boot() and self._path.is_dir() else None


def _look(root: Path, record: _Record) -> _Found:
    """Compare a directory with its record, without following links or touching anything."""
    folders = _parents((*record.files, *record.modules))
    strays: list[str] = []
    untouched: set[str] = set()
    _open(root)
    for name, entry in _walk(root, "", folders):
        if "/" not in name and _is_bazels(entry) and name not in record.files:
            continue
        if name in record.files and not entry.is_dir(follow_symlinks=False):
            if _of(entry.stat(follow_symlinks=False)) == record.files[name]:
                untouched.add(name)
        elif name not in record.modules or not _is_empty(entry):
            strays.append(name)
    missing = record.modules - {name for name in record.modules if _is_folder(root / name)}
    emptied = record.modules.intersection(strays) | missing
    return _Found(tuple(strays), frozenset(record.files.keys() - untouched | emptied))


def _walk(
    root: Path, below: str, folders: frozenset[str]
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield what is in a directory, but for directories that the tree has: their content instead.

    ``.git`` at the top is passed over.
    """
    for entry in os.scandir(root / below):
        name = f"{below}/{entry.name}" if below else entry.name
        if entry.is_dir(follow_symlinks=False) and name in folders:
            _open(Path(entry))
            yield from _walk(root, name, folders)
        elif name != ".git":
            yield name, entry


def _open(directory: Path) -> None:
    """Let a directory be read and written again, which a build may have closed."""
    mode = stat.S_IMODE(directory.stat(follow_symlinks=False).st_mode)
    if mode & 0o700 != 0o700:
        directory.chmod(mode | 0o755)


def _is_bazels(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and entry.name.startswith("bazel-")


def _is_empty(entry: os.DirEntry[str]) -> bool:
    if not entry.is_dir(follow_symlinks=False):
        return False
    with os.scandir(entry.path) as inside:
        return next(inside, None) is None


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _parents(names: Iterable[str]) -> frozenset[str]:
    """Return all directories above some paths."""
    found: set[str] = set()
    for name in names:
        while (cut := name.rfind("/")) > 0:
            name = name[:cut]
            if name in found:
                break
            found.add(name)
    return frozenset(found)


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _seen(path: Path) -> Seen | None:
    try:
        return _of(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _of(found: os.stat_result) -> Seen:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode


def _as_seen(told: list[int]) -> Seen:
    inode, size, content, anything, mode = told
    return inode, size, content, anything, mode


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
