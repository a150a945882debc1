"""How much may be fetched, for how long, and from which machines."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from perfbisect.addresses import CheckedHost, Resolve, check_host
from perfbisect.errors import BadInputError, PerfbisectError, TransientError
from perfbisect.units import format_duration, format_size

_FIELD = "repo"
_PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418}
#: ``[user@]host:path``
_SCP = re.compile(r"(?:[^@/]*@)?(?P<host>[^:/]+):.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fetching:
    """Bounds of fetching a repository."""

    #: Seconds that one clone or fetch may take.
    seconds: float = 6 * 3600.0
    #: Bytes that a mirror may take on the disk.
    size: int = 100 * 1024**3
    #: Bytes that are left free on the disk.
    keep_free: int = 0
    #: Hosts and networks inside that may be fetched from; None: any host, and redirects are
    #: followed as git does, because whoever names the repository is this machine's own user.
    inside: tuple[str, ...] | None = None
    #: (host, port) -> addresses; None: the machine's resolver.
    resolve: Resolve | None = field(default=None, compare=False)
    #: Seconds between two looks at what has come.
    look: float = 1.0


#: For whoever fetches for this machine's own user.
UNCHECKED = Fetching()


@dataclass(frozen=True, slots=True)
class Route:
    """What git is told so that it talks to the machine that was checked, and to no other."""

    url: str
    settings: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


def route(url: str, fetching: Fetching) -> Route:
    """Check the machine behind the URL of a repository; return how to get there.

    Raises:
        BadInputError: it is inside, and the settings don't allow that.
        TransientError: its name can't be resolved.
    """
    if fetching.inside is None:
        return Route(url)
    scheme, host, port = _machine(url)
    # A redirect could lead inside; so could a list of other places for objects.
    settings = {"http.followRedirects": "false"}
    if scheme in ("https", "http") and _behind_a_proxy(scheme, host):
        # The proxy resolves names, and is where it is decided who may be reached.
        return Route(url, settings)
    found = check_host(host, port, fetching.inside, fetching.resolve, field=_FIELD)
    if scheme in ("https", "http"):
        return Route(url, {**settings, "http.curloptResolve": f"{host}:{port}:{_shown(found)}"})
    if scheme == "git":
        direct = urlsplit(url)._replace(netloc=f"{_shown(found)}:{port}").geturl()
        return Route(direct, settings, {"GIT_OVERRIDE_VIRTUAL_HOST": f"{host}:{port}"})
    # ssh has names of its own (aliases, jumps), which its user's configuration resolves.
    return Route(url, settings)


def _machine(url: str) -> tuple[str, str, int]:
    if "://" not in url:
        found = _SCP.fullmatch(url)
        return "ssh", found["host"] if found else url, _PORTS["ssh"]
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme]


def _shown(found: CheckedHost) -> str:
    return f"[{found.address}]" if found.address.version == 6 else str(found.address)


def _behind_a_proxy(scheme: str, host: str) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        # Nothing is left to resolve: where this leads can be seen here.
        return False
    proxies = getproxies_environment()
    return bool(proxies.keys() & {scheme, "all"}) and not proxy_bypass(host)


class Watch:
    """Ends a git process that takes too long or brings too much; use ``with``."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        directory: Path,
        fetching: Fetching,
        end: Callable[[int], None],
    ) -> None:
        """Make one.

        Args:
            directory: what the process writes to.
            end: kills a process and everything below it.
        """
        self._process = process
        self._directory = directory
        self._fetching = fetching
        self._end = end
        self._deadline = time.monotonic() + fetching.seconds
        self._over = threading.Event()
        self._why: type[PerfbisectError] | None = None
        self._words = ""
        self._thread = threading.Thread(target=self._watch, name="fetching", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._why is None:
            # It may have been faster than we look.
            self._judge_size()

    def error(self, shown: str) -> PerfbisectError | None:
        """Return why the process was ended; None: it was not.

        Args:
            shown: the repository, for people.
        """
        if self._why is None:
            return None
        return self._why(f"repo: '{shown}' {self._words}", field=_FIELD, value=shown)

    def _watch(self) -> None:
        while not self._over.wait(self._fetching.look):
            self._judge()
            if self._why is not None:
                self._end(self._process.pid)
                return

    def _judge(self) -> None:
        bounds = self._fetching
        if time.monotonic() > self._deadline:
            self._why = TransientError
            limit = format_duration(bounds.seconds)
            self._words = f"took longer than {limit} to fetch (PERFBISECT_FETCH_HOURS)"
        elif shutil.disk_usage(self._directory.parent).free < bounds.keep_free:
            self._why = TransientError
            limit = format_size(bounds.keep_free)
            self._words = f"would leave less than {limit} of the disk (PERFBISECT_MIN_FREE_SPACE)"
        else:
            self._judge_size()

    def _judge_size(self) -> None:
        if size_of(self._directory) > self._fetching.size:
            self._why = BadInputError
            limit = format_size(self._fetching.size)
            self._words = f"is larger than {limit} (PERFBISECT_MAX_REPOSITORY_SIZE)"


def size_of(directory: Path) -> int:
    """Return the bytes that the files below a directory take; what goes meanwhile counts not."""
    size, waiting = 0, [str(directory)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in found:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
    return size


def unfinished(mirror: Path) -> Sequence[Path]:
    """Return what ended fetches left in a mirror, whose lock the caller holds."""
    return [*mirror.glob("objects/tmp_objdir-*"), *mirror.glob("objects/pack/tmp_*")]
