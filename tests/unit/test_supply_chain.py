"""What is installed, shipped and audited: versions, digests, licences, a bill of materials."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
#: Lock file -> what it locks.
LOCKS = {
    "requirements.lock": PROJECT["dependencies"],
    "requirements-dev.lock": [*PROJECT["dependencies"], *EXTRAS["dev"], *EXTRAS["postgresql"]],
}


def entries(name: str) -> Iterator[tuple[Requirement, list[str]]]:
    """Yield each locked requirement with the digests of its files."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    for line in filter(None, text.splitlines()):
        said, *digests = re.split(r"\s+--hash=", line)
        yield Requirement(said), [each.strip() for each in digests]


def pins(name: str) -> dict[str, set[Version]]:
    """Return name -> versions, of which environment markers may choose one."""
    found: dict[str, set[Version]] = {}
    for requirement, _ in entries(name):
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        versions = found.setdefault(canonicalize_name(requirement.name), set())
        versions.add(Version(specifier.version))
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_every_dependency_is_locked_and_fits(name: str) -> None:
    """What pyproject.toml asks for is locked, at versions that it accepts (`make lock`)."""
    locked = pins(name)
    wanted = [Requirement(text) for text in LOCKS[name]]
    missing = [each.name for each in wanted if canonicalize_name(each.name) not in locked]
    assert missing == []
    unfit = [
        f"{each} is locked at {version}"
        for each in wanted
        for version in locked[canonicalize_name(each.name)]
        if not each.specifier.contains(version, prereleases=True)
    ]
    assert unfit == []


@pytest.mark.parametrize("name", LOCKS)
def test_every_file_has_its_digest_and_no_address(name: str) -> None:
    """Each locked version has SHA-256 digests; no index, mirror or direct URL is named."""
    bare = [str(each) for each, digests in entries(name) if not digests]
    assert bare == []
    assert all(
        re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
        for _, digests in entries(name)
        for digest in digests
    )
    text = (ROOT / name).read_text()
    assert not re.search(r"://|^--|^-[a-z]|@ ", text, re.MULTILINE)


def test_both_locks_agree() -> None:
    """Tests run on the versions that users get."""
    used, tested = pins("requirements.lock"), pins("requirements-dev.lock")
    assert {name: tested.get(name) for name in used} == used


def test_the_bill_of_materials_lists_what_is_locked(tmp_path: Path) -> None:
    """A release's CycloneDX document names every locked component with version and digests."""
    target = tmp_path / "perfbisect.cdx.json"
    command = [
        sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "requirements.lock",
        "--pyproject", "pyproject.toml", "--output-format", "JSON", "--output-file", str(target),
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    document = json.loads(target.read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == "perfbisect"
    listed: dict[str, set[Version]] = {}
    for component in document["components"]:
        listed.setdefault(component["name"], set()).add(Version(component["version"]))
        assert component["externalReferences"][0]["hashes"]
    assert listed == pins("requirements.lock")


def test_an_audit_that_can_not_be_made_says_so() -> None:
    """Without a way to the service nothing fails, and nobody is told that all is well."""
    nowhere = {
        **os.environ,
        "https_proxy": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    done = subprocess.run(
        [ROOT / "scripts/audit", Path(sys.prefix)],
        env=nowhere,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("not audited") == 2, done.stdout + done.stderr


def test_licences_travel_along() -> None:
    """The project's licence is named and there, and so is that of every vendored file."""
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    vendor = ROOT / "bisect/web/static/vendor"
    listed = json.loads((vendor / "vendored.json").read_text())["files"]
    licensed = {entry["package"] for entry in listed if entry["file"].endswith(".LICENSE")}
    assert licensed == {entry["package"] for entry in listed}
