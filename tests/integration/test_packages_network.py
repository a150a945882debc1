"""The machine's own package index: a real listing, a real wheel, real dependencies of a date."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from uv import find_uv_bin

from perfbisect.errors import NotFoundError
from perfbisect.packages import (
    WheelCache,
    as_of,
    dating_options,
    git_version_of,
    index_access,
    published,
    read_stamps,
)

pytestmark = pytest.mark.network


def uv(*arguments: str, stdin: str = "") -> str:
    """Run uv against the machine's index, and return what it prints."""
    done = subprocess.run(
        [find_uv_bin(), *arguments],
        env={**os.environ, **index_access().installer_variables()},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_small_wheel_is_listed_fetched_and_installed_as_of_its_day(tmp_path: Path) -> None:
    """A wheel of 2021 gets the dependencies of its day, but what a benchmark pins is taken."""
    access = index_access()
    found = published("jinja2", "3.0.0", "3.1.0")
    wheel = next(item for item in found.wheels if item.version == "3.0.3")
    moment = as_of(wheel)
    assert moment is not None
    assert moment.date() == date(2021, 11, 10)
    options = dating_options(moment, ["six==1.17.0"])  # of 2024
    python = tmp_path / "env" / "bin" / "python"
    uv("venv", "--python", sys.executable, str(tmp_path / "env"))
    with WheelCache(tmp_path / "wheels", access).hold(wheel) as path:
        uv("pip", "install", "--python", str(python), *options, str(path), "six==1.17.0")
    installed = uv("pip", "freeze", "--python", str(python)).splitlines()
    assert any(line.startswith(("jinja2 @ ", "jinja2==3.0.3")) for line in installed)
    assert "markupsafe==2.0.1" in installed
    assert "six==1.17.0" in installed


def test_tensorflow_of_2023_resolves_with_the_numpy_and_keras_of_2023() -> None:
    """tensorflow-cpu 2.14.0 as of October 2023 gets numpy 1.26 and keras 2.14, nothing newer."""
    dated = dating_options(datetime(2023, 10, 10, tzinfo=UTC))
    options = ["--python-version", "3.11", "--no-header", "--no-annotate", "--quiet", *dated]
    resolved = uv("pip", "compile", *options, "-", stdin="tensorflow-cpu==2.14.0\n").splitlines()
    assert "keras==2.14.0" in resolved
    assert [line for line in resolved if line.startswith("numpy==1.26.")]


def test_the_stamp_of_a_real_wheel_is_read_from_parts_and_from_the_whole(tmp_path: Path) -> None:
    """numpy says which commit it was built from, remotely and on disk alike."""
    access = index_access()
    cache = WheelCache(tmp_path, access)
    wheel = published("numpy", "1.26.3", "1.26.4").wheels[-1]
    stamp = read_stamps([wheel], access, cache)["1.26.4"]
    assert cache.usage().wheels == 0
    with cache.hold(wheel) as path:
        assert stamp is not None
        assert git_version_of(path) == stamp.git_version
    assert len(stamp.git_version) == 40


def test_a_project_that_is_not_there() -> None:
    """The real index's word for an unknown project is understood."""
    with pytest.raises(NotFoundError, match="has no project 'tensorflow-cpuu'"):
        published("tensorflow-cpuu", "1.0", "2.0")
