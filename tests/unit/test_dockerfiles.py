"""The Dockerfiles: what every one of them must hold to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfbisect.building.failures import patterns
from perfbisect.core.toolchain import TOOLCHAINS
from perfbisect.resources import dockerfiles_dir

FILES = sorted(dockerfiles_dir().glob("*.Dockerfile"))
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def text(request: pytest.FixtureRequest) -> str:
    path: Path = request.param
    return path.read_text("utf-8")


def header(text: str) -> str:
    return "\n".join(line for line in text.partition("ARG BASE_IMAGE")[0].splitlines() if line)


def instructions(text: str) -> list[str]:
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    return [" ".join(line.split()) for line in joined.splitlines() if line.strip()]


def test_every_toolchain_has_its_file() -> None:
    """Each name that a tree's facts can give is a file here."""
    assert {*TOOLCHAINS, "python"} == {path.stem for path in FILES}


def test_header_says_what_it_serves_and_takes(text: str) -> None:
    """The header comment says which commits it serves, and explains each argument."""
    said = header(text)
    assert "# Serves:" in said
    for name in re.findall(r"^ARG ([A-Z0-9_]+)", text, flags=re.MULTILINE):
        assert re.search(rf"^#   {name}\b", said, flags=re.MULTILINE), name


def test_ends_as_an_ordinary_user(text: str) -> None:
    """The image's user is the builder, number 10001, and nothing is installed after that."""
    last = instructions(text)[-3:]
    assert last[0].startswith("RUN useradd --uid 10001 ")
    assert last[1:] == ["USER builder", "WORKDIR /build/src"]


def test_builds_with_the_oldest_engine(text: str) -> None:
    """Nothing needs BuildKit: no mounts, no heredocs, no syntax line."""
    assert "--mount" not in text
    assert "<<" not in text
    assert "# syntax" not in text


def test_layers_carry_no_package_lists_and_no_recommendations(text: str) -> None:
    """apt updates and cleans up in the layer that installs, and installs no recommendations."""
    for line in instructions(text):
        if "apt-get install" in line:
            assert line.startswith("RUN")
            assert "apt-get update" in line
            assert line.count("--no-install-recommends") == line.count("apt-get install")
            assert "rm -rf /var/lib/apt/lists/*" in line


def test_nothing_is_fetched_unchecked(text: str) -> None:
    """What comes by URL is checked against a digest in the same layer; ADD fetches nothing."""
    for line in instructions(text):
        assert not line.startswith("ADD")
        if "curl" in line and "--output" in line:
            assert "sha256sum -c" in line


def test_no_secrets(text: str) -> None:
    """No argument or variable carries a secret into the image's history."""
    assert not re.search(r"(?i)(ARG|ENV)\s+\S*(token|password|secret|key)", text)


def test_base_is_an_argument(text: str) -> None:
    """Every stage starts from BASE_IMAGE, so that a base that has gone can be replaced."""
    stages = [line for line in instructions(text) if line.startswith("FROM")]
    assert stages
    assert all(line.startswith("FROM ${BASE_IMAGE}") for line in stages)


def test_documented(text: str) -> None:
    """docs/toolchains.md names the file."""
    names = {path.stem for path in FILES if path.read_text("utf-8") == text}
    documented = (ROOT / "docs" / "toolchains.md").read_text("utf-8")
    assert all(f"`{name}`" in documented for name in names)


def test_failures_are_documented() -> None:
    """docs/toolchains.md has a row for every entry of the table of failures."""
    documented = (ROOT / "docs" / "toolchains.md").read_text("utf-8")
    for entry in patterns():
        assert f"| `{entry.name}` | {entry.kind} |" in documented
