"""What a person may name as a repository, and how git is told about it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from perfbisect.errors import BadInputError
from perfbisect.git.process import REMOTE_PROTOCOLS, Git, GitError, hides_something

_FIELD = "repo"

#: ``transport::address``, which makes git run a helper program.
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
#: ``[user@]host:path``, which git takes for ssh.
_SCP = re.compile(r"(?P<host>[^/:\s-][^/:\s]*):(?P<path>[^:\s].*)")


#: Longest path or URL that is looked at, in characters.
LONGEST_SOURCE = 4000

#: Why a URL with a password or token is refused, and what to do instead.
CREDENTIALS = (
    "it holds credentials, which would be stored and shown; leave them out, and have git find "
    "them: by a credential helper (git config --global credential.helper …), or an ssh key"
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a mirror's commits come from."""

    #: What git is given: a URL or the absolute path of a git directory.
    url: str
    #: For people and logs: without credentials.
    shown: str
    #: On this machine's disk.
    local: bool

    @property
    def name(self) -> str:
        """Name of the mirror's directory: readable, and different for different sources."""
        tail = re.sub(r"(/\.git|\.git)?/*$", "", self.shown).rpartition("/")[2].rpartition(":")[2]
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", tail).strip("-")[:40] or "repository"
        return f"{slug}-{hashlib.sha256(self.shown.encode()).hexdigest()[:12]}.git"


def parse_source(source: str | Path, *, allow_local: bool) -> Source:
    """Tell a local repository from a URL, and refuse what git should never be given.

    Raises:
        BadInputError: no repository there, or of a kind that is not accepted.
    """
    text = str(source)
    if not text or text.startswith("-") or hides_something(text):
        raise _refuse(repr(text), "give the path or the URL of a git repository")
    if len(text) > LONGEST_SOURCE:
        raise _refuse(f"{text[:80]}…", f"it is longer than {LONGEST_SOURCE} characters")
    if isinstance(source, Path):
        return _local(source, allow_local)
    if _HELPER.match(text):
        raise _refuse(text, "transport helpers are not accepted; give an https or ssh URL")
    if "://" in text:
        return _from_url(text, allow_local)
    path = Path(text)
    if _exists(path.expanduser()) or _SCP.fullmatch(text) is None:
        return _local(path.expanduser(), allow_local)
    return Source(url=text, shown=text, local=False)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # A name that no file system takes.
        return False


def known_source(url: str) -> Source:
    """Return the source whose ``url`` was parsed before, without looking whether it is still there.

    Its mirror may serve old bisections long after the repository itself has moved or vanished.
    """
    local = url.startswith("/")
    return Source(url=url, shown=url if local else _without_password(url), local=local)


def _from_url(text: str, allow_local: bool) -> Source:
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError as error:
        raise _refuse(repr(text), f"it is not a URL ({error})") from error
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise _refuse(text, "a file URL names no other host; write file:///path")
        return _local(Path(parts.path), allow_local)
    if parts.scheme not in REMOTE_PROTOCOLS:
        known = ", ".join(REMOTE_PROTOCOLS)
        raise _refuse(_without_password(text), f"'{parts.scheme}' is not one of {known}")
    if not host or host.startswith("-"):
        raise _refuse(_without_password(text), "the URL names no host")
    if holds_credentials(text):
        raise _refuse(_without_password(text), CREDENTIALS)
    return Source(url=text, shown=_without_password(text), local=False)


def _local(path: Path, allow_local: bool) -> Source:
    if not allow_local:
        raise _refuse(str(path), "paths on the server's disk are not accepted; give a URL")
    if not _exists(path):
        raise _refuse(str(path), "there is no such file or directory")
    if not path.is_dir():
        raise _refuse(str(path), "it is not a directory, so not a git repository")
    git_dir = _git_dir(path)
    _refuse_partial_clone(git_dir, path)
    return Source(url=str(git_dir), shown=str(git_dir), local=True)


def _git_dir(path: Path) -> Path:
    """Return the git directory that holds the objects: the main one, also for a worktree."""
    git = Git(None, network=True)
    try:
        found = git.text("rev-parse", "--git-common-dir", cwd=path)
    except GitError as error:
        if "dubious ownership" in error.stderr:
            raise _refuse(
                str(path),
                "it belongs to another user, and git reads such repositories only when told to: "
                f"git config --global --add safe.directory {path.resolve()}",
            ) from error
        raise _refuse(str(path), "it is not a git repository") from error
    return (path / found).resolve()


def _refuse_partial_clone(git_dir: Path, path: Path) -> None:
    pattern = r"^(extensions\.partialclone|remote\..*\.promisor)$"
    found = Git(git_dir).run("config", "--includes", "--get-regexp", pattern, ok=(0, 1))
    if found.returncode == 0:
        raise _refuse(
            str(path),
            "it is a partial clone, so old commits can't be built from it; "
            "complete it (git fetch --refetch --no-filter) or give the URL of its origin",
        )


def holds_credentials(text: str) -> bool:
    """Return whether a URL holds what should be secret: a password, or a user of http."""
    try:
        parts = urlsplit(text)
        return parts.password is not None or bool(
            parts.scheme in ("http", "https") and parts.username
        )
    except ValueError:
        return False


def _without_password(url: str) -> str:
    """Return the URL without its user part, which may be a token."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    user, _, host = parts.netloc.rpartition("@")
    keep = f"{user}@" if parts.scheme == "ssh" and ":" not in user else ""
    return urlunsplit(parts._replace(netloc=keep + host))


def _refuse(shown: str, why: str) -> BadInputError:
    return BadInputError(f"{_FIELD}: can't use '{shown}': {why}", field=_FIELD, value=shown)
