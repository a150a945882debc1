"""Recipes and benchmarks as plain values, and their identity: the digest of canonical JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar, Literal

from perfbisect.core.states import Better


class RecipeKind(StrEnum):
    """How a revision becomes a wheel."""

    BAZEL = "bazel"
    PIP_WHEEL = "pip-wheel"
    COMMAND = "command"


class ReaderKind(StrEnum):
    """Named metric readers."""

    REGEX = "regex"
    JSON = "json"
    PERFZERO = "perfzero"
    BENCHMARK_METRIC = "benchmark-metric"
    KERAS_TIME_HISTORY = "keras-time-history"
    TF_CNN_BENCHMARKS = "tf-cnn-benchmarks"
    ORBIT = "orbit"
    PYTEST_BENCHMARK = "pytest-benchmark"
    ARTIFACT_COUNT = "artifact-count"


class Take(StrEnum):
    """How the values of one process become its one value."""

    MEDIAN = "median"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    LAST = "last"


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(value: Any) -> str:
    """Return the SHA-256 hex digest of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _set_fields(value: Recipe | Benchmark, without: Collection[str]) -> dict[str, Any]:
    """Return the fields that differ from their defaults, so that a new field keeps old digests."""
    chosen = asdict(value)
    for item in fields(value):
        default = item.default if item.default_factory is MISSING else item.default_factory()
        if item.name in without or chosen[item.name] == default:
            chosen.pop(item.name)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a revision becomes a wheel. Durations are seconds."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    name: str
    kind: RecipeKind
    #: False: on this machine, in a clean directory.
    docker: bool = True
    #: ``auto``, or the name of a file in dockerfiles/ without its ending.
    toolchain: str = "auto"
    #: Base image for the toolchain's Dockerfile; empty: the Dockerfile's default.
    base_image: str = ""
    #: Further arguments of the toolchain's Dockerfile, e.g. ``{TENSORRT = "5.1.5-1+cuda10.0"}``.
    toolchain_args: dict[str, str] = field(default_factory=dict)
    #: Bazel version, or ``auto``: read from the tree (.bazelversion, configure.py).
    bazel: str = "auto"
    #: Path of a Bazel binary; empty: found on PATH by version, or fetched. ``image``: the one that
    #: the toolchain's image has.
    bazel_binary: str = ""
    #: Bazel target; ``auto``: //tensorflow/tools/pip_package:build_pip_package or :wheel.
    target: str = "auto"
    #: Globs (relative to the tree) of what a bazel or command recipe leaves behind besides wheels.
    artifacts: tuple[str, ...] = ()
    #: For ``command``: shell command, run at the root of the tree. ``{out}`` is where the wheel or
    #: other artifacts go, ``{python}`` a Python interpreter, ``{jobs}`` the number of cores.
    command: str = ""
    #: Python of the build, e.g. ``python3`` or ``/usr/bin/python3``.
    python: str = "python3"
    cuda: bool = False
    cuda_path: str = "/usr/local/cuda"
    xla: bool = False
    tensorrt: bool = False
    numa: bool = False
    mkl: bool = False
    tf_api_version: int | None = None
    march: str = ""
    compute_capabilities: tuple[str, ...] = ()
    action_env: dict[str, str] = field(default_factory=dict)
    define: dict[str, str] = field(default_factory=dict)
    copt: tuple[str, ...] = ()
    host_copt: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    #: pip-wheel: pins for the build environment, e.g. ``setuptools<70``.
    build_requirements: tuple[str, ...] = ()
    #: pip-wheel: build dependencies as they were at the commit's date, or now.
    as_of: Literal["commit", "now"] = "commit"
    #: pip-wheel: directory of the project inside the repository.
    subdirectory: str = "."
    env: dict[str, str] = field(default_factory=dict)
    #: Network inside the build container.
    network: bool = False
    #: bazel: a cache that several machines share; empty: the one of the settings, if any.
    remote_cache: str = ""
    timeout: float = 4 * 3600.0
    memory: str = ""
    cpus: float = 0.0
    #: Glob -> weight: paths that matter less (or more) to the prior, on top of the defaults.
    relevance: dict[str, float] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Identity of what gets built; name, limits, caches and prior do not change a wheel."""
        without = ("name", "timeout", "memory", "cpus", "remote_cache", "relevance")
        return digest_of(_set_fields(self, without))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """How a metric is read from what the benchmark printed."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    reader: ReaderKind = ReaderKind.REGEX
    #: regex: one capturing group, or one named ``value``. artifact-count: what is counted.
    pattern: str = ""
    #: json: dotted path of the value or values, e.g. ``metrics.0.value`` or ``runs.*.seconds``.
    #: perfzero: name of the metric; empty: ``exp_per_second``. pytest-benchmark: name of the test.
    path: str = ""
    #: Read this file (relative to the run's directory, may be a glob) rather than the output.
    file: str = ""
    take: Take = Take.MEDIAN
    #: Leading values dropped as warm-up, on top of what the reader's tool defines as warm-up.
    skip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """A further repository that a benchmark needs: checked out beside its files, under its name."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    #: Also the name of its directory, relative to where the command runs.
    name: str
    #: Name of a known repository, a URL, or (command line only) a path.
    repository: str
    #: The commit that is used, whatever is measured; empty: it follows ``follow``.
    revision: str = ""
    #: A branch: its last commit before the date of what is measured. Empty: pinned by ``revision``.
    follow: str = ""

    @property
    def moving(self) -> bool:
        """Whether its commit depends on what is measured."""
        return not self.revision


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """What is different from some commit or date of a companion on; later rules win."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    #: A date (``2019-08-19``: commits of that day and later), or a revision of the companion (the
    #: commits that contain it).
    since: str
    #: Name of the companion; empty: the only one.
    companion: str = ""
    #: In place of the benchmark's; None: as it is.
    command: str | None = None
    files: tuple[str, ...] | None = None
    requirements: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A command, how its metric is read, and what it needs. Durations are seconds."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    name: str
    #: ``{python}`` has the wheel installed, ``{artifact}`` is the directory of unpacked artifacts,
    #: ``{wheel}`` the wheel file, ``{jobs}`` the number of cores.
    command: str
    metric: Metric
    unit: str
    better: Better = Better.HIGHER
    #: Relative to the benchmark's TOML file; copied into the run's directory.
    files: tuple[str, ...] = ()
    gpus: int = 0
    timeout: float = 900.0
    requirements: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    docker: bool = False
    image: str = ""
    companions: tuple[Companion, ...] = ()
    when: tuple[When, ...] = ()
    #: Globs (relative to where the command runs) of files that are kept beside the run.
    artifacts: tuple[str, ...] = ()

    @property
    def all_files(self) -> tuple[str, ...]:
        """``files``, and what any rule has in their place."""
        named = (name for rule in self.when for name in rule.files or ())
        return tuple(dict.fromkeys((*self.files, *named)))

    def digest(self, files: dict[str, str]) -> str:
        """Identity of what is measured.

        Args:
            files: name -> SHA-256 of each of ``files``; the script is part of the benchmark.
        """
        return digest_of({**_set_fields(self, ("name", "timeout")), "files": files})
