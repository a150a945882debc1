"""Which machines this one may talk to when somebody else chooses them.

A name is resolved once, every address behind it is checked, and the connection goes to one that was
checked: what the name resolves to a moment later does not matter.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfbisect.errors import BadInputError, TransientError

#: IPv4 inside IPv6, as translators write it.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: (host, port) -> addresses as text.
Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class CheckedHost:
    """A machine that may be talked to."""

    #: The address to talk to, of those that were checked.
    address: Address
    #: Named in the settings, or in a network that is.
    known: bool


def is_loopback(bind: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(bind.strip("[]")).is_loopback
    except ValueError:
        return bind.lower() == "localhost"


def check_host(
    host: str,
    port: int,
    allowed: Sequence[str],
    resolve: Resolve | None = None,
    *,
    field: str = "url",
) -> CheckedHost:
    """Resolve a host and refuse one that is inside.

    Args:
        allowed: host names and networks (``10.1.0.0/16``) that are fine although they are inside.
        resolve: (host, port) -> addresses as text; None: the machine's resolver.

    Raises:
        BadInputError: it is loopback, link-local, private or otherwise not of the public Internet.
        TransientError: its name can't be resolved.
    """
    named = host.lower() in {each.lower() for each in allowed}
    addresses = [_address(each) for each in (resolve or _resolve)(host, port)]
    if not addresses:
        raise TransientError(f"{host} has no address", field=field)
    networks = _networks(allowed)
    inside = [each for each in addresses if not _is_public(each)]
    known = named or all(_within(each, networks) for each in addresses)
    if inside and not (named or all(_within(each, networks) for each in inside)):
        raise BadInputError(
            f"{host} is {inside[0]}, which is not of the public Internet: "
            "PERFBISECT_OUTBOUND_ALLOWED lists what may be reached nevertheless",
            field=field,
            value=host,
        )
    return CheckedHost(addresses[0], known)


def _resolve(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise TransientError(f"{host} can't be resolved: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _address(text: str) -> Address:
    """Return an address; IPv4 that is wrapped in IPv6 counts as what it is."""
    found = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return found
    if found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def _is_public(address: Address) -> bool:
    inner: Address | None = None
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        elif address.sixtofour is not None:
            inner = address.sixtofour
        elif address.teredo is not None:
            inner = address.teredo[1]
    if inner is not None and not _is_public(inner):
        return False
    return address.is_global and not address.is_multicast


def _networks(allowed: Sequence[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    found = []
    for each in allowed:
        try:
            found.append(ipaddress.ip_network(each, strict=False))
        except ValueError:
            continue
    return found


def _within(
    address: Address, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]
) -> bool:
    return any(address in network for network in networks)
