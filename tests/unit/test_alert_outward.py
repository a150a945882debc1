"""Webhooks are not led inside, whatever a name resolves to."""

from __future__ import annotations

import pytest

from perfbisect.alerting.outward import check_address, post
from perfbisect.errors import BadInputError, TransientError

from tests.helpers.alerting import receiving  # isort: skip


def answering(*addresses: str):  # type: ignore[no-untyped-def]
    """Return a resolver that gives these addresses for every name."""
    return lambda host, port: list(addresses)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.9",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "fe80::1%eth0",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "ff02::1",
    ],
)
def test_addresses_inside_are_refused(address: str) -> None:
    """Loopback, private, link-local, shared and wrapped ones: all inside, all refused."""
    with pytest.raises(BadInputError, match="PERFBISECT_OUTBOUND_ALLOWED"):
        check_address("https://hooks.example/x", (), answering(address))


def test_one_address_inside_is_enough() -> None:
    """A name with a public and a private address is refused: which one is taken is chance."""
    with pytest.raises(BadInputError):
        check_address("https://hooks.example/x", (), answering("93.184.216.34", "10.0.0.1"))


def test_public_addresses_are_taken_as_resolved() -> None:
    """The connection goes to the very address that was checked."""
    found = check_address("https://hooks.example/x", (), answering("93.184.216.34"))
    assert str(found.address) == "93.184.216.34"


@pytest.mark.parametrize("allowed", [("hooks.internal",), ("10.0.0.0/8",), ("10.1.2.3",)])
def test_what_is_allowed_is_taken_though_inside(allowed: tuple[str, ...]) -> None:
    """Hosts and networks of the settings are fine, without TLS too."""
    found = check_address("http://hooks.internal/x", allowed, answering("10.1.2.3"))
    assert str(found.address) == "10.1.2.3"


@pytest.mark.parametrize(
    "url",
    ["http://hooks.example/x", "ftp://hooks.example/x", "hooks.example", "https://", "https://a:b@c/",
     "file:///etc/passwd", "https://[::1"],
)  # fmt: skip
def test_other_addresses_are_refused(url: str) -> None:
    """Only https, without names and passwords in the address."""
    with pytest.raises(BadInputError):
        check_address(url, (), answering("93.184.216.34"))


def test_numbers_that_mean_this_machine_are_refused() -> None:
    """The machine's own resolver knows more spellings of loopback: they are seen through."""
    for host in ("127.1", "2130706433", "0x7f000001", "localhost"):
        with pytest.raises((BadInputError, TransientError)):
            check_address(f"https://{host}/", ())


def test_redirects_are_answers() -> None:
    """A receiver can't send the message elsewhere."""
    with receiving() as inbox:
        inbox.answers = [302]
        answer = post(inbox.url, b"{}", {}, allowed=("127.0.0.1",))
        assert answer.status == 302
        assert len(inbox.got) == 1


def test_nobody_there_is_worth_another_try() -> None:
    """A refused connection is a transient failure."""
    with receiving() as inbox:
        url = inbox.url
    with pytest.raises(TransientError):
        post(url, b"{}", {}, allowed=("127.0.0.1",))
