"""The one way a benchmark is run, wherever that is: environment, files, command, value."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfbisect.benchmark_files import copy_files
from perfbisect.core.states import FailureKind
from perfbisect.errors import BadInputError, InternalError, TransientError
from perfbisect.history import Mirror
from perfbisect.ports import (
    CancelledWork,
    CancelToken,
    CompanionSource,
    Failure,
    RunRequest,
    RunSuccess,
)
from perfbisect.running.archives import is_wheel, unpack
from perfbisect.running.commands import clean_environment, cores, format_command
from perfbisect.running.environments import Environment, Wanted, lease_environment
from perfbisect.running.failures import RunFailed
from perfbisect.running.gpu_host import GpuHost, GpuPolicy, HeldGpus
from perfbisect.running.gpu_sampling import throttled
from perfbisect.running.hangs import Hangs
from perfbisect.running.host import host_facts
from perfbisect.running.leases import LeasedDirectories
from perfbisect.running.leftovers import Leftovers, collect
from perfbisect.running.observe import disturbance
from perfbisect.running.outcome import KeptOutput, read_value, require_success
from perfbisect.running.run_site import Layout, Scratch, Site


@dataclass(frozen=True, slots=True)
class Shelves:
    """What is kept between runs, and how much of it; the longest unused go first."""

    environments: int = 8
    environment_bytes: int = 40 * 1024**3
    archives: int = 16
    archive_bytes: int = 20 * 1024**3


def with_absolute_paths(request: RunRequest) -> RunRequest:
    """Return the same request with paths that mean the same in every working directory."""
    return replace(
        request,
        wheel=request.wheel.absolute(),
        benchmark_dir=request.benchmark_dir.absolute(),
        work_dir=request.work_dir.absolute(),
        log_path=request.log_path.absolute(),
        cache_dir=request.cache_dir.absolute(),
    )


def carry_out(
    site: Site,
    request: RunRequest,
    cancel: CancelToken,
    shelves: Shelves,
    gpus: GpuHost | None = None,
) -> RunSuccess | Failure:
    """Run the benchmark once, at a site.

    Args:
        gpus: gives it GPUs if it needs some; None: as the driver's ``nvidia-smi`` shows them.

    Raises:
        CancelledWork: the token asked for the end, and nothing is left running.
    """
    started = time.monotonic()
    hangs = Hangs(request)
    try:
        gpus = gpus or GpuHost(GpuPolicy(), request.cache_dir / "gpu-changes.json")
        success = _Run(site, request, cancel, shelves, hangs, gpus).run()
    except RunFailed as error:
        return error.failure
    except (BadInputError, InternalError) as error:
        return Failure(FailureKind.OURS, error.message, seconds=time.monotonic() - started)
    except (TransientError, OSError) as error:
        cause = f"the run could not be carried out: {error}"
        return Failure(FailureKind.TRANSIENT, cause, seconds=time.monotonic() - started)
    hangs.forget()
    return success


class _Run:
    def __init__(
        self,
        site: Site,
        request: RunRequest,
        cancel: CancelToken,
        shelves: Shelves,
        hangs: Hangs,
        gpus: GpuHost,
    ) -> None:
        self._gpus = gpus
        self._site = site
        self._request = request
        self._cancel = cancel
        self._shelves = shelves
        self._hangs = hangs

    def run(self) -> RunSuccess:
        """Do everything in its order.

        Raises:
            RunFailed: see ``runner.py`` for who is to blame for what.
        """
        self._gpus.require(self._request.benchmark.gpus)
        self._site.check()
        self._request.log_path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Scratch.below(self._request.work_dir)
        copy_files(self._request.benchmark, self._request.benchmark_dir, scratch.run)
        for companion in self._request.companions:
            check_out(companion, scratch.run)
        with self._artifact() as artifact, self._environment() as environment:
            layout = self._site.layout(scratch, environment.path, artifact)
            with self._gpus.hold(self._request.benchmark.gpus, self._cancel) as held:
                return self._measure(environment, scratch, layout, held)

    @contextmanager
    def _artifact(self) -> Iterator[Path | None]:
        """Hold the directory of unpacked artifacts, if the build left any."""
        if is_wheel(self._request.wheel):
            yield None
            return
        shelves = self._shelves
        root = self._request.cache_dir / "archives"
        kept = LeasedDirectories(root, shelves.archives, shelves.archive_bytes)

        def fill(directory: Path) -> Mapping[str, Any]:
            return unpack(self._request.wheel, directory)

        with kept.lease(self._request.wheel_sha256, fill, self._cancel) as (directory, _):
            yield directory

    @contextmanager
    def _environment(self) -> Iterator[Environment]:
        wheel = self._request.wheel if is_wheel(self._request.wheel) else None
        wanted = Wanted(
            wheel=wheel,
            wheel_sha256=self._request.wheel_sha256,
            requirements=self._request.benchmark.requirements,
            python=self._site.python_for(wheel),
            options=self._request.install_options,
            identity=self._site.identity(),
        )
        shelves = self._shelves
        kept = LeasedDirectories(
            self._request.cache_dir / "environments",
            shelves.environments,
            shelves.environment_bytes,
            self._site.is_usable,
        )
        with lease_environment(kept, wanted, self._site, self._cancel) as held:
            yield held

    def _measure(
        self, environment: Environment, scratch: Scratch, layout: Layout, gpus: HeldGpus
    ) -> RunSuccess:
        """Start the command once and read its value."""
        benchmark = self._request.benchmark
        argv = format_command(benchmark.command, _placeholders(layout, len(gpus.cpus)))
        variables = clean_environment(
            benchmark,
            environment=layout.environment,
            home=layout.home,
            temporary=layout.temporary,
        )
        output = KeptOutput()
        with self._site.observer() as observer, gpus.watched():
            result = self._site.start(argv, variables, benchmark.timeout, output.add, gpus)
        if result.cancelled:
            raise CancelledWork
        try:
            require_success(benchmark, result, output.text)
        except RunFailed as error:
            if result.timed_out:
                raise RunFailed(self._hangs.judge(error.failure)) from error
            raise
        reading = read_value(benchmark, output.text, scratch.run, result.seconds)
        observed = {**observer.observed, **gpus.observed, "resolution": reading.resolution}
        told = {"gpus": dict(gpus.facts)} if gpus.facts else {}
        left = collect(benchmark.artifacts, scratch.run)
        return RunSuccess(
            value=reading.value,
            within=reading.values,
            seconds=result.seconds,
            environment={**self._record(environment, argv, observed), **told, **_told(left)},
            rejected=disturbance(observed) or throttled(observed.get("gpus", ())),
            artifacts=left.files,
        )

    def _record(
        self, environment: Environment, argv: Sequence[str], observed: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return everything it takes to tell why a value is what it is, and to run it again."""
        return {
            **self._site.facts(),
            "command": list(argv),
            "variables": dict(self._request.benchmark.env),
            "wheel": self._request.wheel.name,
            "wheel_sha256": self._request.wheel_sha256,
            "python": environment.facts.get("python", ""),
            "packages": environment.facts.get("packages", {}),
            "install_options": list(self._request.install_options),
            "companions": {
                companion.name: {"repository": companion.repository, "commit": companion.commit}
                for companion in self._request.companions
            },
            "host": host_facts(),
            "observed": dict(observed),
        }


def _told(left: Leftovers) -> dict[str, Any]:
    """Return what to record of the files that are kept; nothing where none were asked for."""
    if not left.files and not left.left_out:
        return {}
    return {"artifacts": sorted(left.files), "artifacts_left_out": left.left_out}


def check_out(companion: CompanionSource, directory: Path) -> None:
    """Write a companion's files into a directory of its name, without its history.

    Raises:
        BadInputError: its tree holds what git refuses to write.
        TransientError: the mirror is not there, or the disk failed.
        InternalError: the mirror lacks the commit.
    """
    if not companion.mirror.is_dir():
        raise TransientError(f"there is no mirror of companion '{companion.name}' on this host")
    mirror = Mirror(companion.mirror)
    target = directory / companion.name
    mirror.checkout_tree(mirror.commit(companion.commit).tree, companion.commit, target)
    # It borrows its objects from the mirror, which a container does not see.
    shutil.rmtree(target / ".git")


def _placeholders(layout: Layout, pinned: int) -> dict[str, str]:
    """Return what a command's placeholders mean.

    Args:
        pinned: processors that it is bound to; 0: all that there are.
    """
    values = {
        "python": f"{layout.environment}/bin/python",
        "wheel": layout.wheel,
        "jobs": str(pinned or cores()),
    }
    return {**values, "artifact": layout.artifact} if layout.artifact else values
