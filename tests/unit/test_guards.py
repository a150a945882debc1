"""What keeps the layout and the promises about it in place."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "bisect"

#: The folder itself is called like a module of the standard library on purpose (it is no package,
#: so it can't shadow it), and these stand inside packages of ours, where nothing can be shadowed.
_SHADOWS_NOTHING = frozenset({"__main__", "__init__"})


def test_the_folder_is_no_package() -> None:
    """`bisect/` has no `__init__.py`: with one it would shadow the standard library's `bisect`."""
    assert PACKAGE.is_dir()
    assert not (PACKAGE / "__init__.py").exists()


def test_subfolders_are_packages() -> None:
    """Every folder with modules below `bisect/` is a regular package, so that all of it ships."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    # Scripts of benchmarks are data: they are copied out, never imported.
    data = {"_data", "files", "presets"}
    ours = [path for path in folders if not data & set(path.parts)]
    assert [str(path) for path in ours if not (path / "__init__.py").exists()] == []


def test_the_import_name_is_a_link() -> None:
    """`src/perfbisect` is a relative link to `bisect/`, as it is in a clone."""
    link = ROOT / "src" / "perfbisect"
    assert link.is_symlink()
    assert link.readlink() == Path("../bisect")


@pytest.mark.parametrize("module", ["random", "bisect", "tempfile", "statistics"])
def test_the_standard_library_works_from_the_root(module: str) -> None:
    """With the root first on the path, the standard library still gets its own `bisect`."""
    script = f"import {module}, bisect; assert bisect.bisect([1, 2], 1) == 1"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True)


def test_nothing_is_named_after_the_standard_library() -> None:
    """No module of ours has the name of a standard module, which readers would mistake it for."""
    names = {path.stem for path in PACKAGE.rglob("*.py") if "_data" not in path.parts}
    assert sorted(names & sys.stdlib_module_names - _SHADOWS_NOTHING) == []


def test_nothing_is_named_after_a_dependency() -> None:
    """No top-level module of ours has the name of a package that our code imports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies = {
        requirement.split("[")[0].split(">")[0].split("=")[0].strip().replace("-", "_")
        for requirement in project["dependencies"]
    }
    names = {path.stem for path in PACKAGE.glob("*")}
    assert sorted(names & dependencies) == []


def test_import_contracts() -> None:
    """The import contracts of pyproject.toml hold: core is pure, layers point one way."""
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_ci_runs_what_people_run() -> None:
    """CI's entry does nothing but `make test`, and both it and its helpers can be executed."""
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[-1] == "exec make test"
    for path in (ROOT / ".ci" / "run", *(ROOT / "scripts").iterdir()):
        assert path.stat().st_mode & 0o111, path
