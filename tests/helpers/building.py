"""Small repositories that really build, and requests to build them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.helpers.repositories import Workshop

from perfbisect.builder import BuilderSettings, RecipeBuilder, make_builder
from perfbisect.core.recipe import Recipe
from perfbisect.ports import BuildRequest, BuildSuccess, CancelToken, Failure

MAKE_WHEEL = '''\
"""Packs a library into a wheel: make_wheel.py LIBRARY DIRECTORY."""
import os, sys, zipfile

library, directory = sys.argv[1:]
info = "tiny-1.0.dist-info"
with zipfile.ZipFile(os.path.join(directory, "tiny-1.0-py3-none-any.whl"), "w") as wheel:
    def add(name, data):
        wheel.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    add("tiny/__init__.py", "")
    add("tiny/libkernel.so", open(library, "rb").read())
    add(info + "/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n")
    add(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    add(info + "/RECORD", "")
'''

KERNEL = """\
#include <cmath>

extern "C" double work(int n) {
  double sum = 0;
  for (int i = 1; i <= n; ++i) sum += std::sqrt(static_cast<double>(i));
  return sum;
}
"""

#: A workspace in the shape of TensorFlow's: Bazel builds a script, and the script writes the wheel.
WORKSPACE: Mapping[str, str] = {
    "WORKSPACE": 'workspace(name = "tiny")\n',
    "configure.py": "_TF_MIN_BAZEL_VERSION = '0.24.1'\n_TF_MAX_BAZEL_VERSION = '0.26.1'\n",
    "make_wheel.py": MAKE_WHEEL,
    "BUILD": 'exports_files(["make_wheel.py"])\n',
    "tensorflow/core/kernel.cc": KERNEL,
    "tensorflow/core/BUILD": (
        'cc_binary(name = "libkernel.so", srcs = ["kernel.cc"], linkshared = 1,\n'
        '          visibility = ["//visibility:public"])\n'
    ),
    "tensorflow/tools/pip_package/BUILD": (
        'sh_binary(name = "build_pip_package", srcs = ["build_pip_package.sh"],\n'
        '          data = ["//tensorflow/core:libkernel.so", "//:make_wheel.py"])\n'
    ),
    "tensorflow/tools/pip_package/build_pip_package.sh": (
        '#!/bin/sh\nset -eu\ncd "$0.runfiles/tiny"\n'
        'exec "$PYTHON_BIN_PATH" make_wheel.py tensorflow/core/libkernel.so "$1"\n'
    ),
}
_SCRIPT = "tensorflow/tools/pip_package/build_pip_package.sh"


def make_workspace(path: Path) -> Workshop:
    """Make a repository whose one commit is the workspace."""
    workshop = Workshop(path)
    for name, content in WORKSPACE.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (path / _SCRIPT).chmod(0o755)
    workshop.commit("A kernel and a wheel")
    return workshop


@dataclass
class Yard:
    """Directories of builds, and the builder that uses them."""

    path: Path
    settings: BuilderSettings = field(default_factory=BuilderSettings)
    #: Shared by yards that may share what they fetched; None: the yard's own.
    cache: Path | None = None
    #: Keeps what it keeps between builds; ``close`` removes that.
    builder: RecipeBuilder = field(init=False)

    def __post_init__(self) -> None:
        self.builder = make_builder(self.settings)

    def close(self) -> None:
        """Remove what the builder kept."""
        self.builder.close()

    def request(self, workshop: Workshop, recipe: Recipe, rev: str = "HEAD") -> BuildRequest:
        """Return a request to build a commit of the workshop."""
        work_id = f"test-{uuid.uuid4().hex}"
        work = self.path / "work" / work_id
        work.mkdir(parents=True)
        return BuildRequest(
            id=work_id,
            mirror=workshop.path / ".git",
            commit=workshop.git("rev-parse", rev),
            tree=workshop.tree(rev),
            recipe=recipe,
            work_dir=work,
            log_path=self.path / f"{work_id}.log",
            cache_dir=self.cache or self.path / "cache",
        )

    def build(self, request: BuildRequest, cancel: CancelToken | None = None) -> object:
        """Build; the result is a success or a failure."""
        return self.builder.build(request, cancel or CancelToken())

    def succeed(self, request: BuildRequest) -> BuildSuccess:
        """Build, and insist on a wheel."""
        result = self.build(request)
        assert isinstance(result, BuildSuccess), (result, log_of(request))
        return result

    def fail(self, request: BuildRequest) -> Failure:
        """Build, and insist on a failure."""
        result = self.build(request)
        assert isinstance(result, Failure), result
        return result


def log_of(request: BuildRequest) -> str:
    """Return the log of a build so far."""
    return request.log_path.read_text() if request.log_path.exists() else ""


def other_log(request: BuildRequest, log_path: Path) -> BuildRequest:
    """Return the request with its log elsewhere."""
    return replace(request, log_path=log_path)


def need(program: str) -> None:
    """Skip the test where a program is missing."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
