"""Wheels of Python projects, built by uv against requirements of the commit's date."""

from __future__ import annotations

import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version
from tests.helpers.building import Yard, log_of, need
from tests.helpers.repositories import Workshop

from perfbisect.core.python_releases import requirements_date
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.states import FailureKind

pytestmark = pytest.mark.network

PIP = Recipe(name="pip", kind=RecipeKind.PIP_WHEEL, docker=False)
PYPROJECT = """\
[build-system]
requires = ["setuptools", "wheel"]
build-backend = "setuptools.build_meta"
"""
SETUP = """\
import setuptools
print("setuptools is", setuptools.__version__)
setuptools.setup(
    name="tiny", version="1.0", ext_modules=[setuptools.Extension("tiny", ["tiny.c"])]
)
"""
EXTENSION = """\
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tiny"};
PyMODINIT_FUNC PyInit_tiny(void) { return PyModule_Create(&module); }
"""


@pytest.fixture
def yard(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Yard:
    need("gcc")
    return Yard(tmp_path / "yard", cache=tmp_path_factory.getbasetemp() / "pip-cache")


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    workshop = Workshop(tmp_path / "repository")
    files = {"setup.py": SETUP, "pyproject.toml": PYPROJECT, "tiny.c": EXTENSION}
    workshop.commit("A project", files)
    return workshop


def setuptools_of(log: str) -> Version:
    found = re.search(r"setuptools is (\S+)", log)
    assert found, log
    return Version(found[1])


def test_requirements_are_as_old_as_commit_and_python_allow(yard: Yard, workshop: Workshop) -> None:
    """A commit of 2019 is built with the setuptools of the day its Python came out, not of now."""
    then, now = yard.request(workshop, PIP), yard.request(workshop, replace(PIP, as_of="now"))
    result = yard.succeed(then)
    yard.succeed(now)
    assert setuptools_of(log_of(then)) < setuptools_of(log_of(now))
    date = requirements_date(int(workshop.git("show", "-s", "--format=%ct")), sys.version_info[:2])
    assert f"--exclude-newer {date.isoformat()}" in result.environment["commands"][0]
    with zipfile.ZipFile(result.path) as wheel:
        assert any(name.endswith(".so") for name in wheel.namelist())


def test_requirements_of_now_with_pins(yard: Yard, workshop: Workshop) -> None:
    """With as_of = now the pins of the recipe decide."""
    chosen = replace(PIP, as_of="now", build_requirements=("setuptools==68.0.0",))
    request = yard.request(workshop, chosen)
    yard.succeed(request)
    assert "setuptools is 68.0.0" in log_of(request)


def test_project_in_a_subdirectory(yard: Yard, tmp_path: Path) -> None:
    """The project may live below the top of the repository."""
    workshop = Workshop(tmp_path / "repository")
    files = {"setup.py": SETUP, "pyproject.toml": PYPROJECT, "tiny.c": EXTENSION}
    workshop.commit("Below", {f"python/pkg/{name}": text for name, text in files.items()})
    result = yard.succeed(yard.request(workshop, replace(PIP, subdirectory="python/pkg")))
    assert result.path.name.startswith("tiny-1.0-")


def test_requirement_that_did_not_exist_yet_is_permanent(yard: Yard, workshop: Workshop) -> None:
    """A requirement that can't be met yet skips the revision, and the failure says as of when."""
    newer = PYPROJECT.replace('"wheel"', '"wheel>=99"')
    workshop.commit("Ask for the future", {"pyproject.toml": newer})
    failure = yard.fail(yard.request(workshop, PIP))
    assert failure.kind is FailureKind.PERMANENT
    assert "as of the commit's date" in failure.cause


def test_extension_that_does_not_compile_is_permanent(yard: Yard, workshop: Workshop) -> None:
    """The compiler's lines are told, not the traceback of the build backend."""
    workshop.commit("Break", {"tiny.c": EXTENSION.replace("&module", "&modul")})
    failure = yard.fail(yard.request(workshop, PIP))
    assert failure.kind is FailureKind.PERMANENT
    assert "tiny.c, line 3" in failure.cause


def test_missing_header_is_permanent(yard: Yard, workshop: Workshop) -> None:
    """A header that is not there is named."""
    workshop.commit("Include", {"tiny.c": f'#include "not/there.h"\n{EXTENSION}'})
    failure = yard.fail(yard.request(workshop, PIP))
    assert failure.kind is FailureKind.PERMANENT
    assert "not/there.h" in failure.cause


def test_dead_index_is_transient(yard: Yard, workshop: Workshop) -> None:
    """An index that can't be reached is tried again later."""
    env = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    failure = yard.fail(yard.request(workshop, replace(PIP, env=env)))
    assert failure.kind is FailureKind.TRANSIENT
    assert failure.cause == "the network failed"
