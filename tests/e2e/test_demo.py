"""The demo from an installed wheel, in an empty environment and an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from perfbisect.checks import Status
from perfbisect.checks.services import check_index

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("bisect", "src", "migrations", "dockerfiles", "pyproject.toml", "README.md", "LICENSE")

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the checkout."""
    copy, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", f"--outdir={out}"]
    done = subprocess.run([*command, copy], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.iterdir())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` directory of an environment that holds the wheel and what it depends on."""
    if check_index(30.0).status is not Status.OK:
        pytest.skip("the package index does not answer, so nothing can be installed")
    venv = tmp_path_factory.mktemp("venv")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    done = subprocess.run(
        [uv, "pip", "install", "--quiet", f"--python={venv / 'bin' / 'python'}", wheel],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return venv / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder to work in."""
    empty = tmp_path / "folder"
    empty.mkdir()
    return empty


def run(
    program: Path, *arguments: str, folder: Path, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a program without anything of this checkout in its environment."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PERFBISECT_", "PYTHON", "VIRTUAL_ENV"))
    }
    environment["PATH"] = f"{program.parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_every_file_of_the_package_travels(wheel: Path) -> None:
    """Whatever git tracks below `bisect/` is in the wheel: templates, presets, the demo."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "bisect"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tracked = [Path(name) for name in listed.stdout.split("\0") if name]
    wanted = {
        f"perfbisect/{path.relative_to('bisect')}"
        for path in tracked
        if (ROOT / path).is_file() and not (ROOT / path).is_symlink()
    }
    with zipfile.ZipFile(wheel) as archive:
        assert sorted(wanted - set(archive.namelist())) == []


def test_the_command_is_there(installed: Path, folder: Path) -> None:
    """The installed command runs, and the API can be imported, away from the checkout."""
    helped = run(installed / "perfbisect", "--help", folder=folder)
    assert helped.returncode == 0, helped.stderr
    assert "demo" in helped.stdout
    script = "import perfbisect.api as a, random; print(a.__file__)"
    imported = run(installed / "python", "-c", script, folder=folder)
    assert imported.returncode == 0, imported.stderr
    assert "site-packages" in imported.stdout


def test_the_database_is_there(installed: Path, folder: Path) -> None:
    """The migrations travel with the wheel: an installed command makes its own database."""
    option = f"--data-dir={folder / 'data'}"
    assert run(installed / "perfbisect", "db", "upgrade", option, folder=folder).returncode == 0
    assert run(installed / "perfbisect", "db", "check", option, folder=folder).returncode == 0


@pytest.mark.timeout(1200)
def test_the_demo_finds_what_is_known(installed: Path, folder: Path) -> None:
    """`perfbisect demo` names exactly the known steps, each verified, and leaves the evidence."""
    done = run(installed / "perfbisect", "demo", "--json", folder=folder, timeout=1100)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["outcome"] == "culprits"
    assert verdict["demo"]["as_expected"] is True
    assert len(verdict["culprits"]) == len(verdict["demo"]["steps"])
    assert all(culprit["verified"] for culprit in verdict["culprits"])
    rollback = next(c for c in verdict["culprits"] if c["kind"] == "recovery")
    assert rollback["relations"] != []
    # The evidence can be exported from what the demo left.
    option = f"--data-dir={folder / 'perfbisect-data'}"
    exported = run(installed / "perfbisect", "export", verdict["id"], option, folder=folder)
    own = [line for line in exported.stdout.splitlines() if verdict["id"] in line]
    assert len(own) == verdict["points"]
