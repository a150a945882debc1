"""Checks of the programs that builds and runs are made with."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess

from uv import find_uv_bin

from perfbisect.checks import Check, Status, dotted

#: Merges of trees without a working copy came with it.
GIT_NEEDED = (2, 38)
PYTHON_NEEDED = (3, 11)

#: Seconds that a program may take to say its version.
PATIENCE = 10.0

_COMPILERS = ("gcc", "g++")


def parse_version(text: str) -> tuple[int, ...]:
    """Return the first dotted number in a text as numbers; empty where there is none."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def check_python() -> Check:
    """Look at the Python that runs this, and whether it can make environments."""
    version = platform.python_version()
    if parse_version(version) < PYTHON_NEEDED:
        advice = f"Install Python {dotted(PYTHON_NEEDED)} or newer."
        return Check("Python", Status.MISSING, version, advice, required=True)
    return Check("Python", Status.OK, version, required=True)


def check_git() -> Check:
    """Look for a git that merges trees without a working copy."""
    said = _say("git", "--version")
    version = parse_version(said)
    needed = dotted(GIT_NEEDED)
    if not said:
        advice = f"Install git {needed} or newer (Debian: apt-get install git)."
        return Check("git", Status.MISSING, "not on PATH", advice, required=True)
    if version < GIT_NEEDED:
        advice = f"Install git {needed} or newer: revisions are merged with 'git merge-tree'."
        return Check("git", Status.MISSING, dotted(version), advice, required=True)
    return Check("git", Status.OK, dotted(version), required=True)


def check_compiler() -> Check:
    """Look for a C and a C++ compiler, which local builds need."""
    found = {name: dotted(parse_version(_say(name, "-dumpfullversion"))) for name in _COMPILERS}
    lacking = [name for name, version in found.items() if not version]
    detail = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if lacking:
        advice = "For local builds of C and C++: apt-get install build-essential."
        return Check("compiler", Status.MISSING, detail or "no gcc, no g++", advice)
    return Check("compiler", Status.OK, detail)


def check_uv() -> Check:
    """Look for uv, which makes the environments that wheels are built and run in."""
    try:
        program = find_uv_bin()
    except FileNotFoundError:
        program = ""
    said = _say(program, "--version") if program else ""
    if not said:
        advice = "Reinstall perfbisect: uv comes with it."
        return Check("uv", Status.MISSING, "not found", advice, required=True)
    return Check("uv", Status.OK, dotted(parse_version(said)), required=True)


def check_npm() -> Check:
    """Look for npm, through which Bazel is fetched by version."""
    said = _say("npm", "--version")
    if not said:
        advice = "For Bazel of any version without Docker: apt-get install npm; else not needed."
        return Check("npm", Status.MISSING, "not on PATH", advice)
    return Check("npm", Status.OK, dotted(parse_version(said)))


def check_bazel() -> Check:
    """Look for a Bazel on PATH; none is needed where one is fetched or an image brings one."""
    for name in ("bazel", "bazelisk", "bazel-bootstrap"):
        path = shutil.which(name)
        if path:
            version = dotted(parse_version(_say(path, "--version")))
            return Check("Bazel", Status.OK, f"{version or 'version unknown'} ({path})")
    if shutil.which("npm"):
        return Check("Bazel", Status.OK, "none on PATH; fetched by version when a recipe needs it")
    advice = "For Bazel recipes without Docker: install Bazel, or npm to fetch it by version."
    return Check("Bazel", Status.MISSING, "not on PATH", advice)


def _say(program: str, *arguments: str) -> str:
    """Return what a program prints; empty where it is not there or fails."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
