"""first tables

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "benchmarks",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_benchmarks")),
    )
    with op.batch_alter_table("benchmarks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_benchmarks_name"), ["name"], unique=False)

    op.create_table(
        "hosts",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("pool", sa.String(length=200), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_hosts")),
    )
    with op.batch_alter_table("hosts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_hosts_pool"), ["pool"], unique=False)

    op.create_table(
        "recipes",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_recipes")),
    )
    with op.batch_alter_table("recipes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_recipes_name"), ["name"], unique=False)

    op.create_table(
        "repositories",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("url", sa.String(length=2000), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_repositories")),
        sa.UniqueConstraint("name", name=op.f("uq_repositories_name")),
        sa.UniqueConstraint("url", name=op.f("uq_repositories_url")),
    )
    op.create_table(
        "bisections",
        sa.Column("good_sha", sa.String(length=64), nullable=False),
        sa.Column("bad_sha", sa.String(length=64), nullable=False),
        sa.Column("published", sa.JSON(), nullable=True),
        sa.Column("belief", sa.JSON(), nullable=True),
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("outcome", sa.String(length=24), nullable=True),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("repository_id", sa.String(length=26), nullable=True),
        sa.Column("recipe_digest", sa.String(length=64), nullable=False),
        sa.Column("benchmark_digest", sa.String(length=64), nullable=False),
        sa.Column("recipe", sa.JSON(), nullable=False),
        sa.Column("benchmark", sa.JSON(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("requested_by", sa.String(length=200), nullable=False),
        sa.Column("origin", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("active_seconds", sa.Float(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("verdict", sa.JSON(), nullable=True),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["benchmark_digest"], ["benchmarks.digest"], name=op.f("fk_bisections_benchmark_digest")
        ),
        sa.ForeignKeyConstraint(
            ["recipe_digest"], ["recipes.digest"], name=op.f("fk_bisections_recipe_digest")
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_bisections_repository_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bisections")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_bisections_idempotency_key")),
    )
    with op.batch_alter_table("bisections", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_bisections_benchmark_digest"), ["benchmark_digest"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_bisections_created_at"), ["created_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_bisections_recipe_digest"), ["recipe_digest"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_bisections_repository_id"), ["repository_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_bisections_request_digest"), ["request_digest"], unique=False
        )
        batch_op.create_index(
            "ix_bisections_state_created_at", ["state", "created_at"], unique=False
        )

    op.create_table(
        "candidates",
        sa.Column("bisection_id", sa.String(length=26), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("sha", sa.String(length=64), nullable=False),
        sa.Column("tree", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("relations", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_candidates_bisection_id")
        ),
        sa.PrimaryKeyConstraint("bisection_id", "position", name=op.f("pk_candidates")),
    )
    with op.batch_alter_table("candidates", schema=None) as batch_op:
        batch_op.create_index("ix_candidates_sha", ["sha"], unique=False)

    op.create_table(
        "experiments",
        sa.Column("kind", sa.String(length=24), nullable=False),
        sa.Column("bisection_id", sa.String(length=26), nullable=True),
        sa.Column("culprit_position", sa.Integer(), nullable=True),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("outcome", sa.String(length=24), nullable=True),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("repository_id", sa.String(length=26), nullable=True),
        sa.Column("recipe_digest", sa.String(length=64), nullable=False),
        sa.Column("benchmark_digest", sa.String(length=64), nullable=False),
        sa.Column("recipe", sa.JSON(), nullable=False),
        sa.Column("benchmark", sa.JSON(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("requested_by", sa.String(length=200), nullable=False),
        sa.Column("origin", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("active_seconds", sa.Float(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("verdict", sa.JSON(), nullable=True),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["benchmark_digest"],
            ["benchmarks.digest"],
            name=op.f("fk_experiments_benchmark_digest"),
        ),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_experiments_bisection_id")
        ),
        sa.ForeignKeyConstraint(
            ["recipe_digest"], ["recipes.digest"], name=op.f("fk_experiments_recipe_digest")
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_experiments_repository_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_experiments_idempotency_key")),
    )
    with op.batch_alter_table("experiments", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_experiments_benchmark_digest"), ["benchmark_digest"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_experiments_bisection_id"), ["bisection_id"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_experiments_created_at"), ["created_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_experiments_recipe_digest"), ["recipe_digest"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_experiments_repository_id"), ["repository_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_experiments_request_digest"), ["request_digest"], unique=False
        )
        batch_op.create_index(
            "ix_experiments_state_created_at", ["state", "created_at"], unique=False
        )

    op.create_table(
        "arms",
        sa.Column("experiment_id", sa.String(length=26), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("against", sa.Integer(), nullable=True),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("base_sha", sa.String(length=64), nullable=False),
        sa.Column("tree", sa.String(length=64), nullable=True),
        sa.Column("env", sa.JSON(), nullable=False),
        sa.Column("benchmark_digest", sa.String(length=64), nullable=False),
        sa.Column("problem", sa.JSON(), nullable=True),
        sa.Column("role", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_digest"], ["benchmarks.digest"], name=op.f("fk_arms_benchmark_digest")
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_arms_experiment_id")
        ),
        sa.PrimaryKeyConstraint("experiment_id", "position", name=op.f("pk_arms")),
    )
    op.create_table(
        "builds",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("bisection_id", sa.String(length=26), nullable=True),
        sa.Column("experiment_id", sa.String(length=26), nullable=True),
        sa.Column("tree", sa.String(length=64), nullable=False),
        sa.Column("recipe_digest", sa.String(length=64), nullable=False),
        sa.Column("commit_sha", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("failure_kind", sa.String(length=16), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("advice", sa.Text(), nullable=False),
        sa.Column("lines", sa.JSON(), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_builds_bisection_id")
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_builds_experiment_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_builds")),
    )
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.create_index("ix_builds_bisection_id", ["bisection_id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_builds_experiment_id"), ["experiment_id"], unique=False
        )
        batch_op.create_index(
            "ix_builds_tree_recipe_digest", ["tree", "recipe_digest"], unique=False
        )
        batch_op.create_index(
            "uq_builds_active",
            ["tree", "recipe_digest"],
            unique=True,
            sqlite_where=sa.text("state IN ('queued', 'running')"),
            postgresql_where=sa.text("state IN ('queued', 'running')"),
        )

    op.create_table(
        "decisions",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("bisection_id", sa.String(length=26), nullable=True),
        sa.Column("experiment_id", sa.String(length=26), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("position", sa.Integer(), nullable=True),
        sa.Column("host", sa.String(length=200), nullable=True),
        sa.Column("purpose", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("work_id", sa.String(length=26), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_decisions_bisection_id")
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_decisions_experiment_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )
    with op.batch_alter_table("decisions", schema=None) as batch_op:
        batch_op.create_index("ix_decisions_bisection_id_id", ["bisection_id", "id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_decisions_experiment_id"), ["experiment_id"], unique=False
        )

    op.create_table(
        "events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("bisection_id", sa.String(length=26), nullable=True),
        sa.Column("experiment_id", sa.String(length=26), nullable=True),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_events_bisection_id")
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_events_experiment_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index("ix_events_bisection_id_id", ["bisection_id", "id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_events_experiment_id"), ["experiment_id"], unique=False
        )

    op.create_table(
        "wheels",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("tree", sa.String(length=64), nullable=False),
        sa.Column("recipe_digest", sa.String(length=64), nullable=False),
        sa.Column("commit_sha", sa.String(length=64), nullable=False),
        sa.Column("build_id", sa.String(length=26), nullable=True),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("artifact", sa.String(length=200), nullable=False),
        sa.Column("published", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["builds.id"], name=op.f("fk_wheels_build_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_wheels")),
        sa.UniqueConstraint("tree", "recipe_digest", name=op.f("uq_wheels_tree_recipe_digest")),
    )
    with op.batch_alter_table("wheels", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_wheels_commit_sha"), ["commit_sha"], unique=False)
        batch_op.create_index(batch_op.f("ix_wheels_sha256"), ["sha256"], unique=False)

    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("bisection_id", sa.String(length=26), nullable=True),
        sa.Column("experiment_id", sa.String(length=26), nullable=True),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("wheel_id", sa.String(length=26), nullable=False),
        sa.Column("benchmark_digest", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("pair_before", sa.Integer(), nullable=True),
        sa.Column("pair_after", sa.Integer(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("failure_kind", sa.String(length=16), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("advice", sa.Text(), nullable=False),
        sa.Column("lines", sa.JSON(), nullable=False),
        sa.Column("certain", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_runs_bisection_id")
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_runs_experiment_id")
        ),
        sa.ForeignKeyConstraint(["wheel_id"], ["wheels.id"], name=op.f("fk_runs_wheel_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index("ix_runs_bisection_id", ["bisection_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_experiment_id"), ["experiment_id"], unique=False)
        batch_op.create_index(
            "ix_runs_wheel_id_benchmark_digest", ["wheel_id", "benchmark_digest"], unique=False
        )

    op.create_table(
        "points",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("run_id", sa.String(length=26), nullable=False),
        sa.Column("bisection_id", sa.String(length=26), nullable=True),
        sa.Column("experiment_id", sa.String(length=26), nullable=True),
        sa.Column("wheel_id", sa.String(length=26), nullable=False),
        sa.Column("tree", sa.String(length=64), nullable=False),
        sa.Column("recipe_digest", sa.String(length=64), nullable=False),
        sa.Column("commit_sha", sa.String(length=64), nullable=False),
        sa.Column("benchmark_digest", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("pair_before", sa.Integer(), nullable=True),
        sa.Column("pair_after", sa.Integer(), nullable=True),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("unit", sa.String(length=64), nullable=False),
        sa.Column("within", sa.JSON(), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("rejected", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_points_bisection_id")
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_points_experiment_id")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_points_run_id")),
        sa.ForeignKeyConstraint(["wheel_id"], ["wheels.id"], name=op.f("fk_points_wheel_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_points")),
        sa.UniqueConstraint("run_id", name=op.f("uq_points_run_id")),
    )
    with op.batch_alter_table("points", schema=None) as batch_op:
        batch_op.create_index(
            "ix_points_benchmark_digest_tree", ["benchmark_digest", "tree"], unique=False
        )
        batch_op.create_index(
            "ix_points_bisection_id_measured_at", ["bisection_id", "measured_at"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_points_commit_sha"), ["commit_sha"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_points_experiment_id"), ["experiment_id"], unique=False
        )


def downgrade() -> None:
    """Undo."""
    with op.batch_alter_table("points", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_points_experiment_id"))
        batch_op.drop_index(batch_op.f("ix_points_commit_sha"))
        batch_op.drop_index("ix_points_bisection_id_measured_at")
        batch_op.drop_index("ix_points_benchmark_digest_tree")

    op.drop_table("points")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index("ix_runs_wheel_id_benchmark_digest")
        batch_op.drop_index(batch_op.f("ix_runs_experiment_id"))
        batch_op.drop_index("ix_runs_bisection_id")

    op.drop_table("runs")
    with op.batch_alter_table("wheels", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_wheels_sha256"))
        batch_op.drop_index(batch_op.f("ix_wheels_commit_sha"))

    op.drop_table("wheels")
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_events_experiment_id"))
        batch_op.drop_index("ix_events_bisection_id_id")

    op.drop_table("events")
    with op.batch_alter_table("decisions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_decisions_experiment_id"))
        batch_op.drop_index("ix_decisions_bisection_id_id")

    op.drop_table("decisions")
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_builds_active",
            sqlite_where=sa.text("state IN ('queued', 'running')"),
            postgresql_where=sa.text("state IN ('queued', 'running')"),
        )
        batch_op.drop_index("ix_builds_tree_recipe_digest")
        batch_op.drop_index(batch_op.f("ix_builds_experiment_id"))
        batch_op.drop_index("ix_builds_bisection_id")

    op.drop_table("builds")
    op.drop_table("arms")
    with op.batch_alter_table("experiments", schema=None) as batch_op:
        batch_op.drop_index("ix_experiments_state_created_at")
        batch_op.drop_index(batch_op.f("ix_experiments_request_digest"))
        batch_op.drop_index(batch_op.f("ix_experiments_repository_id"))
        batch_op.drop_index(batch_op.f("ix_experiments_recipe_digest"))
        batch_op.drop_index(batch_op.f("ix_experiments_created_at"))
        batch_op.drop_index(batch_op.f("ix_experiments_bisection_id"))
        batch_op.drop_index(batch_op.f("ix_experiments_benchmark_digest"))

    op.drop_table("experiments")
    with op.batch_alter_table("candidates", schema=None) as batch_op:
        batch_op.drop_index("ix_candidates_sha")

    op.drop_table("candidates")
    with op.batch_alter_table("bisections", schema=None) as batch_op:
        batch_op.drop_index("ix_bisections_state_created_at")
        batch_op.drop_index(batch_op.f("ix_bisections_request_digest"))
        batch_op.drop_index(batch_op.f("ix_bisections_repository_id"))
        batch_op.drop_index(batch_op.f("ix_bisections_recipe_digest"))
        batch_op.drop_index(batch_op.f("ix_bisections_created_at"))
        batch_op.drop_index(batch_op.f("ix_bisections_benchmark_digest"))

    op.drop_table("bisections")
    op.drop_table("repositories")
    with op.batch_alter_table("recipes", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_recipes_name"))

    op.drop_table("recipes")
    with op.batch_alter_table("hosts", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_hosts_pool"))

    op.drop_table("hosts")
    with op.batch_alter_table("benchmarks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_benchmarks_name"))

    op.drop_table("benchmarks")
