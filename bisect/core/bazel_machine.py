"""Flags of Bazel that concern the machine and not the wheel, as each version spells them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfbisect.errors import BadInputError

#: From this version on, memory and cores have options of their own.
_RESOURCES_APART = (0, 23)
#: From this version on, every resource is named in one option.
_RESOURCES_NAMED = (8, 0)
#: From this version on, ``--remote_cache`` takes http as well.
_REMOTE_BY_URL = (0, 26)

#: Addresses of a remote cache that Bazel understands.
_REMOTE = re.compile(r"(?:https?|grpcs?)://[A-Za-z0-9.\[\]:_-]+(?:/[A-Za-z0-9._~/%-]*)?")

_MEGABYTE = 1024 * 1024
#: Share of a container's memory that compilers may plan with: Bazel itself needs the rest.
_FOR_COMPILERS = 0.75


@dataclass(frozen=True, slots=True)
class Machine:
    """What builds on this machine share and are bounded by."""

    #: Address of a cache that several machines share (``http://…`` or ``grpc://…``); empty: none.
    remote_cache: str = ""
    #: Directories of archives as the build sees them.
    distdirs: tuple[str, ...] = ()
    #: Bytes of memory that the build may use; 0: as much as there is.
    memory: int = 0
    #: Cores that the build may use; 0: all.
    cpus: float = 0.0


def machine_flags(version: str, machine: Machine) -> tuple[str, ...]:
    """Return the options of ``bazel build`` for a machine.

    Args:
        version: of Bazel; empty: not known, taken for a recent one.
        machine: caches and limits.
    """
    number = version_number(version)
    return (
        *(f"--distdir={path}" for path in machine.distdirs),
        *_remote_cache(number, machine.remote_cache),
        *_resources(number, machine),
    )


def version_number(version: str) -> tuple[int, int]:
    """Return major and minor of a version of Bazel; of none, those of a recent one."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (7, 0)


def check_remote_cache(address: str, field: str = "remote_cache") -> None:
    """Refuse what can't be the address of a remote cache.

    Raises:
        BadInputError: names the field, the value and what would be right.
    """
    if address and not _REMOTE.fullmatch(address):
        raise BadInputError(
            f"{field} = {address!r}: give an address like http://cache.example.org:8080 or "
            "grpc://cache.example.org:9092, without user and password",
            field=field,
            value=address,
        )


def _remote_cache(number: tuple[int, int], address: str) -> tuple[str, ...]:
    if not address:
        return ()
    http = address.startswith("http")
    if number < _REMOTE_BY_URL:
        option = f"--remote_http_cache={address}" if http else f"--remote_cache={_bare(address)}"
    else:
        option = f"--remote_cache={address}"
    return (option,)


def _bare(address: str) -> str:
    """Return ``host:port``, which is all that old versions take for gRPC."""
    return address.partition("://")[2].partition("/")[0]


def _resources(number: tuple[int, int], machine: Machine) -> tuple[str, ...]:
    memory = int(machine.memory * _FOR_COMPILERS) // _MEGABYTE
    cores = max(1, int(machine.cpus)) if machine.cpus else 0
    if number < _RESOURCES_APART:
        # One option for all three, so it can only be given where both are known.
        return (f"--local_resources={memory},{cores},1.0",) if memory and cores else ()
    names = (
        ("--local_resources=memory=", "--local_resources=cpu=")
        if number >= _RESOURCES_NAMED
        else ("--local_ram_resources=", "--local_cpu_resources=")
    )
    values = zip(names, (memory, cores), strict=True)
    return tuple(f"{name}{value}" for name, value in values if value)
