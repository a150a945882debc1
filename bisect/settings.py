"""Settings from the environment (``PERFBISECT_…``) or command-line options; built once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from limits import parse_many
from pydantic import ByteSize, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import URL

from perfbisect.addresses import is_loopback
from perfbisect.core.access import Anonymous
from perfbisect.git.fetching import Fetching
from perfbisect.storage import checked_url

#: What a host may be called: it stands in tables, addresses of pages and lock files.
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

#: Where a cluster's head listens: host, or IPv6 in brackets, and port.
_HEAD = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


def _default_data_dir() -> Path:
    return Path.home() / ".local" / "share" / "perfbisect"


def sqlite_url(file: Path) -> str:
    """Return the URL of a SQLite database; a path may hold letters that mean more in a URL."""
    return URL.create("sqlite", database=str(file)).render_as_string()


class Settings(BaseSettings):
    """Where things are kept and how much may go on at once."""

    model_config = SettingsConfigDict(
        env_prefix="PERFBISECT_", env_ignore_empty=True, extra="ignore"
    )

    #: Database, mirrors, artifacts, logs and caches live below this directory.
    data_dir: Path = Field(default_factory=_default_data_dir)
    #: SQLAlchemy URL; empty: SQLite in the data directory.
    database_url: str = ""
    #: Where wheels, logs and files are kept: ``file://``, ``s3://`` or ``gs://``; empty: as
    #: ``[storage]`` of perfbisect.toml says, else below the data directory.
    artifacts: str = ""
    #: What copies of artifacts behind a URL may take here together.
    artifact_cache_size: ByteSize = Field(default=ByteSize(20 * 1024**3), gt=0)
    #: Where to build and run: this machine, or a Ray cluster.
    engine: Literal["local", "ray"] = "local"
    #: Head of the Ray cluster, ``host:port``; empty: the cluster that this machine is a node of.
    ray_address: str = ""
    #: Seconds that a host of the cluster may be away before its jobs move to another.
    host_grace: float = Field(default=120.0, ge=0, le=86_400)
    #: Seconds of silence after which a conductor counts as gone, and another one takes over.
    lease_seconds: float = Field(default=60.0, ge=2, le=3600)
    #: Builds at once on this machine.
    build_slots: int = Field(default=1, ge=1)
    #: Name of this machine as a host; empty: its host name.
    host_name: str = ""
    pool: str = "default"
    bind: str = "127.0.0.1"
    port: int = Field(default=8080, ge=1, le=65535)
    #: Repositories that may be submitted by API and form, besides those already known.
    allowed_repositories: list[str] = Field(default_factory=list)
    #: Directory of the perfbisect.toml whose recipes and benchmarks API and form may name besides
    #: the shipped ones; None: the current directory.
    project_dir: Path | None = None
    #: Whether API and form may define recipes and benchmarks themselves, which runs any command
    #: they like on this machine; else they name known ones.
    allow_inline: bool = False
    #: Whether recipes and benchmarks are refused that run on the machine itself.
    require_containers: bool = False
    #: Host names that the service answers to; empty: loopback names when bound to loopback, else
    #: any.
    allowed_hosts: list[str] = Field(default_factory=list)
    #: Largest body of a request, bytes.
    max_body_bytes: int = Field(default=1_000_000, ge=1024)
    #: What somebody without a token may do: ``auto`` is ``submit`` where only this machine can
    #: reach the service, else ``none``.
    anonymous: Anonymous = Anonymous.AUTO
    #: Signs the cookies of those who logged in; empty: a key that is made once and kept in the data
    #: directory. Several servers of one database need the same.
    session_secret: SecretStr = SecretStr("")
    #: Hours after which somebody who logged in has to do so again.
    session_hours: float = Field(default=12.0, gt=0, le=24 * 90)
    #: Requests of one token, or of one address without a token, at most.
    rate_limit: str = "1200/minute"
    #: Those that submit or change something.
    submit_rate_limit: str = "120/minute"
    #: Unfinished bisections and experiments that one token may have submitted.
    max_unfinished: int = Field(default=100, ge=1)
    #: Seconds that a submission waits for its repository to be mirrored before it says: later.
    mirror_wait: float = Field(default=20.0, ge=0, le=600)
    #: Hours that fetching a repository may take, and what its mirror may take on the disk.
    fetch_hours: float = Field(default=6.0, gt=0, le=24 * 30)
    max_repository_size: ByteSize = Field(default=ByteSize(100 * 1024**3), gt=0)
    #: How ``serve`` logs: for people, or an object of JSON in each line.
    log_format: Literal["text", "json"] = "text"
    #: Packages of the index that may be submitted by API and form: their wheels run here.
    allowed_packages: list[str] = Field(default_factory=list)
    #: Root of the simple API that published wheels come from; empty: this machine's own, as
    #: configured for uv or pip.
    index_url: str = ""
    #: What downloaded wheels may take together: bytes, or text like 20GiB.
    wheel_cache_size: ByteSize = Field(default=ByteSize(20 * 1024**3), gt=0)
    #: What kept environments may take together; the one in use stays whatever its size.
    environment_cache_size: ByteSize = Field(default=ByteSize(40 * 1024**3), ge=0)
    #: Address under which people reach the pages, for links in messages; empty: no links.
    public_url: str = ""
    #: Hosts and networks inside that webhooks may be sent to, without TLS too, and that
    #: repositories may be fetched from where others can reach this service.
    outbound_allowed: list[str] = Field(default_factory=list)
    #: Secret of the HMAC signature of Grafana's contact point; empty: its alerts need a token.
    grafana_secret: SecretStr = SecretStr("")
    #: Header that Grafana's contact point puts the time of signing into.
    grafana_timestamp_header: str = "X-Grafana-Alerting-Signature-Timestamp"
    #: Indices of the GPUs that benchmarks may have, such as ``0,2``; ``all``: all of them.
    gpus: str = "all"
    #: MHz that the clocks of a run's GPUs are held at while it lasts; 0: they are left alone.
    gpu_clock: int = Field(default=0, ge=0, le=10_000)
    #: Whether the persistence mode of a run's GPUs is switched on while it lasts.
    gpu_persistence: bool = False
    #: Degrees Celsius that a run's GPUs may have when it begins; 0: any.
    gpu_max_temperature: int = Field(default=65, ge=0, le=120)
    #: Seconds that a run waits for GPUs that are in use or too hot.
    gpu_wait: float = Field(default=600.0, ge=0, le=86_400)
    #: Whether benchmarks are bound to the processors near to their GPUs.
    gpu_pin: bool = True
    #: How the Docker engine is asked for GPUs: by NVIDIA's hook, or by CDI names.
    gpu_devices: Literal["auto", "nvidia", "cdi"] = "auto"
    #: Docker engine URL; empty: from the environment (DOCKER_HOST) or the default socket.
    docker_host: str = ""
    #: Directory of Dockerfiles of toolchains; None: those that travel with the package.
    dockerfiles: Path | None = None
    #: Archives that Bazel need not download; None: ``cache/distdir`` in the data directory.
    distdir: Path | None = None
    #: Cache that Bazel builds of several machines share, for recipes that name none; empty: none.
    remote_cache: str = ""
    #: Containers with a warm Bazel server that are kept, paused, between builds; 0: none.
    warm_servers: int = Field(default=1, ge=0, le=64)
    #: Hours between two collections of what is no longer needed, while serving; 0: never.
    gc_hours: float = Field(default=6.0, ge=0)
    #: What may be kept, and for how many days since it was last used; 0 days: whatever its age.
    keep_wheels_size: ByteSize = Field(default=ByteSize(200 * 1024**3), ge=0)
    keep_wheels_days: float = Field(default=365.0, ge=0)
    keep_trees_size: ByteSize = Field(default=ByteSize(200 * 1024**3), ge=0)
    keep_trees_days: float = Field(default=30.0, ge=0)
    keep_build_cache_size: ByteSize = Field(default=ByteSize(100 * 1024**3), ge=0)
    keep_build_cache_days: float = Field(default=90.0, ge=0)
    keep_images_size: ByteSize = Field(default=ByteSize(100 * 1024**3), ge=0)
    keep_images_days: float = Field(default=180.0, ge=0)
    keep_logs_size: ByteSize = Field(default=ByteSize(20 * 1024**3), ge=0)
    keep_logs_days: float = Field(default=365.0, ge=0)
    keep_artifacts_size: ByteSize = Field(default=ByteSize(50 * 1024**3), ge=0)
    keep_artifacts_days: float = Field(default=365.0, ge=0)
    #: Builds wait while less than this is free where they write.
    min_free_space: ByteSize = Field(default=ByteSize(2 * 1024**3), ge=0)

    @field_validator("host_name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        """Refuse names of hosts that are none."""
        if value and not _HOST.fullmatch(value):
            raise ValueError(
                "a host's name has letters, digits, '.', '_' and '-' only, begins with a letter or "
                "digit, and is at most 100 long"
            )
        return value

    @field_validator("gpus")
    @classmethod
    def _readable_gpus(cls, value: str) -> str:
        """Refuse choices of GPUs that are none."""
        chosen_gpus(value)
        return value

    @field_validator("artifacts")
    @classmethod
    def _place_of_artifacts(cls, value: str) -> str:
        """Refuse addresses of artifacts that are none."""
        return checked_url(value)

    @field_validator("ray_address")
    @classmethod
    def _head_of_cluster(cls, value: str) -> str:
        """Refuse addresses of a cluster's head that are none."""
        return checked_head(value)

    @field_validator("rate_limit", "submit_rate_limit")
    @classmethod
    def _readable_limit(cls, value: str) -> str:
        """Refuse limits that can't be read."""
        return checked_limit(value)

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database."""
        return self.database_url or sqlite_url(self.data_dir / "perfbisect.db")

    @property
    def only_this_machine(self) -> bool:
        """Whether nobody else can reach the service.

        A service on loopback that answers to other names stands behind a proxy.
        """
        return is_loopback(self.bind) and all(map(is_loopback, self.allowed_hosts))

    @property
    def fetching(self) -> Fetching:
        """Bounds of fetching repositories. Whoever is alone on this machine may go anywhere."""
        return Fetching(
            seconds=self.fetch_hours * 3600.0,
            size=self.max_repository_size,
            keep_free=self.min_free_space,
            inside=None if self.only_this_machine else tuple(self.outbound_allowed),
        )

    @property
    def mirrors_dir(self) -> Path:
        """Bare mirrors of repositories."""
        return self.data_dir / "mirrors"

    @property
    def artifacts_dir(self) -> Path:
        """Content-addressed wheels, logs and files."""
        return self.data_dir / "artifacts"

    @property
    def logs_dir(self) -> Path:
        """Logs of builds and runs, ``{id}.log``, while they run and afterwards."""
        return self.data_dir / "logs"

    @property
    def cache_dir(self) -> Path:
        """Caches of builders and runners."""
        return self.data_dir / "cache"

    @property
    def archives_dir(self) -> Path:
        """Archives that Bazel need not download."""
        return self.distdir or self.cache_dir / "distdir"

    @property
    def published_dir(self) -> Path:
        """Downloaded wheels of package indexes."""
        return self.cache_dir / "published"

    @property
    def work_dir(self) -> Path:
        """Scratch directories of work under way."""
        return self.data_dir / "work"


def chosen_gpus(text: str) -> tuple[int, ...] | None:
    """Return the indices that a choice of GPUs names; None: all.

    Raises:
        ValueError: it is none.
    """
    if text == "all":
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise ValueError("a choice of GPUs is 'all' or their indices, such as '0,2'")
    return tuple(int(part) for part in parts)


def checked_head(text: str) -> str:
    """Return the address of a Ray cluster's head; ``auto`` or empty: that of this machine's node.

    Raises:
        ValueError: it is none.
    """
    if text in ("", "auto"):
        return text
    found = _HEAD.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= 65535:
        raise ValueError("the cluster's head (--ray-address) is 'host:port', as in 'head:6379'")
    return text


def checked_limit(text: str) -> str:
    """Return a limit of requests as it was given.

    Raises:
        ValueError: it is none, or allows nothing.
    """
    try:
        if any(each.amount < 1 for each in parse_many(text)):
            raise ValueError("nothing would be allowed")
    except ValueError as error:
        raise ValueError("a limit looks like '100/minute' or '10/second;1000/hour'") from error
    return text
