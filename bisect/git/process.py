"""Running git safely: a clean environment, no prompts, no hooks, no foreign configuration.

Nothing that a person typed reaches git as an option: revisions are checked here, refused when they
begin with ``-``, and follow ``--end-of-options`` or ``--`` wherever git takes them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import unicodedata
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from perfbisect.errors import BadInputError, InternalError, PerfbisectError, TransientError

#: ``merge-tree --write-tree`` came with it.
OLDEST_GIT = (2, 38)

#: Protocols that git may speak; ``ext`` and other transport helpers never are among them.
REMOTE_PROTOCOLS = ("https", "ssh", "http", "git")

#: Categories of characters that are no text: controls, formats (text that runs backwards), lone
#: surrogates, and ends of lines and paragraphs.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

#: Longest revision expression that is looked at, in characters.
LONGEST_REVISION = 500

Progress = Callable[[str], None]

_CONFIG: Mapping[str, str] = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    # Nothing is ever thrown away behind our back: old bisections refer to old commits.
    "gc.auto": "0",
    "maintenance.auto": "false",
    "i18n.logOutputEncoding": "UTF-8",
    "log.showSignature": "false",
    "diff.renames": "true",
    "advice.detachedHead": "false",
    # What a repository may say of itself never runs a program, here or where it is fetched from.
    "core.attributesFile": os.devnull,
    "core.pager": "cat",
    "protocol.ext.allow": "never",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    # Nothing is fetched from where the other side would like us to look.
    "transfer.bundleURI": "false",
    "fetch.uriProtocols": "",
    # A dead line is noticed: less than 1,000 bytes a second for a minute.
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "60",
}

#: Variables that reach git on the network: how to get there, never what to run on arrival.
_NETWORK_VARIABLES = frozenset(
    {"GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_PROXY_COMMAND", "GIT_SSL_CAINFO"}
)

_STDERR_KEPT = 64 * 1024

#: Seconds of processor time that a git process may take: histories and patterns can be made so that
#: it never comes to an end.
MOST_CPU = 1800
#: Bytes of memory that a git process may have, and no more than half of the machine's.
_MOST_MEMORY = 8 * 1024**3


class GitError(InternalError):
    """A git command failed in a way that its caller did not foresee."""

    def __init__(self, command: Sequence[str], returncode: int, stderr: str) -> None:
        lines = [line for line in stderr.strip().splitlines() if line.strip()]
        said = "; ".join(lines[-3:]) or "it said nothing"
        super().__init__(f"git {command[0] if command else ''} failed ({returncode}): {said}")
        self.command = tuple(command)
        self.returncode = returncode
        self.stderr = stderr


#: Parts of messages about this machine, whatever was asked of git.
_MACHINE = (
    "no space left on device",
    "disk quota exceeded",
    "input/output error",
    "cannot allocate memory",
    "out of memory",
)


def failure(command: Sequence[str], returncode: int, stderr: str) -> PerfbisectError:
    """Return the error of a failed git command: transient if this machine failed, not git."""
    error = GitError(command, returncode, stderr)
    if returncode == -signal.SIGXCPU:
        name = command[0] if command else ""
        said = f"git {name} was ended: it took more than {MOST_CPU} s of processor time"
        return TransientError(said)
    # A negative status is a signal: the out-of-memory killer, or somebody who wants us to end.
    if returncode < 0 or any(part in stderr.lower() for part in _MACHINE):
        return TransientError(error.message)
    return error


@dataclass(frozen=True, slots=True)
class Completed:
    """What a git command left behind."""

    returncode: int
    stdout: bytes
    stderr: str


@functools.cache
def git_version() -> tuple[int, int]:
    """Return the version of git on PATH.

    Raises:
        InternalError: there is no git, or one that is too old.
    """
    try:
        said = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InternalError("git was not found on PATH: install git 2.38 or newer") from error
    found = re.search(r"(\d+)\.(\d+)", said.stdout)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < OLDEST_GIT:
        raise InternalError(f"git 2.38 or newer is needed; this is {said.stdout.strip()}")
    return version


def environment(*, network: bool, allow_local: bool) -> dict[str, str]:
    """Return the environment for git.

    Args:
        network: keep the user's own configuration (credentials, proxies) and the ways to reach a
            server; everything else runs without them, so that answers do not depend on them.
        allow_local: let git read from other repositories of this machine.
    """
    chosen = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or (network and name in _NETWORK_VARIABLES)
    }
    for name in ("SSH_ASKPASS", "EDITOR", "VISUAL", "PAGER"):
        chosen.pop(name, None)
    protocols = (*REMOTE_PROTOCOLS, "file") if allow_local else REMOTE_PROTOCOLS
    chosen |= {
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        # What a repository lacks is not fetched from where it says.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": ":".join(protocols),
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "false",
        "GIT_ASKPASS": "false",
    }
    if not network:
        chosen |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
    return chosen


def as_config(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that carry configuration; unlike ``-c`` they show in no process list."""
    carried = {"GIT_CONFIG_COUNT": str(len(settings))}
    for index, (key, value) in enumerate(settings.items()):
        carried |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return carried


def limiting_prefix() -> list[str]:
    """Return the command that limits git and all its children before they begin; empty: none."""
    program = shutil.which("prlimit")
    if program is None:
        return []
    chosen = ((name, _lowered(kind, limits)) for name, kind, limits in _limits())
    return [program, *(f"--{name}={soft}:{hard}" for name, (soft, hard) in chosen), "--"]


def bound(pid: int) -> None:
    """Limit processor time and memory of a git process that has just begun.

    Cheaper than ``limiting_prefix``, for commands that do their work themselves. Where the kernel
    can't, or the process has ended already, nothing happens.
    """
    with contextlib.suppress(OSError, ValueError):
        for _, kind, limits in _limits():
            resource.prlimit(pid, kind, _lowered(kind, limits))


def _limits() -> list[tuple[str, int, tuple[int, int]]]:
    memory = _most_memory()
    return [
        ("cpu", resource.RLIMIT_CPU, (MOST_CPU, MOST_CPU + 30)),
        ("data", resource.RLIMIT_DATA, (memory, memory)),
        ("core", resource.RLIMIT_CORE, (0, 0)),
    ]


def _lowered(kind: int, limits: tuple[int, int]) -> tuple[int, int]:
    """Return limits that are no higher than our own: only root may raise those."""
    _, most = resource.getrlimit(kind)
    if most == resource.RLIM_INFINITY:
        return limits
    return min(limits[0], most), min(limits[1], most)


@functools.cache
def _most_memory() -> int:
    return int(min(_MOST_MEMORY, psutil.virtual_memory().total // 2))


def hides_something(text: str) -> bool:
    """Return whether text holds characters that control a terminal or turn what is shown around."""
    return any(unicodedata.category(letter) in _HIDDEN for letter in text)


def check_argument(text: str, field: str) -> str:
    """Return ``text`` if it can't be taken for an option or hide anything.

    Raises:
        BadInputError: it is empty, too long, begins with ``-`` or holds control characters.
    """
    if not text.strip():
        raise BadInputError(f"{field}: a revision is needed, got nothing", field=field, value=text)
    shown = text if text.isprintable() else repr(text)
    if len(text) > LONGEST_REVISION:
        raise BadInputError(
            f"{field}: a revision has at most {LONGEST_REVISION} characters, this has {len(text)}",
            field=field,
            value=text[:LONGEST_REVISION],
        )
    if text.startswith("-"):
        raise BadInputError(
            f"{field}: '{shown}' begins with '-', which no revision does; "
            "give a commit, a branch or a tag",
            field=field,
            value=text,
        )
    if hides_something(text):
        raise BadInputError(
            f"{field}: {shown} holds control characters, which no revision does",
            field=field,
            value=text,
        )
    return text


class Git:
    """Git commands on one repository (or on none, with ``git_dir`` None)."""

    def __init__(
        self,
        git_dir: Path | None,
        *,
        network: bool = False,
        allow_local: bool = True,
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        git_version()
        self._prefix = ["git"] if git_dir is None else ["git", f"--git-dir={git_dir}"]
        self.environment = environment(network=network, allow_local=allow_local)
        self.environment |= as_config({**_CONFIG, **(settings or {})})
        self.environment |= variables or {}

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the whole command line."""
        return [*self._prefix, *arguments]

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        ok: tuple[int, ...] = (0,),
        cwd: Path | None = None,
    ) -> Completed:
        """Run to the end and return everything.

        Raises:
            GitError: the exit status is not among ``ok``.
            TransientError: the disk or the memory is full.
        """
        with subprocess.Popen(
            self.command(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=cwd,
        ) as process:
            bound(process.pid)
            try:
                stdout, said = process.communicate(stdin)
            except BaseException:
                process.kill()
                raise
        stderr = said.decode("utf-8", "replace")
        if process.returncode not in ok:
            raise failure(arguments, process.returncode, stderr)
        return Completed(process.returncode, stdout, stderr)

    def text(self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> str:
        """Run and return standard output as text without the trailing newline."""
        done = self.run(*arguments, stdin=stdin, cwd=cwd)
        return done.stdout.decode("utf-8", "replace").rstrip("\n")

    def tokens(self, *arguments: str) -> Generator[bytes, None, None]:
        """Yield the NUL-terminated tokens of standard output as they come.

        Raises:
            GitError: once the output is through, if the exit status is not 0.
        """
        # A file for standard error: nothing blocks, however much git has to say there.
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                self.command(arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                env=self.environment,
            )
            bound(process.pid)
            try:
                yield from _split_nul(process)
            finally:
                _reap(process)
            if process.returncode != 0:
                said.seek(0)
                stderr = said.read(_STDERR_KEPT).decode("utf-8", "replace")
                raise failure(arguments, process.returncode, stderr)

    def head(self, *arguments: str, limit: int) -> tuple[bytes, bool]:
        """Return at most ``limit`` bytes of standard output, and whether there was more."""
        process = subprocess.Popen(
            self.command(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment,
        )
        bound(process.pid)
        assert process.stdout is not None
        try:
            found = process.stdout.read(limit + 1)
        finally:
            if process.poll() is None and len(found) > limit:
                process.kill()
            process.stdout.close()
            process.wait()
        return found[:limit], len(found) > limit


def _split_nul(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    assert process.stdout is not None
    rest = b""
    while chunk := process.stdout.read(1 << 16):
        *whole, rest = (rest + chunk).split(b"\0")
        yield from whole
    if rest:
        yield rest


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Leave no process behind, also when the reader stopped early."""
    assert process.stdout is not None
    process.stdout.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
