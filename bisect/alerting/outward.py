"""Posting to addresses that people configured, without being led inside.

An address is resolved once, every address behind it is checked, and the connection goes to the one
that was checked: what a name resolves to a moment later does not matter. Redirects are answers,
they are not followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx

from perfbisect.addresses import Address, Resolve, check_host
from perfbisect.errors import BadInputError, TransientError

#: Seconds for each part of a request.
TIMEOUT = 10.0
#: Bytes of an answer that are read: for the reason of a refusal.
_MOST_ANSWER = 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver said."""

    status: int
    #: The beginning of its text.
    text: str


@dataclass(frozen=True, slots=True)
class Checked:
    """An address that may be posted to, and the machine it stands for."""

    url: httpx.URL
    address: Address


def check_address(url: str, allowed: Sequence[str], resolve: Resolve | None = None) -> Checked:
    """Resolve an address and refuse those that lead inside.

    Args:
        allowed: host names and networks (``10.1.0.0/16``) that are fine although they are inside;
            only these may be reached without TLS.
        resolve: (host, port) -> addresses as text; None: the machine's resolver.

    Raises:
        BadInputError: it is no address, or leads to loopback, link-local, private or other
            addresses that are not of the public Internet.
        TransientError: its name can't be resolved.
    """
    parsed = _parsed(url)
    host = parsed.host
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    checked = check_host(host, port, allowed, resolve)
    if parsed.scheme != "https" and not checked.known:
        raise BadInputError(
            f"{parsed.scheme}://{host} is not encrypted: use https", field="url", value=host
        )
    return Checked(parsed, checked.address)


def post(
    url: str,
    content: bytes,
    headers: Mapping[str, str],
    *,
    allowed: Sequence[str] = (),
    resolve: Resolve | None = None,
) -> Answer:
    """Post to a checked address, and say what came back.

    Raises:
        BadInputError: as ``check_address``.
        TransientError: nobody answered.
    """
    target = check_address(url, allowed, resolve)
    host = target.url.host
    netloc = target.url.netloc.decode("ascii")
    # The machine that was checked, under its name: for its certificate and for virtual hosts.
    direct = target.url.copy_with(host=str(target.address))
    try:
        with (
            # No proxy of the environment: it would resolve the name once more.
            httpx.Client(timeout=TIMEOUT, follow_redirects=False, trust_env=False) as client,
            client.stream(
                "POST",
                direct,
                content=content,
                headers={**headers, "host": netloc},
                extensions={"sni_hostname": host},
            ) as response,
        ):
            text = b""
            for chunk in response.iter_bytes(_MOST_ANSWER):
                text += chunk
                if len(text) >= _MOST_ANSWER:
                    break
            shown = text[:_MOST_ANSWER].decode("utf-8", "replace").replace("\x00", "")
            return Answer(response.status_code, shown)
    except httpx.HTTPError as error:
        raise TransientError(f"{host}: {type(error).__name__}: {error}"[:300]) from error


def _parsed(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise BadInputError("url: not an address like https://host/path", field="url") from error
    if parsed.scheme not in ("https", "http") or not parsed.host:
        raise BadInputError("url: not an address like https://host/path", field="url")
    if parsed.userinfo:
        raise BadInputError("url: names and passwords don't belong into an address", field="url")
    return parsed
