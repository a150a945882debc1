"""Settings from the environment (``PERFBISECT_…``) or command-line options; built once."""

from __future__ import annotations

from pathlib import Path

from pydantic import ByteSize, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


def _default_data_dir() -> Path:
    return Path.home() / ".local" / "share" / "perfbisect"


class Settings(BaseSettings):
    """Where things are kept and how much may go on at once."""

    model_config = SettingsConfigDict(env_prefix="PERFBISECT_", extra="ignore")

    #: Database, mirrors, artifacts, logs and caches live below this directory.
    data_dir: Path = Field(default_factory=_default_data_dir)
    #: SQLAlchemy URL; empty: SQLite in the data directory.
    database_url: str = ""
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
    #: Host names that the service answers to; empty: loopback names when bound to loopback, else
    #: any.
    allowed_hosts: list[str] = Field(default_factory=list)
    #: Largest body of a request, bytes.
    max_body_bytes: int = Field(default=1_000_000, ge=1024)
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
    #: Hosts and networks inside that webhooks may be sent to, without TLS too.
    outbound_allowed: list[str] = Field(default_factory=list)
    #: Secret of the HMAC signature of Grafana's contact point; empty: its alerts need a token.
    grafana_secret: SecretStr = SecretStr("")
    #: Header that Grafana's contact point puts the time of signing into.
    grafana_timestamp_header: str = "X-Grafana-Alerting-Signature-Timestamp"
    #: Docker engine URL; empty: from the environment (DOCKER_HOST) or the default socket.
    docker_host: str = ""

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database."""
        return self.database_url or f"sqlite:///{self.data_dir / 'perfbisect.db'}"

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
    def published_dir(self) -> Path:
        """Downloaded wheels of package indexes."""
        return self.cache_dir / "published"

    @property
    def work_dir(self) -> Path:
        """Scratch directories of work under way."""
        return self.data_dir / "work"
