"""The driver's line to one host: its agent, what is under way there, and what comes back."""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from perfbisect.core.states import FailureKind
from perfbisect.engines.failing import failure_of
from perfbisect.engines.ray_agent import AgentError, HostAgent
from perfbisect.engines.ray_messages import (
    Ended,
    Facts,
    FileInfo,
    News,
    Node,
    Result,
    WorkReport,
)
from perfbisect.engines.ray_shipping import CHUNK, pack_for, tar_of
from perfbisect.errors import TransientError
from perfbisect.ports import BuildRequest, BuildSuccess, Failure, Orphan, RunRequest, RunSuccess
from perfbisect.store.artifacts import sha256_of

log = logging.getLogger(__name__)

#: Agents of other versions of this program are not ours to talk to.
NAMESPACE = f"perfbisect-{version('perfbisect')}"
#: Seconds that an agent may take to tell that there is nothing to tell.
POLL = 2.0
#: Seconds that an answer may take beyond that until the line counts as cut.
ANSWER = 60.0
#: Seconds that an agent may take to begin: somebody else's work may hold the host's GPUs.
BEGIN = 300.0
#: Threads in which an agent answers.
_THREADS = 64


@dataclass(slots=True)
class Flight:
    """A build or run on this host, as followed from here."""

    orphan: Orphan
    #: None: it was begun by a process that is gone.
    request: BuildRequest | RunRequest | None
    #: The agent has been told of it, or it was begun before.
    begun: bool = False
    #: The agent is being told of it.
    telling: bool = False
    #: Bytes of its log that are here.
    offset: int = 0


def agent_name(host: str) -> str:
    """Return the name of a host's actor."""
    return f"host:{host}"


class HostLink:
    """Begins work on one host and follows it, in a thread of its own."""

    def __init__(
        self, node: Node, parts: str, tell: Callable[[News], None], fits: Callable[[str], bool]
    ) -> None:
        """Make the line to a host.

        Args:
            node: the host.
            parts: what makes its builder and runner (see ``ray_agent``).
            tell: sends news to the engine.
            fits: whether a node of this id is still in the cluster.
        """
        self.node = node
        self._parts = parts
        self._tell = tell
        self._fits = fits
        self._flights: dict[str, Flight] = {}
        self._changed = threading.Condition()
        self._agent: Any = None
        self._agent_guard = threading.Lock()
        self._sending = threading.Lock()
        self._sender = secrets.token_hex(8)
        self._closed = False
        self._idle_since = time.monotonic()
        self._thread = threading.Thread(target=self._follow, name=f"link-{node.name}", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ from the driver

    def begin(self, request: BuildRequest | RunRequest) -> None:
        """Begin a build or run; blocks while what it needs travels."""
        orphan = Orphan(request.id, self.node.name, request.work_dir, request.log_path)
        flight = Flight(orphan, request)
        with self._changed:
            self._flights[request.id] = flight
        try:
            agent = self._agent_of_host()
            start = self._ship(agent, request)
            with self._changed:
                flight.telling = True
            ray.get(start(), timeout=ANSWER)
        except Exception as error:
            log.info("%s could not begin on %s", request.id, self.node.name, exc_info=True)
            # It may have begun all the same, if only the answer was lost.
            self.cancel(request.id)
            self.forget(request.id)
            self._end(flight, self._why(error))
        finally:
            with self._changed:
                flight.begun, flight.telling = True, False
                self._changed.notify_all()

    def adopt(self, orphan: Orphan) -> bool:
        """Follow work that was begun before, if this host knows it."""
        known = ray.get(self._agent_of_host().unrecorded.remote(), timeout=ANSWER)
        if orphan.id not in known:
            return False
        orphan.log_path.unlink(missing_ok=True)
        with self._changed:
            self._flights[orphan.id] = Flight(orphan, None, begun=True)
            self._changed.notify_all()
        return True

    def cancel(self, work_id: str) -> None:
        """End a build or run; its end is told as any other."""
        with self._changed:
            known = work_id in self._flights
        if known and self._agent is not None:
            self._agent.cancel.remote(work_id)

    def forget(self, work_id: str) -> None:
        """Let the host forget what is recorded."""
        if self._agent is not None:
            self._agent.forget.remote(work_id)

    def idle_seconds(self) -> float:
        """Return for how long nothing has been under way."""
        with self._changed:
            return 0.0 if self._flights else time.monotonic() - self._idle_since

    def release(self, linger: float) -> None:
        """End the agent, so that its node can be used for something else, or given back.

        Args:
            linger: seconds that it must have been idle for; others may use it too.
        """
        with self._agent_guard:
            agent, self._agent = self._agent, None
            if agent is None:
                return
            try:
                if ray.get(agent.idle_seconds.remote(), timeout=ANSWER) < linger:
                    self._agent = agent
                    return
                ray.get(agent.close.remote(), timeout=ANSWER)
            except RayError:
                log.info("agent of %s did not close", self.node.name, exc_info=True)
            ray.kill(agent)

    def lost(self) -> None:
        """Take note that the node is gone: whatever was under way there is lost."""
        with self._agent_guard:
            self._agent = None
        with self._changed:
            flights = list(self._flights.values())
        for flight in flights:
            self._end(flight, self._gone())

    # ------------------------------------------------------------------ the agent

    def _agent_of_host(self) -> Any:
        with self._agent_guard:
            if self._agent is None:
                agent = self._get_agent()
                facts = ray.get(agent.about.remote(), timeout=BEGIN)
                self._agent = agent
                self._tell(Facts(self.node.name, facts))
            return self._agent

    def _get_agent(self) -> Any:
        """Return the host's actor, a new one if there is none or it is of a node that is gone."""
        node = self.node
        name = agent_name(node.name)
        try:
            agent = ray.get_actor(name, NAMESPACE)
            ray.get(agent.unrecorded.remote(), timeout=ANSWER)
            return agent
        except (ValueError, RayError):
            pass
        here = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        options = ray.remote(HostAgent).options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=node.gpus,
            resources=node.resources,
            scheduling_strategy=here,
            max_concurrency=_THREADS,
            max_restarts=0,
        )
        return options.remote(
            node.name, node.pool, node.build_slots, shared=node.shared, parts=self._parts
        )

    # ------------------------------------------------------------------ what travels

    def _ship(self, agent: Any, request: BuildRequest | RunRequest) -> Callable[[], Any]:
        """Send what the host lacks; return what begins the work there."""
        if isinstance(request, BuildRequest):
            self._send_history(agent, request.mirror, [(request.commit, request.tree)])
            return lambda: agent.build.remote(request)
        if not request.published:
            self._send_file(agent, request.wheel, request.wheel_sha256)
        for each in request.companions:
            self._send_history(agent, each.mirror, [(each.commit, f"{each.commit}^{{tree}}")])
        files = ""
        if request.benchmark.files:
            content = tar_of(request.benchmark_dir)
            files = hashlib.sha256(content).hexdigest()
            self._send(agent, files, lambda offset: content[offset : offset + CHUNK])
        return lambda: agent.run.remote(request, files)

    def _send_history(self, agent: Any, mirror: Path, wanted: list[tuple[str, str]]) -> None:
        state = ray.get(agent.mirror_state.remote(mirror.name), timeout=ANSWER)
        with NamedTemporaryFile(prefix="perfbisect-", suffix=".pack") as file:
            pack = Path(file.name)
            delivery = pack_for(mirror, wanted, state, pack)
            parcel = sha256_of(pack)
            self._send_file(agent, pack, parcel)
            ray.get(agent.deliver.remote(replace(delivery, parcel=parcel)), timeout=BEGIN)

    def _send_file(self, agent: Any, path: Path, sha256: str) -> None:
        with path.open("rb") as file:

            def piece(offset: int) -> bytes:
                file.seek(offset)
                return file.read(CHUNK)

            self._send(agent, sha256, piece)

    def _send(self, agent: Any, sha256: str, piece: Callable[[int], bytes]) -> None:
        """Send a file piece by piece, if the host lacks it; one at a time."""
        with self._sending:
            if not ray.get(agent.needs.remote(sha256), timeout=BEGIN):
                return
            offset = 0
            while True:
                data = piece(offset)
                ray.get(agent.add.remote(sha256, self._sender, offset, data), timeout=ANSWER)
                offset += len(data)
                if len(data) < CHUNK:
                    break
            ray.get(agent.seal.remote(sha256, self._sender), timeout=BEGIN)

    def _fetch(self, work_id: str, name: str, info: FileInfo, target: Path) -> None:
        """Fetch a file that work left there.

        Raises:
            TransientError: it arrived damaged, or can't be written here.
        """
        digest = hashlib.sha256()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                offset = 0
                while offset < info.size:
                    call = self._agent.read.remote(work_id, name, offset, CHUNK)
                    data = ray.get(call, timeout=ANSWER)
                    if not data:
                        break
                    digest.update(data)
                    file.write(data)
                    offset += len(data)
        except OSError as error:
            raise TransientError(f"{name} can't be written: {error}") from error
        if digest.hexdigest() != info.sha256:
            raise TransientError(f"{name} arrived damaged from {self.node.name}")

    # ------------------------------------------------------------------ what comes back

    def _follow(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._something_to_ask)
                wanted = {key: each.offset for key, each in self._flights.items() if each.begun}
            try:
                reports = self._poll(wanted)
                for work_id, report in reports.items():
                    self._take(work_id, report)
            except (ActorUnavailableError, GetTimeoutError) as error:
                # The network may be cut: Ray says so for good when it gives the node up.
                log.info("no answer from %s: %s", self.node.name, error)
                time.sleep(1.0)
                if not self._fits(self.node.node_id):
                    self.lost()
            except RayError as error:
                log.info("the agent of %s is gone: %s", self.node.name, error)
                self.lost()

    def _something_to_ask(self) -> bool:
        flights = self._flights.values()
        return any(each.begun for each in flights) and not any(each.telling for each in flights)

    def _poll(self, wanted: Mapping[str, int]) -> dict[str, WorkReport]:
        agent = self._agent_of_host()
        reports = ray.get(agent.poll.remote(wanted, POLL), timeout=POLL + ANSWER)
        assert isinstance(reports, dict)
        return reports

    def _take(self, work_id: str, report: WorkReport) -> None:
        with self._changed:
            flight = self._flights.get(work_id)
        if flight is None:
            return
        if not report.known:
            self._end(flight, self._gone())
            return
        if report.log:
            flight.offset += len(report.log)
            _append(flight.orphan.log_path, report.log)
        if not report.ended:
            return
        try:
            result = self._fetched(flight, report)
        except (TransientError, OSError, RayTaskError) as error:
            result = self._why(error)
        self._end(flight, result)

    def _fetched(self, flight: Flight, report: WorkReport) -> Result:
        """Return a result whose files are here."""
        result, work_dir = report.result, flight.orphan.work_dir
        if isinstance(result, BuildSuccess):
            target = work_dir / "fetched" / result.path.name
            self._fetch(flight.orphan.id, "wheel", report.files["wheel"], target)
            return replace(result, path=target)
        if isinstance(result, RunSuccess) and result.artifacts:
            found = {}
            for number, (name, info) in enumerate(report.files.items()):
                found[name] = work_dir / "fetched" / str(number) / info.path.name
                self._fetch(flight.orphan.id, name, info, found[name])
            return replace(result, artifacts=found)
        return result

    def _end(self, flight: Flight, result: Result) -> None:
        with self._changed:
            if self._flights.pop(flight.orphan.id, None) is None:
                return
            self._idle_since = time.monotonic()
        self._tell(Ended(flight.orphan.id, result))

    def _gone(self) -> Failure:
        return Failure(
            FailureKind.TRANSIENT,
            f"host {self.node.name} was lost",
            advice="it is done again, on another host if this one stays away",
        )

    def _why(self, error: Exception) -> Failure:
        """Return whose fault it is that work could not begin."""
        if isinstance(error, RayTaskError):
            cause = error.cause
            if isinstance(cause, AgentError) and isinstance(cause.args[0], Failure):
                return cause.args[0]
            return failure_of(cause if isinstance(cause, Exception) else error)
        if isinstance(error, RayError):
            words = str(error).strip().splitlines()
            said = words[0] if words else type(error).__name__
            return Failure(FailureKind.TRANSIENT, f"host {self.node.name}: {said}")
        return failure_of(error)


def _append(path: Path, data: bytes) -> None:
    """Add to a log here; a full disk must not lose the result that follows."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        log.warning("log %s: %s", path.name, error)
