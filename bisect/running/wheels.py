"""What a wheel says about itself, read without installing it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path, PurePosixPath

#: Names of top-level modules that import as Python names.
_MODULE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def importable_module(wheel: Path) -> str:
    """Return the module that the wheel is about, or an empty string where that can't be told.

    It is the top-level module whose name the distribution's name is, or starts with
    (``tensorflow`` of ``tensorflow_cpu``). Other modules may need what is not there: not tried.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return ""
    distribution = _plain(wheel.name.split("-", 1)[0])
    fits = [name for name in _top_level(names) if distribution.startswith(_plain(name))]
    return max(fits, key=len, default="")


def _top_level(names: list[str]) -> set[str]:
    """Return the packages and modules at the top of the wheel."""
    found = set()
    for name in names:
        path = PurePosixPath(name)
        if len(path.parts) == 2 and path.name == "__init__.py":
            found.add(path.parts[0])
        elif len(path.parts) == 1 and path.suffix in (".py", ".so"):
            found.add(path.name.split(".", 1)[0])
    return {name for name in found if _MODULE.fullmatch(name)}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]", "", name).lower()
