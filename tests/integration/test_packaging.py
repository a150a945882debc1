"""What stands at the top of the checkout travels with the package, however it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfbisect.config import PRESETS_DIR
from perfbisect.resources import dockerfiles_dir, migrations_dir

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("bisect", "src", "migrations", "dockerfiles", "pyproject.toml", "README.md", "LICENSE")
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, links kept, so that building leaves nothing in the real one."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=IGNORED)
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


def build(kind: str, source: Path, out: Path) -> Path:
    """Build a wheel or an sdist with the setuptools that is installed, and return the file."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(out)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.iterdir())


def travelling() -> set[str]:
    """The files that every wheel must hold."""
    return {
        *(f"perfbisect/_data/dockerfiles/{path.name}" for path in dockerfiles_dir().iterdir()),
        *(
            f"perfbisect/_data/migrations/{path.relative_to(migrations_dir())}"
            for path in migrations_dir().rglob("*.py")
        ),
        "perfbisect/_data/migrations/script.py.mako",
        *(
            f"perfbisect/presets/{path.relative_to(PRESETS_DIR)}"
            for path in PRESETS_DIR.rglob("*")
            if path.suffix in (".py", ".toml")
        ),
    }


def names(wheel: Path) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive:
        yield from archive.namelist()


def test_checkout_has_the_directories_at_the_top() -> None:
    """In a checkout (an editable installation) the links lead to the top-level directories."""
    assert dockerfiles_dir() == ROOT / "dockerfiles"
    assert migrations_dir() == ROOT / "migrations"
    assert (migrations_dir() / "env.py").is_file()


def test_wheel_from_checkout(checkout: Path, tmp_path: Path) -> None:
    """A wheel built from the checkout holds Dockerfiles and migrations, and no stray caches."""
    found = set(names(build("wheel", checkout, tmp_path / "wheel")))
    assert travelling() <= found
    assert not [name for name in found if "__pycache__" in name]


def test_wheel_from_sdist(checkout: Path, tmp_path: Path) -> None:
    """A wheel built from the unpacked sdist holds the same files as one from the checkout."""
    sdist = build("sdist", checkout, tmp_path / "sdist")
    shutil.unpack_archive(sdist, tmp_path / "unpacked", filter="data")
    source = next((tmp_path / "unpacked").iterdir())
    direct = set(names(build("wheel", checkout, tmp_path / "direct")))
    assert set(names(build("wheel", source, tmp_path / "wheel"))) == direct


def test_installed_wheel_finds_its_files(checkout: Path, tmp_path: Path) -> None:
    """From an unpacked wheel, away from the checkout, both directories are found and full."""
    wheel = build("wheel", checkout, tmp_path / "wheel")
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    script = (
        "import perfbisect.resources as r, sys; "
        "print((r.migrations_dir() / 'env.py').is_file(), any(r.dockerfiles_dir().iterdir()))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, 'site'); {script}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "True"]
