"""What a tree needs to be built, read from its own files: Bazel, target, toolchain, flag style.

Nothing here goes by a release table alone: development branches carry the number of a release for
months before and after it, so each fact is taken from the file that decides it, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PIP_PACKAGE = "tensorflow/tools/pip_package"

#: Paths, relative to the tree, that ``toolchain_facts`` looks at. Missing ones are no error.
TOOLCHAIN_FILES: tuple[str, ...] = (
    ".bazelversion",
    ".bazelrc",
    "tools/bazel.rc",
    "configure.py",
    "WORKSPACE",
    f"{_PIP_PACKAGE}/BUILD",
    f"{_PIP_PACKAGE}/setup.py",
    f"{_PIP_PACKAGE}/setup.py.tpl",
    "tensorflow/tf_version.bzl",
)

#: First TensorFlow version of each GPU toolchain, newest first; older ones use the last.
_ERAS: tuple[tuple[tuple[int, int], str], ...] = (
    ((2, 18), "tf-hermetic"),
    ((2, 15), "tf-clang-cuda12"),
    ((2, 4), "tf-cuda11"),
    ((2, 1), "tf-cuda10.1"),
    ((0, 0), "tf-cuda10.0"),
)

#: The same by Bazel version, for trees that do not tell their TensorFlow version.
_BAZEL_ERAS: tuple[tuple[tuple[int, int], str], ...] = (
    ((6, 5), "tf-hermetic"),
    ((6, 1), "tf-clang-cuda12"),
    ((3, 1), "tf-cuda11"),
    ((0, 27), "tf-cuda10.1"),
    ((0, 0), "tf-cuda10.0"),
)

#: Names of all toolchains that a tree's facts can give.
TOOLCHAINS = frozenset({"tf-cpu", *(name for _, name in _ERAS)})

_VERSION = re.compile(r"^\s*(?:_VERSION|TF_VERSION)\s*=\s*['\"](\d{1,9})\.(\d{1,9})", re.MULTILINE)
_PINNED = re.compile(r"^\s*(\d{1,9}\.\d{1,9}\.\d{1,9}\w{0,20})\s*$", re.MULTILINE)
_BAZEL_LIMIT = r"^_TF_{}_BAZEL_VERSION\s*=\s*['\"]([\d.]{{1,30}})['\"]"
_BAZEL_CHECK = re.compile(
    r"check_bazel_version\(\s*['\"]([\d.]{1,30})['\"](?:\s*,\s*['\"]([\d.]{1,30})['\"])?\s*\)"
)
_CONFIG = re.compile(r"^(?:build|common|test|run):([A-Za-z0-9_.-]+)\s", re.MULTILINE)
_RULE_NAME = re.compile(r"\bname\s*=\s*['\"]([A-Za-z0-9_.-]+)['\"]")


@dataclass(frozen=True, slots=True)
class ToolchainFacts:
    """What one tree says about its own build."""

    #: Exact Bazel version, or empty where the tree names none.
    bazel: str = ""
    #: Target that makes the wheel, or empty where the tree has none that we know.
    target: str = ""
    #: TensorFlow's version as the tree tells it, e.g. ``2.0``; empty: not told.
    tensorflow: str = ""
    #: Names of files in dockerfiles/ without ending: with CUDA, and without.
    gpu_toolchain: str = "tf-cuda10.0"
    cpu_toolchain: str = "tf-cpu"
    #: Names that ``--config=`` knows, from the tree's own rc files; empty: it has none.
    configs: frozenset[str] = frozenset()
    #: XLA is built in unless told otherwise, so that its define is not needed.
    xla_by_default: bool = False
    #: Python is chosen by ``--repo_env=HERMETIC_PYTHON_VERSION`` rather than ``--python_path``.
    hermetic_python: bool = False
    #: CUDA is downloaded and chosen by ``--repo_env=HERMETIC_CUDA_…`` rather than found on disk.
    hermetic_cuda: bool = False
    #: TensorRT can be built in.
    tensorrt: bool = True
    #: TensorFlow's API version if nothing is asked for: 1 or 2.
    api_default: int = 1
    #: The API is chosen by ``--config=v1`` and ``v2`` (the tree's rc file sets one of them).
    api_by_config: bool = False
    #: The API of version 1 can be built.
    api_v1: bool = True
    #: Oldest and newest Bazel that the tree accepts, as it says; empty: it does not say.
    bazel_range: tuple[str, str] = ("", "")
    #: Why each of these is so, for people: build log and pages.
    reasons: tuple[str, ...] = ()


def toolchain_facts(files: Mapping[str, str]) -> ToolchainFacts:
    """Read the facts of one tree.

    Args:
        files: path -> text, for those of ``TOOLCHAIN_FILES`` that the tree has.
    """
    rc = "\n".join(files.get(path, "") for path in (".bazelrc", "tools/bazel.rc"))
    bazel, bazel_why = _bazel_version(files)
    version, version_why = _tensorflow_version(files)
    hermetic_cuda = "HERMETIC_CUDA_VERSION" in rc
    gpu, gpu_why = _gpu_toolchain(version, bazel, hermetic_cuda)
    target, target_why = _target(files.get(f"{_PIP_PACKAGE}/BUILD", ""))
    xla = re.search(r"^build\s+--define[= ]with_xla_support=true", rc, re.MULTILINE) is not None
    python = any(
        mark in rc + files.get("WORKSPACE", "")
        for mark in ("HERMETIC_PYTHON_VERSION", "python_init_rules")
    )
    tensorrt = version is None or version < (2, 18)
    api = re.search(r"^build\s+--config=v([12])\b", rc, re.MULTILINE)
    configs = frozenset(_CONFIG.findall(rc))
    reasons = (
        bazel_why,
        version_why,
        gpu_why,
        target_why,
        f"XLA: {'on by default (.bazelrc)' if xla else 'only by --define=with_xla_support=true'}",
        f"Python: {'hermetic (WORKSPACE)' if python else 'by --python_path'}",
        f"API: {f'version {api[1]} by --config=v{api[1]} (.bazelrc)' if api else 'by define'}",
        *(() if tensorrt else ("TensorRT: support was removed in TensorFlow 2.18",)),
    )
    return ToolchainFacts(
        bazel=bazel,
        target=target,
        tensorflow=f"{version[0]}.{version[1]}" if version else "",
        gpu_toolchain=gpu,
        cpu_toolchain="tf-hermetic" if hermetic_cuda else "tf-cpu",
        configs=configs,
        xla_by_default=xla,
        hermetic_python=python,
        hermetic_cuda=hermetic_cuda,
        tensorrt=tensorrt,
        api_default=int(api[1]) if api else 1,
        api_by_config=api is not None,
        api_v1=api is None or "v1" in configs,
        bazel_range=_bazel_limits(files),
        reasons=reasons,
    )


def _bazel_version(files: Mapping[str, str]) -> tuple[str, str]:
    pinned = _PINNED.search(files.get(".bazelversion", ""))
    if pinned:
        return pinned[1], f"Bazel {pinned[1]}: .bazelversion"
    low, high = _bazel_limits(files)
    if low or high:
        return _within(low, high)
    return "", "Bazel: the tree names no version"


def _bazel_limits(files: Mapping[str, str]) -> tuple[str, str]:
    """Return the oldest and the newest Bazel that configure.py accepts; empty: it does not say."""
    configure = files.get("configure.py", "")
    low = re.search(_BAZEL_LIMIT.format("MIN"), configure, re.MULTILINE)
    high = re.search(_BAZEL_LIMIT.format("MAX"), configure, re.MULTILINE)
    checked = _BAZEL_CHECK.search(configure)
    if checked and not (low or high):
        return checked[1], checked[2] or ""
    return (low[1] if low else "", high[1] if high else "")


def _within(low: str, high: str) -> tuple[str, str]:
    """Choose the newest version allowed; a maximum such as ``3.99.0`` names none that exists."""
    exists = high and ".99" not in high
    chosen = high if exists else low
    return chosen, f"Bazel {chosen}: configure.py allows {low or 'any'} to {high or 'any'}"


def _tensorflow_version(files: Mapping[str, str]) -> tuple[tuple[int, int] | None, str]:
    for path in (
        "tensorflow/tf_version.bzl",
        f"{_PIP_PACKAGE}/setup.py",
        f"{_PIP_PACKAGE}/setup.py.tpl",
    ):
        found = _VERSION.search(files.get(path, ""))
        if found:
            version = int(found[1]), int(found[2])
            return version, f"TensorFlow {version[0]}.{version[1]}: {path}"
    return None, "TensorFlow: the tree tells no version"


def _gpu_toolchain(
    version: tuple[int, int] | None, bazel: str, hermetic_cuda: bool
) -> tuple[str, str]:
    if hermetic_cuda:
        return "tf-hermetic", "toolchain with CUDA: tf-hermetic (.bazelrc chooses CUDA itself)"
    if version is not None:
        name = next(name for first, name in _ERAS if version >= first)
        return name, f"toolchain with CUDA: {name} (TensorFlow {version[0]}.{version[1]})"
    if bazel:
        major, minor = (int(part) for part in bazel.split(".")[:2])
        name = next(name for first, name in _BAZEL_ERAS if (major, minor) >= first)
        return name, f"toolchain with CUDA: {name} (Bazel {bazel})"
    return "tf-cuda10.0", "toolchain with CUDA: tf-cuda10.0 (nothing in the tree tells its era)"


def _target(build_file: str) -> tuple[str, str]:
    names = set(_RULE_NAME.findall(build_file))
    for name in ("build_pip_package", "wheel"):
        if name in names:
            label = f"//{_PIP_PACKAGE}:{name}"
            return label, f"target {label}: {_PIP_PACKAGE}/BUILD has it"
    return "", f"target: {_PIP_PACKAGE}/BUILD names neither build_pip_package nor wheel"


def output_path(label: str) -> str:
    """Return where Bazel puts the output of a target: ``//a/b:c`` gives ``bazel-bin/a/b/c``."""
    package, _, name = label.rpartition("//")[2].partition(":")
    name = name or package.rpartition("/")[2]
    return "/".join(part for part in ("bazel-bin", package, name) if part)


def makes_script(label: str) -> bool:
    """Return whether the target is TensorFlow's script that must be run to write the wheel."""
    return label.endswith((":build_pip_package", "/build_pip_package"))
