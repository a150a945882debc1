"""Images of toolchains: built once from their Dockerfile and arguments, found again by digest."""

from __future__ import annotations

import contextlib
import io
import os
import queue
import re
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker.errors import ImageNotFound
from docker.types import CancellableStream
from filelock import FileLock, Timeout

from perfbisect.building.artifacts import sha256_of
from perfbisect.building.failures import classify
from perfbisect.building.place import Stopped
from perfbisect.containers import Docker, translated
from perfbisect.core.recipe import digest_of
from perfbisect.core.states import FailureKind
from perfbisect.errors import BadInputError, did_you_mean
from perfbisect.ports import CancelledWork, CancelToken, Failure
from perfbisect.process_output import POLL_SECONDS, ProcessOutput

#: Label of every image: its toolchain.
LABEL = "perfbisect.toolchain"

_ARG = re.compile(r"^ARG\s+([A-Z][A-Z0-9_]*)", re.MULTILINE)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What an image is made of."""

    #: Name of a file in the directory of Dockerfiles, without its ending.
    name: str
    #: Arguments that differ from the Dockerfile's defaults.
    args: Mapping[str, str] = field(default_factory=dict)
    #: Files put beside the Dockerfile: name -> path on this machine.
    files: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is there."""

    #: ``sha256:…``, which names its content.
    id: str
    tag: str


class Images:
    """Finds and builds images, one builder of each at a time."""

    def __init__(self, docker: Docker, dockerfiles: Path, locks: Path) -> None:
        self._docker = docker
        self._dockerfiles = dockerfiles
        self._locks = locks

    def ensure(self, toolchain: Toolchain, log_path: Path, cancel: CancelToken) -> Image:
        """Return the image of a toolchain, built now if this engine does not have it.

        Raises:
            BadInputError: no such toolchain or argument.
            Stopped: it does not build.
            CancelledWork: the token asked for the end; the engine builds no longer.
            TransientError: the engine fails.
        """
        text = self._read(toolchain.name)
        args = _checked(toolchain, text)
        files = {name: sha256_of(path) for name, path in sorted(toolchain.files.items())}
        digest = digest_of({"dockerfile": text, "args": args, "files": files})
        tag = f"perfbisect/{toolchain.name}:{digest[:20]}"
        found = self._find(tag)
        if found is not None:
            return found
        with _lock(self._locks / f"{toolchain.name}-{digest[:20]}.lock", cancel):
            found = self._find(tag)
            if found is not None:
                return found
            return self._build(toolchain, text, args, tag, log_path, cancel)

    def _read(self, name: str) -> str:
        path = self._dockerfiles / f"{name}.Dockerfile"
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) or not path.is_file():
            known = sorted(each.stem for each in self._dockerfiles.glob("*.Dockerfile"))
            raise BadInputError(
                f"recipe: toolchain = '{name}' is none of {', '.join(known)}"
                + did_you_mean(name, known),
                field="toolchain",
                value=name,
            )
        return path.read_text("utf-8")

    def _find(self, tag: str) -> Image | None:
        with translated():
            try:
                return Image(str(self._docker.client.images.get(tag).id), tag)
            except ImageNotFound:
                return None

    def _build(
        self,
        toolchain: Toolchain,
        text: str,
        args: Mapping[str, str],
        tag: str,
        log_path: Path,
        cancel: CancelToken,
    ) -> Image:
        output = ProcessOutput(log_path, None, 16 * 1024 * 1024)
        output.write(f"[building image {tag}]\n".encode())
        context = _context(f"{toolchain.name}.Dockerfile", text, toolchain.files)
        proxies = {name: os.environ[name] for name in _PROXIES if os.environ.get(name)}
        try:
            with translated():
                stream = self._docker.client.api.build(
                    fileobj=context,
                    custom_context=True,
                    encoding="identity",
                    dockerfile=f"{toolchain.name}.Dockerfile",
                    tag=tag,
                    buildargs={**proxies, **args},
                    labels={LABEL: toolchain.name},
                    rm=True,
                    forcerm=True,
                    decode=True,
                )
                _follow(CancellableStream(stream, self._docker.last_response()), output, cancel)
        finally:
            output.close()
        found = self._find(tag)
        if found is None:
            cause = f"the engine built {tag} but does not have it"
            raise Stopped(Failure(FailureKind.TRANSIENT, cause))
        return found


def host_ca() -> Path | None:
    """Return the bundle of certificates that this process was told to trust, if any."""
    for name in _CA_VARIABLES:
        path = Path(os.environ.get(name) or "/nonexistent")
        if path.is_file():
            return path
    return None


def _checked(toolchain: Toolchain, text: str) -> dict[str, str]:
    declared = set(_ARG.findall(text))
    for name in toolchain.args:
        if name not in declared:
            raise BadInputError(
                f"recipe: toolchain_args: {toolchain.name}.Dockerfile has no ARG {name}"
                + did_you_mean(name, declared),
                field="toolchain_args",
                value=name,
            )
    return dict(toolchain.args)


@contextlib.contextmanager
def _lock(path: Path, cancel: CancelToken) -> Iterator[None]:
    """Hold the lock of an image; waiting for another's build can be cancelled."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    while True:
        if cancel.cancelled:
            raise CancelledWork
        try:
            lock.acquire(timeout=POLL_SECONDS)
            break
        except Timeout:
            continue
    try:
        yield
    finally:
        lock.release()


def _context(dockerfile: str, text: str, files: Mapping[str, Path]) -> io.BytesIO:
    """Return the build context: the Dockerfile and what belongs beside it."""
    context = io.BytesIO()
    ca = host_ca()
    with tarfile.open(fileobj=context, mode="w") as archive:
        _add(archive, dockerfile, text.encode(), 0o644)
        for name, path in files.items():
            _add(archive, name, path.read_bytes(), 0o755)
        if ca is not None:
            _add(archive, "host-ca.crt", ca.read_bytes(), 0o644)
    context.seek(0)
    return context


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = mode
    archive.addfile(info, io.BytesIO(data))


def _follow(
    stream: CancellableStream[dict[str, Any]], output: ProcessOutput, cancel: CancelToken
) -> None:
    """Copy the log of an image's build until it ends; closing the stream makes the engine stop."""
    messages: queue.Queue[dict[str, Any] | Exception | None] = queue.Queue()
    reader = threading.Thread(target=_read_into, args=(stream, messages), daemon=True)
    reader.start()
    error = ""
    try:
        while True:
            if cancel.cancelled:
                raise CancelledWork
            try:
                message = messages.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            if message is None:
                break
            if isinstance(message, Exception):
                raise message
            output.write(_text(message).encode())
            error = str(message.get("error") or error)
    finally:
        with contextlib.suppress(OSError):
            stream.close()
        reader.join(POLL_SECONDS * 100)
    if error:
        output.write(f"{error}\n".encode())
        raise Stopped(_why(output.tail, error))


def _read_into(
    stream: CancellableStream[dict[str, Any]],
    messages: queue.Queue[dict[str, Any] | Exception | None],
) -> None:
    try:
        for message in stream:
            messages.put(message)
        messages.put(None)
    except Exception as error:  # handed on to the thread that waits for it
        messages.put(error)


def _text(message: Mapping[str, Any]) -> str:
    if "stream" in message:
        return str(message["stream"])
    if "status" in message and "progress" not in message:
        return f"{message['status']}\n"
    return ""


def _why(log: str, error: str) -> Failure:
    """Tell why an image does not build; no revision is to blame, for it serves all of them."""
    found = classify(log, otherwise=FailureKind.OURS, summary=error.strip())
    transient = found.kind is FailureKind.TRANSIENT
    return Failure(
        FailureKind.TRANSIENT if transient else FailureKind.OURS,
        f"the toolchain's image does not build: {found.cause}",
        found.lines,
        found.advice or "See the log, and docs/toolchains.md for what to put in base_image.",
    )
