"""What travels to a host before it can work: files by their digest, and git objects as packs."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from perfbisect.engines.ray_messages import Delivery, MirrorState
from perfbisect.errors import TransientError
from perfbisect.git.process import Git, failure

#: Bytes that travel in one message: small enough for any object store.
CHUNK = 4 << 20
#: Commits that a host's mirror remembers as complete.
_TIPS = 64
_TIPS_FILE = "perfbisect-tips"
_TAGS_FILE = "perfbisect-tags"


def pack_for(
    mirror: Path, wanted: Sequence[tuple[str, str]], state: MirrorState, target: Path
) -> Delivery:
    """Write what a host lacks of a repository to ``target``, as a pack.

    Args:
        mirror: bare mirror here.
        wanted: pairs of a commit and a tree (its own, or one with changes on top); the history of
            the last commit is what the host will remember.
        state: what the host has.
        target: file to write; none is written where the host lacks nothing but tags.

    Returns:
        what to tell the host; its ``parcel`` is to be filled in.

    Raises:
        TransientError: the disk failed.
        InternalError: the mirror lacks the objects.
    """
    git = Git(mirror)
    tags = git.text("for-each-ref", "--format=%(objectname) %(refname)", "refs/tags").splitlines()
    digest = hashlib.sha256("\n".join(tags).encode()).hexdigest()
    fresh_tags = digest != state.tags
    known = _known(git, state.tips)
    wants = [each for pair in wanted for each in pair]
    if fresh_tags:
        wants += [line.split(" ")[0] for line in tags]
    request = "\n".join([*wants, *(f"^{tip}" for tip in known)]) + "\n"
    options = ["pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "--quiet"]
    with io.BytesIO(request.encode()) as asked, target.open("wb") as pack:
        _streamed(git, options, asked, pack)
    shallow = mirror / "shallow"
    return Delivery(
        name=mirror.name,
        commit=wanted[-1][0],
        parcel="",
        tags=tuple(tags) if fresh_tags else None,
        tags_digest=digest,
        shallow=shallow.read_bytes() if shallow.exists() else None,
        object_format="sha256" if len(wanted[-1][0]) == 64 else "sha1",
    )


def _known(git: Git, tips: Sequence[str]) -> list[str]:
    """Return those of a host's commits that are here too: others can't be left out."""
    if not tips:
        return []
    asked = "".join(f"{tip}\n" for tip in tips).encode()
    said = git.text("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked)
    return [line.split(" ")[0] for line in said.splitlines() if line.endswith(" commit")]


def _streamed(git: Git, arguments: Sequence[str], source: BinaryIO, target: BinaryIO) -> None:
    """Run git from one file to another: a pack of a large repository would fill the memory."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        shutil.copyfileobj(source, given)
        given.seek(0)
        done = subprocess.run(
            git.command(arguments),
            stdin=given,
            stdout=target,
            stderr=said,
            env=git.environment,
            check=False,
        )
        said.seek(0)
        if done.returncode != 0:
            stderr = said.read(65_536).decode("utf-8", "replace")
            raise failure(arguments, done.returncode, stderr)


def mirror_state(mirror: Path) -> MirrorState:
    """Return what a host's mirror has; nothing where there is none."""
    try:
        tips = (mirror / _TIPS_FILE).read_text(encoding="ascii").split()
        tags = (mirror / _TAGS_FILE).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return MirrorState((), "")
    return MirrorState(tuple(tips), tags)


def unpack(mirror: Path, delivery: Delivery, pack: Path) -> None:
    """Put a pack into a host's mirror, which is made if there is none.

    Raises:
        TransientError: the disk failed.
    """
    if not (mirror / "HEAD").exists():
        mirror.parent.mkdir(parents=True, exist_ok=True)
        form = f"--object-format={delivery.object_format}"
        Git(None).run("init", "--quiet", "--bare", "--template=", form, "--", str(mirror))
    git = Git(mirror)
    with pack.open("rb") as content, Path(os.devnull).open("wb") as nothing:
        _streamed(git, ["index-pack", "--stdin", "--fix-thin"], content, nothing)
    if delivery.shallow is not None:
        (mirror / "shallow").write_bytes(delivery.shallow)
    if delivery.tags is not None:
        old = git.text("for-each-ref", "--format=delete %(refname)", "refs/tags").splitlines()
        names = [line.split(" ", 1) for line in delivery.tags]
        new = [f"create {name} {sha}" for sha, name in names]
        changes = "".join(f"{line}\n" for line in (*old, *new))
        if changes:
            git.run("update-ref", "--stdin", stdin=changes.encode())
    known = [tip for tip in mirror_state(mirror).tips if tip != delivery.commit]
    (mirror / _TIPS_FILE).write_text("\n".join([*known[-_TIPS:], delivery.commit]) + "\n")
    (mirror / _TAGS_FILE).write_text(delivery.tags_digest + "\n")


def tar_of(directory: Path) -> bytes:
    """Return the files of a directory as an archive that is the same for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(directory.rglob("*")):
            if not path.is_file():
                continue
            info = tarfile.TarInfo(path.relative_to(directory).as_posix())
            info.size = path.stat().st_size
            info.mode = path.stat().st_mode & 0o755
            with path.open("rb") as file:
                archive.addfile(info, file)
    return buffer.getvalue()


def untar(content: bytes, target: Path) -> None:
    """Unpack such an archive into a directory that is there."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(target, filter="data")


class Parcels:
    """Files on a host by their SHA-256, received in pieces; whole or not at all."""

    def __init__(self, directory: Path) -> None:
        """Open the directory; what never arrived whole is removed."""
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        for partial in directory.glob("*.part"):
            partial.unlink()

    def path(self, sha256: str) -> Path:
        """Return where a parcel is, once it is whole."""
        return self._directory / sha256

    def has(self, sha256: str) -> bool:
        """Return whether a parcel is here, whole."""
        return self.path(sha256).exists()

    def put(self, sha256: str, content: Path) -> None:
        """Take a parcel that is on this machine already, and was checked."""
        partial = self._partial(sha256, "put")
        shutil.copy(content, partial)
        partial.replace(self.path(sha256))

    def add(self, sha256: str, sender: str, offset: int, data: bytes) -> None:
        """Write a piece; a sender's pieces come in order."""
        partial = self._partial(sha256, sender)
        with partial.open("ab" if offset else "wb") as file:
            file.truncate(offset)
            file.write(data)

    def seal(self, sha256: str, sender: str) -> None:
        """Declare a parcel whole.

        Raises:
            TransientError: its content has another digest; it is thrown away.
        """
        partial = self._partial(sha256, sender)
        with partial.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            partial.unlink()
            raise TransientError(f"a file arrived damaged: its digest is {found}, not {sha256}")
        partial.replace(self.path(sha256))

    def keep_below(self, limit: int, needed: str) -> list[str]:
        """Remove the parcels that were used longest ago until the rest takes ``limit`` bytes.

        Returns:
            the digests of what was removed.
        """
        self.path(needed).touch()
        removed = []
        whole = [each for each in self._directory.iterdir() if each.suffix != ".part"]
        by_age = sorted(whole, key=lambda each: each.stat().st_mtime, reverse=True)
        total = 0
        for parcel in by_age:
            total += parcel.stat().st_size
            if total > limit and parcel.name != needed:
                parcel.unlink()
                removed.append(parcel.name)
        return removed

    def _partial(self, sha256: str, sender: str) -> Path:
        return self._directory / f"{sha256}.{sender}.part"
