"""Finding the Bazel of a version: given by the recipe, on PATH, or installed from npm."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from perfbisect.building.failures import classify
from perfbisect.building.place import Stopped
from perfbisect.core.states import FailureKind
from perfbisect.ports import CancelledWork, CancelToken, Failure
from perfbisect.processes import ProcessResult, run_process

#: npm package with Bazel's binary for Linux on x86-64; it goes up to 2.1.0.
NPM_PACKAGE = "@bazel/bazel-linux_x64"

#: In place of a path: the Bazel that the toolchain's image has.
OF_IMAGE = "image"

_LABEL = re.compile(r"Build label: (\d+\.\d+\.\d+[\w.]*)")
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.-]*")


@dataclass(frozen=True, slots=True)
class BazelBinary:
    """A Bazel that said its version itself."""

    path: Path
    version: str


class BazelBinaries:
    """Finds Bazel by version, and keeps what it fetched in a cache directory."""

    def __init__(self, cache: Path, marker: str) -> None:
        self._cache = cache
        self._marker = marker

    def find(self, version: str, given: str, cancel: CancelToken) -> BazelBinary:
        """Return a Bazel of exactly this version.

        Args:
            version: wanted; empty: any.
            given: path of a binary that the recipe names; empty: looked for.
            cancel: asks for the end.

        Raises:
            Stopped: there is none.
            CancelledWork: the token asked for the end.
        """
        if version and not _VERSION.fullmatch(version):
            raise _nothing(f"'{version}' is no version of Bazel", "Give e.g. 0.26.1, or 'auto'.")
        if given:
            return self._given(Path(given), version, cancel)
        for path in _on_path(version):
            said = self._version(path, cancel)
            if said and version in ("", said):
                return BazelBinary(path, said)
        if not version:
            cause = "the tree names no version of Bazel, and there is no bazel on PATH"
            raise _nothing(cause, "Set the recipe's bazel, e.g. bazel = '0.26.1'.")
        return self._from_npm(version, cancel)

    def _given(self, path: Path, version: str, cancel: CancelToken) -> BazelBinary:
        said = self._version(path, cancel)
        if not said:
            raise _nothing(f"bazel_binary '{path}' does not run", "Give the path of a Bazel.")
        if version and said != version:
            cause = f"bazel_binary '{path}' is Bazel {said}, and {version} is wanted"
            raise _nothing(cause, "Leave bazel_binary out, or set bazel to its version.")
        return BazelBinary(path, said)

    def _from_npm(self, version: str, cancel: CancelToken) -> BazelBinary:
        home = self._cache / "bazel" / "binaries" / version
        if shutil.which("npm") is None:
            raise _nothing(f"there is no Bazel {version} on this machine", _advice(version))
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock"):
            found = _binary_in(home)
            if found is None:
                self._npm_install(version, home, cancel)
                found = _binary_in(home)
            if found is None:
                raise _nothing(f"npm's Bazel {version} holds no binary", _advice(version))
            said = self._version(found, cancel)
            if said != version:
                shutil.rmtree(found.parent, ignore_errors=True)
                cause = f"npm's Bazel {version} says it is '{said}'"
                raise Stopped(Failure(FailureKind.TRANSIENT, cause))
        return BazelBinary(found, version)

    def _npm_install(self, version: str, home: Path, cancel: CancelToken) -> None:
        command = ["npm", "install", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund"]
        done = run_process(
            [*command, "--prefix", str(home), f"{NPM_PACKAGE}@{version}"],
            cwd=home,
            env=dict(os.environ),
            timeout=1800.0,
            cancel=cancel,
            marker=self._marker,
        )
        _stop_if_cancelled(done)
        if not done.ok:
            shutil.rmtree(home / "node_modules", ignore_errors=True)
            failure = classify(
                done.tail,
                otherwise=FailureKind.OURS,
                summary=f"there is no Bazel {version} on this machine, and npm has none",
            )
            kept = failure.advice or _advice(version)
            raise Stopped(Failure(failure.kind, failure.cause, failure.lines, kept))

    def _version(self, path: Path, cancel: CancelToken) -> str:
        """Return the version a binary says it has, or an empty string if it can't tell."""
        scratch = self._cache / "bazel" / "version"
        scratch.mkdir(parents=True, exist_ok=True)
        known = scratch / _identity(path)
        if known.exists():
            return known.read_text()
        done = run_process(
            [str(path), "--batch", f"--output_user_root={scratch}/root", "version"],
            cwd=scratch,
            env={"HOME": str(scratch), "PATH": os.environ.get("PATH", ""), "USER": "builder"},
            timeout=300.0,
            cancel=cancel,
            marker=self._marker,
        )
        _stop_if_cancelled(done)
        said = version_said(done.tail) if done.ok else ""
        if said:
            temporary = known.with_name(f"{known.name}.{os.getpid()}")
            temporary.write_text(said)
            temporary.replace(known)
        return said


def version_said(text: str) -> str:
    """Return the version in what ``bazel version`` prints, or an empty string."""
    label = _LABEL.search(text)
    return label[1] if label else ""


def _on_path(version: str) -> Iterator[Path]:
    for name in (f"bazel-{version}" if version else "", "bazel"):
        found = shutil.which(name) if name else None
        if found is not None:
            yield Path(found)


def _identity(path: Path) -> str:
    """Return a file name that changes when the binary does."""
    try:
        status = path.stat()
    except OSError:
        return "missing"
    name = str(path.resolve()).strip("/").replace("/", "-")[-120:]
    return f"{name}-{status.st_size}-{status.st_mtime_ns}"


def _binary_in(home: Path) -> Path | None:
    package = home / "node_modules" / NPM_PACKAGE
    return next(iter(sorted(package.glob("bazel-*-linux-x86_64"))), None)


def _stop_if_cancelled(done: ProcessResult) -> None:
    if done.cancelled:
        raise CancelledWork


def _advice(version: str) -> str:
    return (
        f"Put it on PATH as bazel-{version}, name it in the recipe's bazel_binary, or install npm "
        "(which has Bazel up to 2.1.0)."
    )


def _nothing(cause: str, advice: str) -> Stopped:
    return Stopped(Failure(FailureKind.OURS, cause, advice=advice))
