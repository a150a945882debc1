"""What a build costs that changes little: perfbisect against Bazel itself in a warm checkout.

Makes a Bazel workspace of several hundred C++ targets, two adjacent commits apart, and measures

1. bare: `bazel build` in a checkout whose server is warm, after `git checkout` of the second;
2. ours: the whole path of the builder (image, tree, container, Bazel, script, wheel) for that
   commit, after it has built the first;
3. an already built tree: how many containers a second bisection of it starts, and how many
   builds two bisections that ask for the same trees start.

    python benchmarks/builds.py --base-image debian:bookworm [--targets 300] [--rounds 5]

Needs Docker, an image with apt, npm and network for Bazel 0.26.1, and g++.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from perfbisect.builder import BuilderSettings, RecipeBuilder, make_builder
from perfbisect.building.bazel_binaries import BazelBinaries
from perfbisect.conductor import Conductor
from perfbisect.config import recipe_to_dict
from perfbisect.containers import LABEL, Docker
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.engines.local import LocalEngine
from perfbisect.history import open_mirror
from perfbisect.ports import (
    BuildRequest,
    BuildSuccess,
    CancelToken,
    Failure,
    HostInfo,
    RunRequest,
    RunSuccess,
)
from perfbisect.request_models import BisectionRequest
from perfbisect.services import Services
from perfbisect.settings import Settings
from perfbisect.submission import submit

BAZEL = "0.26.1"
TARGET = "//tensorflow/tools/pip_package:build_pip_package"
#: One target of so many includes the header which each commit changes.
SHARE = 20

_MAKE_WHEEL = """\
import glob, os, sys, zipfile
info = "tiny-1.0.dist-info"
with zipfile.ZipFile(os.path.join(sys.argv[1], "tiny-1.0-py3-none-any.whl"), "w") as wheel:
    def add(name, data):
        wheel.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    add("tiny/all.so", open("all/liball.so", "rb").read())
    add(info + "/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n")
    add(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    add(info + "/RECORD", "")
"""

#: What a target compiles: one that is seldom compiled again, and one that each commit touches.
_SMALL = """\
#include "{header}"
namespace kernel_{number} {{ int work(int n) {{ return n * FACTOR + {number}; }} }}
"""
_LARGE = """\
#include <algorithm>
#include <map>
#include <string>
#include <vector>
#include "{header}"
namespace kernel_{number} {{
int work(int n) {{
  std::map<std::string, std::vector<int>> table;
  for (int i = 0; i < n; ++i) table[std::to_string(i % 7)].push_back(i * FACTOR);
  int sum = {number};
  for (auto& entry : table) {{
    std::sort(entry.second.begin(), entry.second.end());
    for (int value : entry.second) sum += value;
  }}
  return sum;
}}
}}
"""


def workspace(targets: int, factor: int) -> Iterator[tuple[str, str]]:
    """Yield path and content of every file; ``factor`` is what the second commit changes."""
    yield "WORKSPACE", 'workspace(name = "tiny")\n'
    yield ".bazelversion", f"{BAZEL}\n"
    yield "BUILD", 'exports_files(["make_wheel.py"])\n'
    yield "make_wheel.py", _MAKE_WHEEL
    yield (
        "common/BUILD",
        (
            'package(default_visibility = ["//visibility:public"])\n'
            'cc_library(name = "calm", hdrs = ["calm.h"])\n'
            'cc_library(name = "touched", hdrs = ["touched.h"])\n'
        ),
    )
    yield "common/calm.h", "#define FACTOR 3\n"
    yield "common/touched.h", f"#define FACTOR {factor}\n"
    for number in range(targets):
        touched = number % SHARE == 0
        name = "touched" if touched else "calm"
        yield (
            f"kernels/k{number}/BUILD",
            f'cc_library(name = "k{number}", srcs = ["k{number}.cc"], deps = ["//common:{name}"],\n'
            '    alwayslink = 1, visibility = ["//visibility:public"])\n',
        )
        yield (
            f"kernels/k{number}/k{number}.cc",
            (_LARGE if touched else _SMALL).format(header=f"common/{name}.h", number=number),
        )
    deps = ", ".join(f'"//kernels/k{number}"' for number in range(targets))
    yield (
        "all/BUILD",
        (
            f'cc_binary(name = "liball.so", linkshared = 1, deps = [{deps}],\n'
            '    visibility = ["//visibility:public"])\n'
        ),
    )
    yield (
        "tensorflow/tools/pip_package/BUILD",
        (
            'sh_binary(name = "build_pip_package", srcs = ["build_pip_package.sh"],\n'
            '    data = ["//all:liball.so", "//:make_wheel.py"])\n'
        ),
    )
    yield (
        "tensorflow/tools/pip_package/build_pip_package.sh",
        (
            '#!/bin/sh\nset -eu\ncd "$0.runfiles/tiny"\n'
            'exec "${PYTHON_BIN_PATH:-python3}" make_wheel.py "$1"\n'
        ),
    )


def make_repository(path: Path, targets: int, rounds: int) -> list[str]:
    """Make a history whose commits change one header each; return their SHAs."""
    path.mkdir()
    _git(path, "init", "-q", "-b", "master")
    for number in range(rounds + 1):
        for name, content in workspace(targets, factor=number + 5):
            file = path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists() or file.read_text() != content:
                file.write_text(content)
        (path / "tensorflow/tools/pip_package/build_pip_package.sh").chmod(0o755)
        _git(path, "add", "--all")
        _git(path, "commit", "-q", "-m", f"commit {number}")
    return _git(path, "rev-list", "--reverse", "HEAD").split()


def _git(path: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Benchmark", "-c", "user.email=benchmark@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=path, check=True, capture_output=True, text=True
    )
    return done.stdout


class Bare:
    """A checkout in which a person builds by hand, with a server that stays warm."""

    def __init__(self, repository: Path, bazel: Path, root: Path) -> None:
        self._checkout = root / "bare"
        self._start = [str(bazel), f"--output_user_root={root}/bare-root"]
        _git(root, "clone", "-q", str(repository), str(self._checkout))

    def build(self, sha: str) -> float:
        """Check a commit out and build it; return the seconds that Bazel took."""
        _git(self._checkout, "checkout", "-q", sha)
        command = [*self._start, "build", "--color=no", "--curses=no", TARGET]
        started = time.monotonic()
        subprocess.run(command, cwd=self._checkout, check=True, capture_output=True)
        return time.monotonic() - started

    def close(self) -> None:
        """End the server."""
        command = [*self._start, "shutdown"]
        subprocess.run(command, cwd=self._checkout, check=False, capture_output=True)


class Ours:
    """perfbisect's builder on the same history."""

    def __init__(self, recipe: Recipe, mirror: Path, root: Path) -> None:
        self._recipe = recipe
        self._mirror = mirror
        self._root = root
        self.builder = make_builder(BuilderSettings())
        #: Seconds that Bazel itself took, as its log says, of each build.
        self.inside: list[float] = []

    def build(self, sha: str) -> float:
        """Build a commit; return the seconds of the whole path."""
        name = f"benchmark-{len(self.inside)}"
        work = self._root / "work" / name
        work.mkdir(parents=True)
        request = BuildRequest(
            id=name,
            mirror=self._mirror,
            commit=sha,
            tree=_git(self._mirror, "rev-parse", f"{sha}^{{tree}}").strip(),
            recipe=self._recipe,
            work_dir=work,
            log_path=self._root / f"{name}.log",
            cache_dir=self._root / "cache",
        )
        started = time.monotonic()
        result = self.builder.build(request, CancelToken())
        seconds = time.monotonic() - started
        log = request.log_path.read_text()
        if not isinstance(result, BuildSuccess):
            raise SystemExit(f"{result}\n{log[-4000:]}")
        self.inside.append(float(re.findall(r"Elapsed time: ([\d.]+)s", log)[-1]))
        return seconds


def bisections(
    builder: RecipeBuilder, recipe: Recipe, repository: Path, shas: list[str], root: Path
) -> tuple[int, int]:
    """Conduct two bisections of the same trees at once, and then one more.

    Returns:
        builds that the two started, and containers that the third one started.
    """
    # What was compiled for the measurement before is of use here.
    (root / "data").mkdir()
    (root / "data" / "cache").symlink_to(root / "cache")
    services = Services.open(Settings(data_dir=root / "data"))
    counted = _Counting(builder)
    host = HostInfo("here", "default")
    engine = LocalEngine(counted, _SameEverywhere(), host, lock_path=root / "lock")
    conductor = Conductor(services, engine)
    try:
        for each in [_submit(services, recipe, repository, shas, unit) for unit in ("a", "b")]:
            conductor.conduct_until_finished(each)
        builds = counted.count
        before = time.time()
        conductor.conduct_until_finished(_submit(services, recipe, repository, shas, "c"))
        return builds, _containers_since(before)
    finally:
        conductor.stop()
        services.close()


def _submit(
    services: Services, recipe: Recipe, repository: Path, shas: list[str], unit: str
) -> str:
    benchmark = {
        "name": "same",
        "command": "true",
        "unit": unit,
        "metric": {"reader": "regex", "pattern": "([0-9.]+)"},
    }
    request = BisectionRequest(
        repository=str(repository),
        good=shas[0],
        bad=shas[-1],
        recipe=recipe_to_dict(recipe),
        benchmark=benchmark,
        prove=False,
    )
    return submit(
        services, request, requested_by="benchmark", origin="command line", allow_local=True
    ).id


class _Counting:
    """Counts builds that are started."""

    def __init__(self, builder: RecipeBuilder) -> None:
        self._builder = builder
        self.count = 0

    def build(self, request: BuildRequest, cancel: CancelToken) -> BuildSuccess | Failure:
        """Build and count."""
        self.count += 1
        return self._builder.build(request, cancel)


class _SameEverywhere:
    """Measures every wheel alike, so that a bisection needs only its ends."""

    def __init__(self) -> None:
        self._runs = 0

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess:
        """Return about 100."""
        self._runs += 1
        value = 100.0 + math.sin(self._runs)
        return RunSuccess(value, (value,), 0.01)


def _containers_since(moment: float) -> int:
    """Return how many containers of builds were made since a moment."""
    with Docker() as docker:
        events = docker.client.api.events(
            since=int(moment),
            until=int(time.time()) + 1,
            filters={"event": "create", "label": LABEL},
            decode=True,
        )
        return sum(1 for _ in events)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-image", required=True)
    parser.add_argument("--targets", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    recipe = Recipe(name="tiny", kind=RecipeKind.BAZEL, base_image=options.base_image)
    with tempfile.TemporaryDirectory(prefix="perfbisect-builds-") as directory:
        root = Path(directory)
        repository = root / "repository"
        shas = make_repository(repository, options.targets, options.rounds)
        mirror = open_mirror(repository, root / "mirrors").path
        bazel = BazelBinaries(root / "cache", "benchmark").find(BAZEL, "", CancelToken()).path
        print(f"{options.targets} targets, {options.rounds} commits, Bazel {BAZEL}", flush=True)
        by_hand, ours = Bare(repository, bazel, root), Ours(recipe, mirror, root)
        try:
            # In turn, so that whatever else this machine does bears on both.
            pairs = [(by_hand.build(sha), ours.build(sha)) for sha in shas][1:]
            plain, kept = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            _print("bazel build by hand, warm", plain)
            _print("perfbisect", kept)
            _print("of which Bazel itself", ours.inside[1:])
            print(f"ratio: {sum(kept) / sum(plain):.2f} of by hand, ", end="")
            print(f"{sum(kept) / sum(ours.inside[1:]):.2f} of Bazel itself")
            builds, containers = bisections(ours.builder, recipe, repository, shas, root)
        finally:
            by_hand.close()
            ours.builder.close()
        print(f"two bisections of the same two trees: {builds} builds")
        print(f"a third one, whose trees are built: {containers} containers")


def _print(name: str, seconds: list[float]) -> None:
    shown = ", ".join(f"{each:.2f}" for each in seconds)
    print(f"{name}: median {statistics.median(seconds):.2f} s ({shown})", flush=True)


if __name__ == "__main__":
    main()
