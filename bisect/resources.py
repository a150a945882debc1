"""Where the files are that stand at the top of a checkout and travel inside the package.

``_data/`` holds a symbolic link to each of these directories. setuptools copies what the links
point to into sdists and wheels, so the same path is right in a checkout, an editable and a normal
installation.
"""

from __future__ import annotations

from pathlib import Path

_DATA = Path(__file__).resolve().parent / "_data"


def migrations_dir() -> Path:
    """Return the directory of Alembic's migrations."""
    return (_DATA / "migrations").resolve()


def dockerfiles_dir() -> Path:
    """Return the directory of Dockerfiles, one per toolchain."""
    return (_DATA / "dockerfiles").resolve()
