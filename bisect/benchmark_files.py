"""The files of a benchmark: found, hashed into its identity, and copied to where it runs."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from perfbisect.core.recipe import Benchmark
from perfbisect.errors import BadInputError

#: What Python and editors leave in a directory of scripts; never part of a benchmark.
_IGNORED = frozenset({"__pycache__", ".git", ".DS_Store"})


def hash_files(benchmark: Benchmark, base: Path, where: str = "benchmark") -> dict[str, str]:
    """Return relative path -> SHA-256 of each of the benchmark's files, those of rules included.

    A directory stands for every file below it.

    Raises:
        BadInputError: a file is missing, can't be read, or lies outside of ``base``.
    """
    found = _expand(benchmark.all_files, base, where)
    return {name: _sha256(path, where) for name, path in found.items()}


def files_of(benchmark: Benchmark, known: Iterable[str]) -> list[str]:
    """Return those of the known file paths that are a benchmark's: named, or below a named one."""
    named = [PurePosixPath(name) for name in benchmark.files]
    return [path for path in known if any(PurePosixPath(path).is_relative_to(n) for n in named)]


def copy_files(benchmark: Benchmark, base: Path, target: Path) -> None:
    """Copy the benchmark's files below ``target``, as they lie below ``base``.

    Raises:
        BadInputError: a file is missing, can't be read, or lies outside of ``base``.
        OSError: ``target`` can't be written.
    """
    for name, path in _expand(benchmark.files, base, "benchmark").items():
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def _expand(names: Iterable[str], base: Path, where: str) -> dict[str, Path]:
    root = base.resolve()
    found: dict[str, Path] = {}
    for name in names:
        path = root / name
        for file in _below(path) if path.is_dir() else [path]:
            if not file.resolve().is_relative_to(root):
                message = f"{where}: files: '{name}' leads outside of {base}"
                raise BadInputError(message, field="files", value=name)
            if not file.is_file():
                message = f"{where}: files: '{name}' is not in {base}"
                raise BadInputError(message, field="files", value=name)
            found[str(PurePosixPath(file.relative_to(root)))] = file
    return dict(sorted(found.items()))


def _below(directory: Path) -> list[Path]:
    files = (path for path in sorted(directory.rglob("*")) if not path.is_dir())
    return [path for path in files if not _IGNORED & set(path.relative_to(directory).parts)]


def _sha256(path: Path, where: str) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        message = f"{where}: files: '{path}' can't be read: {error.strerror}"
        raise BadInputError(message, field="files", value=str(path)) from error
