"""A base image for tests: Debian, made by debootstrap where no image can be pulled."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from perfbisect.containers import Docker
from perfbisect.errors import TransientError

TAG = "perfbisect-test-base:bookworm"
_SUITE = "bookworm"


def need_docker() -> None:
    """Skip the test, with the reason, where no engine answers."""
    reason = _no_docker()
    if reason:
        pytest.skip(reason)


def need_base_image() -> str:
    """Return the tag of the base image, made now if need be; skip where that can't be."""
    need_docker()
    reason = _make_base()
    if reason:
        pytest.skip(reason)
    return TAG


@functools.cache
def _no_docker() -> str:
    try:
        with Docker():
            return ""
    except TransientError as error:
        return error.message


@functools.cache
def _make_base() -> str:
    """Make the image unless it is there; return why it can't be made, or nothing."""
    if (
        subprocess.run(
            ["docker", "image", "inspect", TAG], capture_output=True, check=False
        ).returncode
        == 0
    ):
        return ""
    if os.geteuid() != 0:
        return f"making {TAG} with debootstrap needs root"
    if shutil.which("debootstrap") is None:
        return f"there is no image {TAG}, and debootstrap is not installed to make it"
    mirror = _mirror()
    if not mirror:
        return "this machine's apt sources name no Debian mirror"
    with tempfile.TemporaryDirectory(prefix="perfbisect-base-") as root:
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", _SUITE, root, mirror],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            return f"debootstrap failed: {made.stdout[-500:]}{made.stderr[-500:]}"
        command = f'tar -C "{root}" --numeric-owner -cf - . | docker import - "{TAG}"'
        subprocess.run(["sh", "-ec", command], capture_output=True, check=True)
    return ""


def _mirror() -> str:
    """Return the Debian mirror that this machine's own packages come from."""
    sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    for path in sources:
        text = path.read_text() if path.is_file() else ""
        for line in text.splitlines():
            found = re.match(
                r"(?:URIs:|deb(?:\s+\[[^\]]*\])?)\s+(https?://\S+/debian)/?(?:\s|$)", line
            )
            if found:
                return found[1]
    return ""
