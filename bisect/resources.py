"""Where the files that travel with the package are, in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _beside_or_inside(name: str) -> Path:
    inside = _HERE / "_data" / name
    return inside if inside.is_dir() else _HERE.parent / name


def migrations_dir() -> Path:
    """Return the directory of Alembic's migrations."""
    return _beside_or_inside("migrations")


def dockerfiles_dir() -> Path:
    """Return the directory of Dockerfiles, one per toolchain."""
    return _beside_or_inside("dockerfiles")
