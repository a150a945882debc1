"""Table of the files that runs left behind and their benchmarks ask to keep."""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from perfbisect.store.tables import Base


class RunArtifactRow(Base):
    """One file that a run left, of those that its benchmark's ``artifacts`` name."""

    __tablename__ = "run_artifacts"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    #: In the order of their names.
    position: Mapped[int] = mapped_column(primary_key=True)
    #: Path relative to where the benchmark ran.
    name: Mapped[str] = mapped_column(Text)
    #: Key in the artifact store; empty: its content is no longer kept.
    artifact: Mapped[str] = mapped_column(String(200), index=True)
    #: Bytes.
    size: Mapped[int] = mapped_column(BigInteger)

    @property
    def kept(self) -> bool:
        """Whether its content is still there."""
        return bool(self.artifact)
