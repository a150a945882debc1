"""perfbisect.core.bazel_machine: what Bazel is told of the machine, as each version spells it."""

from __future__ import annotations

import pytest

from perfbisect.core.bazel_machine import Machine, check_remote_cache, machine_flags
from perfbisect.errors import BadInputError

GIGABYTE = 1024**3


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.21.0", ("--local_resources=12288,4,1.0",)),
        ("0.24.1", ("--local_ram_resources=12288", "--local_cpu_resources=4")),
        ("6.5.0", ("--local_ram_resources=12288", "--local_cpu_resources=4")),
        ("8.0.1", ("--local_resources=memory=12288", "--local_resources=cpu=4")),
        ("", ("--local_ram_resources=12288", "--local_cpu_resources=4")),
    ],
)
def test_limits_are_spelt_as_the_version_knows_them(version: str, flags: tuple[str, ...]) -> None:
    """Three quarters of the container's memory go to compilers, and all of its cores."""
    assert machine_flags(version, Machine(memory=16 * GIGABYTE, cpus=4.0)) == flags


@pytest.mark.parametrize(
    ("version", "address", "flags"),
    [
        ("0.24.1", "http://cache:8080", ("--remote_http_cache=http://cache:8080",)),
        ("0.24.1", "grpc://cache:9092/", ("--remote_cache=cache:9092",)),
        ("0.26.1", "http://cache:8080", ("--remote_cache=http://cache:8080",)),
        ("4.2.3", "grpcs://cache:9092", ("--remote_cache=grpcs://cache:9092",)),
        ("4.2.3", "", ()),
    ],
)
def test_remote_cache(version: str, address: str, flags: tuple[str, ...]) -> None:
    """An address becomes the option of its time; none becomes nothing."""
    assert machine_flags(version, Machine(remote_cache=address)) == flags


def test_old_versions_need_both_limits() -> None:
    """Before each limit had its own option, half of them can't be told."""
    assert machine_flags("0.21.0", Machine(cpus=2.0)) == ()


def test_each_directory_of_archives_is_named() -> None:
    """Archives that share a name lie in directories of their own, and Bazel looks into each."""
    flags = machine_flags("0.26.1", Machine(distdirs=("/d", "/d/0123")))
    assert flags == ("--distdir=/d", "--distdir=/d/0123")


@pytest.mark.parametrize(
    "address", ["cache:8080", "http://user:secret@cache", "ftp://cache", "http://a b", "http://"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    """A cache that Bazel would not understand, or with a password in it, is refused."""
    with pytest.raises(BadInputError) as caught:
        check_remote_cache(address)
    assert caught.value.field == "remote_cache"
