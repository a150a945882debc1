"""The GPUs of this host: chosen, alone, cool and idle before a run, watched while it lasts."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from perfbisect.core.states import FailureKind
from perfbisect.engines.local import machine_lock
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.running.failures import RunFailed, failed
from perfbisect.running.gpu_changes import GpuChanges
from perfbisect.running.gpu_sampling import GpuSampler, next_sample
from perfbisect.running.gpus import Gpu, GpuDriver, GpuError
from perfbisect.running.host import require_gpus
from perfbisect.running.nvml import open_nvml
from perfbisect.units import format_duration

#: Per cent of the time with a kernel up to which a GPU counts as idle.
IDLE_UTILISATION = 5
#: Seconds between two looks at GPUs that are not fit yet.
_LOOK_AGAIN = 1.0


@dataclass(frozen=True, slots=True)
class GpuPolicy:
    """How the GPUs of a host are used."""

    #: Indices of those that benchmarks may have; None: all.
    chosen: tuple[int, ...] | None = None
    #: MHz that their clocks are held at during a run; 0: they are left alone.
    clock: int = 0
    #: Their persistence mode is switched on during a run.
    persistence: bool = False
    #: Degrees Celsius that none may be above when a run begins; 0: any.
    max_temperature: int = 65
    #: Seconds that a run waits for idle and cool GPUs.
    wait: float = 600.0
    #: Benchmarks run on the processors near to their GPUs.
    pin: bool = True


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """The GPUs of one run, and the processors near to them."""

    indices: tuple[int, ...] = ()
    #: Empty: all that there are.
    cpus: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    #: What is recorded with the point.
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: Watches them; None: nothing does.
    sampler: GpuSampler | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch them while the block lasts."""
        with self.sampler or contextlib.nullcontext():
            yield

    @property
    def observed(self) -> dict[str, Any]:
        """What was seen, to be stored with what else was; empty: nothing."""
        return {"gpus": self.sampler.observed} if self.sampler is not None else {}


#: Of a run that needs none.
NO_GPUS = HeldGpus()


def gpu_lock_path() -> Path:
    """Return the file whose lock says who may use the GPUs: one for all data directories."""
    return Path(tempfile.gettempdir()) / "perfbisect-gpus.lock"


class GpuHost:
    """Gives the GPUs of this machine to one run at a time."""

    def __init__(
        self,
        policy: GpuPolicy,
        note: Path,
        *,
        opener: Callable[[], GpuDriver] = open_nvml,
        lock: Path | None = None,
        pause: Callable[[CancelToken], bool] = lambda cancel: cancel.wait(_LOOK_AGAIN),
        between_samples: Callable[[threading.Event], bool] = next_sample,
    ) -> None:
        """Make one.

        Args:
            policy: how they are used.
            note: file that says what was changed, until it is changed back.
            opener: opens the driver; raises ``GpuError`` where there is none.
            lock: file whose lock says who may use them; None: one for the machine.
            pause: passes the time between two looks; True: the end was asked for.
            between_samples: passes the time between two samples of a run; True: it is over.
        """
        self._between_samples = between_samples
        self.policy = policy
        self._changes = GpuChanges(note)
        self._opener = opener
        self._lock = lock or gpu_lock_path()
        self._pause = pause

    @contextlib.contextmanager
    def driver(self) -> Iterator[GpuDriver]:
        """Yield the open driver.

        Raises:
            GpuError: there is none.
        """
        driver = self._opener()
        try:
            yield driver
        finally:
            driver.close()

    def recover(self) -> list[str]:
        """Undo what a process left changed that is gone; return what could not be undone."""
        if not self._changes.pending:
            return []
        nobody = CancelToken()
        nobody.cancel()  # not to wait for whoever is at it
        try:
            with machine_lock(self._lock, nobody, exclusive=True), self.driver() as driver:
                return self._changes.undo(driver)
        except CancelledWork:
            return []
        except GpuError as error:
            return [str(error)]

    def require(self, wanted: int) -> None:
        """Return if there are as many GPUs for benchmarks.

        Raises:
            RunFailed: ours: there are fewer.
        """
        if not wanted:
            return
        try:
            with self.driver() as driver:
                self._choose(driver, wanted)
        except GpuError:
            require_gpus(wanted)

    @contextlib.contextmanager
    def hold(self, wanted: int, cancel: CancelToken) -> Iterator[HeldGpus]:
        """Hold some GPUs alone, as fit for a measurement as was asked for.

        Where NVML can't be used, they are given without a look at them, and the point says so.

        Raises:
            RunFailed: ours: there are fewer, or the clock can't be held; transient: they are in use
                or too hot.
            CancelledWork: the token asked for the end while waiting.
        """
        if not wanted:
            yield NO_GPUS
            return
        with machine_lock(self._lock, cancel, exclusive=True), contextlib.ExitStack() as held:
            try:
                driver = held.enter_context(self.driver())
            except GpuError as error:
                yield HeldGpus(tuple(range(wanted)), facts={"unobserved": str(error)})
                return
            yield held.enter_context(self._prepared(driver, wanted, cancel))

    @contextlib.contextmanager
    def _prepared(self, driver: GpuDriver, wanted: int, cancel: CancelToken) -> Iterator[HeldGpus]:
        with _blamed():
            self._changes.undo(driver)
            gpus = self._choose(driver, wanted)
            self._wait_until_fit(driver, gpus, cancel)
        with contextlib.ExitStack() as held:
            with _blamed():
                changed = self._changes.made(
                    driver, gpus, clock=self.policy.clock, persistence=self.policy.persistence
                )
                held.enter_context(changed)
                facts = self._facts(driver, gpus)
            cpus = near(gpus) if self.policy.pin else ()
            nodes = sorted({gpu.node for gpu in gpus if gpu.node is not None}) if cpus else []
            yield HeldGpus(
                indices=tuple(gpu.index for gpu in gpus),
                cpus=cpus,
                nodes=tuple(nodes),
                facts={**facts, "cpus": list(cpus)},
                sampler=GpuSampler(driver, gpus, self._between_samples),
            )

    def _choose(self, driver: GpuDriver, wanted: int) -> list[Gpu]:
        """Return the GPUs of a run: the first ones, of one node where one has enough."""
        allowed = [
            gpu
            for gpu in driver.gpus()
            if self.policy.chosen is None or gpu.index in self.policy.chosen
        ]
        if len(allowed) < wanted:
            given = "" if self.policy.chosen is None else ", as PERFBISECT_GPUS chooses them"
            cause = f"the benchmark needs {wanted} GPUs, and there are {len(allowed)} here{given}"
            advice = "run it on a host with as many, or lower the benchmark's 'gpus'"
            raise failed(FailureKind.OURS, cause, advice=advice)
        for node in dict.fromkeys(gpu.node for gpu in allowed):
            together = [gpu for gpu in allowed if gpu.node == node]
            if len(together) >= wanted:
                return together[:wanted]
        return allowed[:wanted]

    def _wait_until_fit(self, driver: GpuDriver, gpus: Sequence[Gpu], cancel: CancelToken) -> None:
        looks = max(1, round(self.policy.wait / _LOOK_AGAIN))
        why = ""
        for _ in range(looks):
            why = next((unfit for gpu in gpus if (unfit := self.unfit(driver, gpu))), "")
            if not why:
                return
            if self._pause(cancel):
                raise CancelledWork
        advice = "see who uses it with nvidia-smi; PERFBISECT_GPU_WAIT is how long runs wait"
        waited = format_duration(self.policy.wait)
        raise failed(FailureKind.TRANSIENT, f"{why}, after {waited} of waiting", advice=advice)

    def unfit(self, driver: GpuDriver, gpu: Gpu) -> str:
        """Return why a GPU is not ready for a measurement; empty: it is."""
        users = driver.processes(gpu.index)
        if users:
            shown = ", ".join(map(str, users[:3]))
            return f"GPU {gpu.index} is used by process {shown}"
        state = driver.state(gpu.index)
        if (state.utilisation or 0) > IDLE_UTILISATION:
            return f"GPU {gpu.index} is busy ({state.utilisation}%), by a process not seen here"
        most = self.policy.max_temperature
        if most and (state.temperature or 0) > most:
            return f"GPU {gpu.index} is at {state.temperature} °C, above {most} °C"
        return ""

    def _facts(self, driver: GpuDriver, gpus: Sequence[Gpu]) -> dict[str, Any]:
        """Return what is recorded with a point: driver, GPUs, how they are connected."""
        return {
            **driver.versions(),
            "devices": [
                {**asdict(gpu), "persistence": driver.persistence(gpu.index)} for gpu in gpus
            ],
            "topology": driver.topology(),
            "clock": self.policy.clock,
        }


def near(gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """Return the processors near to any of the GPUs; empty: of one of them that is not known."""
    if not all(gpu.cpus for gpu in gpus):
        return ()
    return tuple(sorted({cpu for gpu in gpus for cpu in gpu.cpus}))


@contextlib.contextmanager
def _blamed() -> Iterator[None]:
    """Turn what the driver refuses into a failed run that says what to do.

    Raises:
        RunFailed: ours: this user may not; transient: anything else.
    """
    try:
        yield
    except RunFailed:
        raise
    except GpuError as error:
        if error.forbidden:
            raise failed(
                FailureKind.OURS,
                f"the GPUs can't be set as PERFBISECT_GPU_CLOCK and _PERSISTENCE ask: {error}",
                advice="run perfbisect as root here, or set them by hand and leave these out",
            ) from error
        raise failed(FailureKind.TRANSIENT, f"the GPUs can't be used: {error}") from error
    except OSError as error:
        raise failed(FailureKind.TRANSIENT, f"the GPUs can't be prepared: {error}") from error
