"""What the engine and its driver, the process that speaks with Ray, tell each other. Picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfbisect.ports import (
    BuildRequest,
    BuildSuccess,
    Failure,
    Orphan,
    RunRequest,
    RunSuccess,
)

Result = BuildSuccess | RunSuccess | Failure | None

#: Resource whose amount is how many builds may go on at once on a node.
BUILD = "build"
#: What the name of a pool's resource begins with; a host has one unit of it.
POOL = "pool:"
#: Label of a node: its name as a host.
HOST_LABEL = "perfbisect.io/host"
#: Label of a node on which builds and runs may go on at the same time, if it is ``yes``.
SHARED_LABEL = "perfbisect.io/shared"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster that builds, runs, or both."""

    #: Name as a host.
    name: str
    #: Ray's own id: a node that comes back has another one.
    node_id: str
    #: Empty: it only builds.
    pool: str
    build_slots: int
    gpus: int = 0
    #: Builds and runs may go on at the same time.
    shared: bool = False

    @property
    def resources(self) -> dict[str, float]:
        """Everything it has for us, as Ray counts it."""
        found: dict[str, float] = {POOL + self.pool: 1} if self.pool else {}
        return found | ({BUILD: self.build_slots} if self.build_slots else {})


@dataclass(frozen=True, slots=True)
class Start:
    """To the driver: begin a build or run on a host."""

    request: BuildRequest | RunRequest
    host: str


@dataclass(frozen=True, slots=True)
class Attach:
    """To the driver: find work under way, and follow it."""

    orphan: Orphan
    is_build: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """To the driver: end a build or run."""

    work_id: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """To the driver: a result is stored for good and may be forgotten."""

    work_id: str


@dataclass(frozen=True, slots=True)
class Nodes:
    """From the driver: the machines that are there now."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """From the driver: what a host says of itself."""

    host: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """From the driver: a build or run is over; its files are in the scratch directory here."""

    work_id: str
    result: Result


Command = Start | Attach | Cancel | Recorded
News = Nodes | Facts | Ended


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file that work left on its host."""

    path: Path
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class WorkReport:
    """What an agent says about one piece of work."""

    #: False: this host has never heard of it, or it was lost here.
    known: bool
    #: What the log has beyond the offset asked for.
    log: bytes = b""
    ended: bool = False
    result: Result = None
    #: By name; a build has one, ``wheel``.
    files: Mapping[str, FileInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MirrorState:
    """What a host has of a repository."""

    #: Commits whose history is there.
    tips: tuple[str, ...]
    #: Digest of the tags that are there; empty: none were ever sent.
    tags: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A pack of git objects for a host's mirror."""

    #: Name of the mirror.
    name: str
    #: Full SHA whose history is complete afterwards.
    commit: str
    #: Parcel that holds the pack; empty: the objects are there already.
    parcel: str
    #: ``SHA refname`` of every tag; None: those that are there are right.
    tags: tuple[str, ...] | None
    #: Digest of the tags.
    tags_digest: str
    #: Content of git's file ``shallow``; None: the history is whole.
    shallow: bytes | None
    #: ``sha1`` or ``sha256``.
    object_format: str
