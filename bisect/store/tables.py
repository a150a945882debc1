"""The tables. Rows are facts: builds, wheels, points and decisions are only ever added to."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Float,
    ForeignKey,
    Index,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from perfbisect.core.states import (
    BisectionState,
    ExperimentKind,
    FailureKind,
    Outcome,
    Purpose,
    WorkState,
)
from perfbisect.store.columns import Base as Base
from perfbisect.store.columns import BigId as BigId
from perfbisect.store.columns import EnumText as EnumText
from perfbisect.store.columns import UtcDateTime as UtcDateTime

#: States in which a build or a run is under way.
_ACTIVE = text("state IN ('queued', 'running')")
#: Work that failed, and points that do not count: few of many.
_FAILED = text("failure_kind IS NOT NULL")
_REJECTED = text("rejected <> ''")


class RepositoryRow(Base):
    """A git repository under test."""

    __tablename__ = "repositories"

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    #: URL or absolute path it is mirrored from.
    url: Mapped[str] = mapped_column(String(2000), unique=True)
    created_at: Mapped[datetime]


class RecipeRow(Base):
    """A recipe ever used, by digest; ``definition`` is the whole of it as first seen."""

    __tablename__ = "recipes"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), index=True)
    definition: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class BenchmarkRow(Base):
    """A benchmark ever used, by digest."""

    __tablename__ = "benchmarks"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), index=True)
    definition: Mapped[dict[str, Any]]
    #: File name -> artifact key: the script as it was, whatever became of the user's copy.
    files: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class HostRow(Base):
    """A machine that ran a benchmark."""

    __tablename__ = "hosts"

    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    pool: Mapped[str] = mapped_column(String(200), index=True)
    facts: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    last_seen_at: Mapped[datetime]


class Conducted:
    """What a bisection and an experiment have in common: a request, a lease and an answer."""

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    state: Mapped[BisectionState]
    outcome: Mapped[Outcome | None]
    #: The request as submitted (see ``perfbisect.request_models``).
    request: Mapped[dict[str, Any]]
    #: Digest of the request with its revisions resolved: the same command finds its own work.
    request_digest: Mapped[str] = mapped_column(String(64), index=True)
    idempotency_key: Mapped[str | None] = mapped_column(String(200), unique=True)
    #: Null: published wheels alone, of a package.
    repository_id: Mapped[str | None] = mapped_column(ForeignKey("repositories.id"), index=True)
    #: Names what wheels are made by, or where they come from (see ``perfbisect.axes``).
    recipe_digest: Mapped[str] = mapped_column(ForeignKey("recipes.digest"), index=True)
    benchmark_digest: Mapped[str] = mapped_column(ForeignKey("benchmarks.digest"), index=True)
    #: Recipe in full: time limits and prior are not part of the digest.
    recipe: Mapped[dict[str, Any]]
    benchmark: Mapped[dict[str, Any]]
    policy: Mapped[dict[str, Any]]
    requested_by: Mapped[str] = mapped_column(String(200), index=True)
    #: ``command line``, ``api``, ``form``, ``alert`` or ``bisection`` (a proof).
    origin: Mapped[str] = mapped_column(String(32))
    #: What is free goes to the higher one first: 0 is a person's, less is work nobody waits for.
    priority: Mapped[int] = mapped_column(default=0, server_default="0")
    created_at: Mapped[datetime] = mapped_column(index=True)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    cancel_requested_at: Mapped[datetime | None]
    #: Wall seconds conducted so far, without the time nobody conducted it.
    active_seconds: Mapped[float] = mapped_column(Float, default=0.0)
    #: Problem (message, field, kind, code) of one that failed.
    error: Mapped[dict[str, Any] | None]
    #: The answer as JSON, rewritten while running, final when finished.
    verdict: Mapped[dict[str, Any] | None]
    #: Process that conducts it, and until when it may be believed alive.
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_expires_at: Mapped[datetime | None]
    #: The one host of a cluster that measures it; null: none was chosen yet, or there is no choice.
    pinned_host: Mapped[str | None] = mapped_column(String(200))


class BisectionRow(Conducted, Base):
    """A request to explain a change along an axis, and what became of it."""

    __tablename__ = "bisections"
    __table_args__ = (Index("ix_bisections_state_created_at", "state", "created_at"),)

    good_sha: Mapped[str] = mapped_column(String(64))
    bad_sha: Mapped[str] = mapped_column(String(64))
    #: Package and index of the published wheels, and what of them is not on the axis; null: none.
    published: Mapped[dict[str, Any] | None]
    #: What people should know of the axis' builds (see ``perfbisect.building_notes``).
    build_notes: Mapped[list[Any] | None]
    #: Companions that move along the axis, or the one that is bisected; null: neither.
    companions: Mapped[dict[str, Any] | None]
    #: What the points say now, for charts: levels, step probabilities, threshold, offsets.
    belief: Mapped[dict[str, Any] | None]


class ExperimentRow(Conducted, Base):
    """Revisions with changes measured against a reference: to prove a culprit, or to decide."""

    __tablename__ = "experiments"
    __table_args__ = (Index("ix_experiments_state_created_at", "state", "created_at"),)

    kind: Mapped[ExperimentKind]
    #: Bisection whose culprit it proves, and the culprit's position there.
    bisection_id: Mapped[str | None] = mapped_column(ForeignKey("bisections.id"), index=True)
    culprit_position: Mapped[int | None]
    #: What the kind needs besides its arms: the list to minimise, the culprit's levels.
    plan: Mapped[dict[str, Any]]


class ArmRow(Base):
    """One revision × environment of an experiment, with what it is compared to."""

    __tablename__ = "arms"

    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiments.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    #: Position of the arm it is compared with; null: a reference only.
    against: Mapped[int | None]
    #: Revision as text: base and changes (see ``perfbisect.core.revision``).
    revision: Mapped[str] = mapped_column(Text)
    #: Commit it is based on; dates the build, and stamps the wheel's version.
    base_sha: Mapped[str] = mapped_column(String(64))
    #: Tree it resolves to; null: it can't be applied, ``problem`` says why.
    tree: Mapped[str | None] = mapped_column(String(64))
    #: Environment variables on top of the benchmark's.
    env: Mapped[dict[str, Any]]
    benchmark_digest: Mapped[str] = mapped_column(ForeignKey("benchmarks.digest"))
    #: Conflict (files, hunks) or emptiness of the revision.
    problem: Mapped[dict[str, Any] | None]
    #: What the arm is for: ``revert_on_bad``, ``pick_on_good``, a subset of a list, ...
    role: Mapped[dict[str, Any]]


class CandidateRow(Base):
    """A position of a bisection's axis; position 0 is the earlier end.

    On an axis of published wheels, ``sha`` is the version and ``tree`` the SHA-256 of its file.
    """

    __tablename__ = "candidates"
    __table_args__ = (Index("ix_candidates_sha", "sha"),)

    bisection_id: Mapped[str] = mapped_column(ForeignKey("bisections.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    sha: Mapped[str] = mapped_column(String(64))
    tree: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(Text)
    author: Mapped[str] = mapped_column(Text)
    #: When a version was published; null: its index does not tell.
    committed_at: Mapped[datetime | None]
    #: Relative prior weight of a step at this position; 0 for position 0.
    weight: Mapped[float]
    #: Relations among the candidates (reverted_by, rollback_of, ...).
    relations: Mapped[list[Any]]
    #: Changes carried here: ``tree`` is the commit's with these on top; null: the commit's own.
    carried: Mapped[list[Any] | None]
    #: Benchmark with the companions of this position's date; null: the bisection's, as none move.
    benchmark_digest: Mapped[str | None] = mapped_column(String(64))


class BuildRow(Base):
    """One attempt to build a tree by a recipe."""

    __tablename__ = "builds"
    __table_args__ = (
        Index("ix_builds_tree_recipe_digest", "tree", "recipe_digest"),
        Index("ix_builds_bisection_id", "bisection_id"),
        # Two bisections that ask for the same tree share one build.
        Index(
            "uq_builds_active",
            "tree",
            "recipe_digest",
            unique=True,
            sqlite_where=_ACTIVE,
            postgresql_where=_ACTIVE,
        ),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    #: Who asked for it first; others may share it.
    bisection_id: Mapped[str | None] = mapped_column(ForeignKey("bisections.id"))
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"), index=True)
    tree: Mapped[str] = mapped_column(String(64))
    recipe_digest: Mapped[str] = mapped_column(String(64))
    commit_sha: Mapped[str] = mapped_column(String(64))
    state: Mapped[WorkState]
    attempt: Mapped[int] = mapped_column(default=1)
    #: Process that started it; its death makes the build lost.
    owner: Mapped[str] = mapped_column(String(200))
    failure_kind: Mapped[FailureKind | None]
    cause: Mapped[str] = mapped_column(Text, default="")
    advice: Mapped[str] = mapped_column(Text, default="")
    lines: Mapped[list[Any]]
    environment: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    seconds: Mapped[float | None]
    #: Key of its log in a shared artifact store; null: the file is on the machine that wrote it.
    log_artifact: Mapped[str | None] = mapped_column(String(200))


class WheelRow(Base):
    """A built artifact of (tree, recipe), or a published one that stands for it."""

    __tablename__ = "wheels"
    __table_args__ = (UniqueConstraint("tree", "recipe_digest"),)

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    tree: Mapped[str] = mapped_column(String(64))
    recipe_digest: Mapped[str] = mapped_column(String(64))
    commit_sha: Mapped[str] = mapped_column(String(64), index=True)
    build_id: Mapped[str | None] = mapped_column(ForeignKey("builds.id"))
    filename: Mapped[str] = mapped_column(Text)
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    size: Mapped[int] = mapped_column(BigInteger)
    #: Key in the artifact store; empty: a published file, downloaded when it is run.
    artifact: Mapped[str] = mapped_column(String(200))
    #: The published file (see ``perfbisect.packages.Published``); null: built here.
    published: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]


class RunRow(Base):
    """One process start of a benchmark on one wheel on one host."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_bisection_id_id", "bisection_id", "id"),
        Index("ix_runs_failed", "bisection_id", sqlite_where=_FAILED, postgresql_where=_FAILED),
        Index("ix_runs_wheel_id_benchmark_digest", "wheel_id", "benchmark_digest"),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    #: Exactly one of the two is set.
    bisection_id: Mapped[str | None] = mapped_column(ForeignKey("bisections.id"))
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"), index=True)
    position: Mapped[int]
    wheel_id: Mapped[str] = mapped_column(ForeignKey("wheels.id"))
    benchmark_digest: Mapped[str] = mapped_column(String(64))
    host: Mapped[str] = mapped_column(String(200))
    purpose: Mapped[Purpose]
    #: For verification: the pair of positions compared.
    pair_before: Mapped[int | None]
    pair_after: Mapped[int | None]
    state: Mapped[WorkState]
    owner: Mapped[str] = mapped_column(String(200))
    failure_kind: Mapped[FailureKind | None]
    cause: Mapped[str] = mapped_column(Text, default="")
    advice: Mapped[str] = mapped_column(Text, default="")
    lines: Mapped[list[Any]]
    #: It would fail like this every time: the wheel itself is unusable.
    certain: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    seconds: Mapped[float | None]
    #: Key of its log in a shared artifact store; null: the file is on the machine that wrote it.
    log_artifact: Mapped[str | None] = mapped_column(String(200))


class PointRow(Base):
    """One measured value. Append-only; rejected ones are kept with their reason."""

    __tablename__ = "points"
    __table_args__ = (
        Index("ix_points_benchmark_digest_tree", "benchmark_digest", "tree"),
        Index("ix_points_bisection_id_measured_at", "bisection_id", "measured_at"),
        # Lists of points are in the order of ids, the newest first.
        Index("ix_points_host_id", "host", "id"),
        Index("ix_points_benchmark_digest_id", "benchmark_digest", "id"),
        Index(
            "ix_points_rejected_host", "host", sqlite_where=_REJECTED, postgresql_where=_REJECTED
        ),
        # Charts count the points of every tree of an axis.
        Index("ix_points_axis", "benchmark_digest", "recipe_digest", "tree"),
        Index(
            "ix_points_rejected",
            "benchmark_digest",
            "recipe_digest",
            "tree",
            sqlite_where=_REJECTED,
            postgresql_where=_REJECTED,
        ),
    )

    id: Mapped[str] = mapped_column(String(26), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), unique=True)
    #: Exactly one of the two is set.
    bisection_id: Mapped[str | None] = mapped_column(ForeignKey("bisections.id"))
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"), index=True)
    wheel_id: Mapped[str] = mapped_column(ForeignKey("wheels.id"))
    #: Tree and recipe of the wheel: points serve every axis on which the tree stands.
    tree: Mapped[str] = mapped_column(String(64))
    recipe_digest: Mapped[str] = mapped_column(String(64))
    commit_sha: Mapped[str] = mapped_column(String(64), index=True)
    benchmark_digest: Mapped[str] = mapped_column(String(64))
    host: Mapped[str] = mapped_column(String(200))
    purpose: Mapped[Purpose]
    pair_before: Mapped[int | None]
    pair_after: Mapped[int | None]
    value: Mapped[float]
    unit: Mapped[str] = mapped_column(String(64))
    #: Values within the process, warm-up dropped.
    within: Mapped[list[Any]]
    measured_at: Mapped[datetime]
    seconds: Mapped[float]
    environment: Mapped[dict[str, Any]]
    #: Empty, or why the point does not count.
    rejected: Mapped[str] = mapped_column(Text, default="")


class DecisionRow(Base):
    """One thing the planner chose, with its reason in words and numbers."""

    __tablename__ = "decisions"
    __table_args__ = (Index("ix_decisions_bisection_id_id", "bisection_id", "id"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    #: Exactly one of the two is set.
    bisection_id: Mapped[str | None] = mapped_column(ForeignKey("bisections.id"))
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"), index=True)
    #: ``build``, ``run``, ``finish`` or ``note``.
    kind: Mapped[str] = mapped_column(String(16))
    position: Mapped[int | None]
    host: Mapped[str | None] = mapped_column(String(200))
    purpose: Mapped[Purpose | None]
    reason: Mapped[str] = mapped_column(Text)
    #: Build or run that carried it out.
    work_id: Mapped[str | None] = mapped_column(String(26))
    at: Mapped[datetime]


class EventRow(Base):
    """Something happened to a bisection; pages and clients follow by id."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_bisection_id_id", "bisection_id", "id"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    #: Exactly one of the two is set.
    bisection_id: Mapped[str | None] = mapped_column(ForeignKey("bisections.id"))
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"), index=True)
    kind: Mapped[str] = mapped_column(String(32))
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime]
