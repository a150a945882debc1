"""perfbisect.building.artifacts: what a build leaves behind."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from perfbisect.building.artifacts import NoResultError, result_of, sha256_of


def make(root: Path, order: list[str]) -> Path:
    for name in order:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def test_the_wheel_wins(tmp_path: Path) -> None:
    """A wheel is the result, whatever else lies beside it."""
    out = make(tmp_path, ["a-1-py3-none-any.whl", "log.txt"])
    assert result_of(out, epoch=0).name == "a-1-py3-none-any.whl"


def test_archive_depends_on_content_only(tmp_path: Path) -> None:
    """Order of creation, times and umask do not change the archive's bytes."""
    names = ["artifacts/b/x", "artifacts/a", "artifacts/run"]
    one, two = make(tmp_path / "one", names), make(tmp_path / "two", names[::-1])
    for root in (one, two):
        (root / "artifacts/run").chmod(0o755)
    os.utime(two / "artifacts/a", (1, 1))
    (two / "artifacts/a").chmod(0o600)
    first, second = (result_of(root, epoch=1_500_000_000) for root in (one, two))
    assert sha256_of(first) == sha256_of(second)
    with tarfile.open(first) as archive:
        modes = {member.name: oct(member.mode) for member in archive.getmembers()}
    assert modes == {"a": "0o644", "b/x": "0o644", "run": "0o755"}


def test_nothing_is_an_error(tmp_path: Path) -> None:
    """An empty output directory is no result."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoResultError, match="neither a wheel nor artifacts"):
        result_of(tmp_path, epoch=0)


def test_several_wheels_are_an_error(tmp_path: Path) -> None:
    """Two wheels are named, for nobody can tell which is meant."""
    make(tmp_path, ["a.whl", "deep/b.whl"])
    with pytest.raises(NoResultError, match=r"2 wheels \(a.whl, b.whl\)"):
        result_of(tmp_path, epoch=0)
