"""nightly series

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "series",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("benchmark", sa.String(length=200), nullable=False),
        sa.Column("unit", sa.String(length=64), nullable=False),
        sa.Column("better", sa.String(length=8), nullable=False),
        sa.Column("repository", sa.String(length=2000), nullable=True),
        sa.Column("branch", sa.String(length=200), nullable=False),
        sa.Column("package", sa.String(length=200), nullable=True),
        sa.Column("recipe", sa.String(length=200), nullable=True),
        sa.Column("pool", sa.String(length=200), nullable=False),
        sa.Column("detection", sa.JSON(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("schedule", sa.String(length=100), nullable=False),
        sa.Column("defined_by", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("searched_night", sa.Date(), nullable=True),
        sa.Column("searched_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint("name", name=op.f("uq_series_name")),
    )
    op.create_table(
        "series_deliveries",
        sa.Column("idempotency_key", sa.String(length=200), nullable=False),
        sa.Column("series_id", sa.String(length=26), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=op.f("fk_series_deliveries_series_id")
        ),
        sa.PrimaryKeyConstraint("idempotency_key", name=op.f("pk_series_deliveries")),
    )
    with op.batch_alter_table("series_deliveries", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_series_deliveries_series_id"), ["series_id"], unique=False
        )

    op.create_table(
        "series_nights",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("series_id", sa.String(length=26), nullable=False),
        sa.Column("night", sa.Date(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("version", sa.String(length=200), nullable=False),
        sa.Column("commits", sa.JSON(), nullable=False),
        sa.Column("experiment_id", sa.String(length=26), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_series_nights_experiment_id")
        ),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=op.f("fk_series_nights_series_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series_nights")),
        sa.UniqueConstraint("series_id", "night", name=op.f("uq_series_nights_series_id_night")),
    )
    with op.batch_alter_table("series_nights", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_series_nights_state"), ["state"], unique=False)

    op.create_table(
        "series_points",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("series_id", sa.String(length=26), nullable=False),
        sa.Column("night", sa.Date(), nullable=False),
        sa.Column("version", sa.String(length=200), nullable=False),
        sa.Column("commits", sa.JSON(), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("run_values", sa.JSON(), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("experiment_id", sa.String(length=26), nullable=True),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_series_points_experiment_id")
        ),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=op.f("fk_series_points_series_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series_points")),
        sa.UniqueConstraint(
            "series_id",
            "night",
            "version",
            "host",
            name=op.f("uq_series_points_series_id_night_version_host"),
        ),
    )
    with op.batch_alter_table("series_points", schema=None) as batch_op:
        batch_op.create_index(
            "ix_series_points_series_id_received_at", ["series_id", "received_at"], unique=False
        )

    op.create_table(
        "series_changes",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("series_id", sa.String(length=26), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("last_good_night", sa.Date(), nullable=False),
        sa.Column("first_bad_night", sa.Date(), nullable=False),
        sa.Column("good_point_id", sa.String(length=26), nullable=False),
        sa.Column("bad_point_id", sa.String(length=26), nullable=False),
        sa.Column("suspected_night", sa.Date(), nullable=False),
        sa.Column("probability", sa.Double(), nullable=False),
        sa.Column("before", sa.Double(), nullable=False),
        sa.Column("before_low", sa.Double(), nullable=False),
        sa.Column("before_high", sa.Double(), nullable=False),
        sa.Column("after", sa.Double(), nullable=False),
        sa.Column("after_low", sa.Double(), nullable=False),
        sa.Column("after_high", sa.Double(), nullable=False),
        sa.Column("change", sa.Double(), nullable=False),
        sa.Column("change_low", sa.Double(), nullable=False),
        sa.Column("change_high", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.String(length=26), nullable=True),
        sa.Column("cant_measure", sa.Text(), nullable=False),
        sa.Column("confirmed_by", sa.String(length=16), nullable=False),
        sa.Column("recovers_id", sa.String(length=26), nullable=True),
        sa.Column("remaining", sa.Double(), nullable=True),
        sa.Column("announced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("refuted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["bad_point_id"], ["series_points.id"], name=op.f("fk_series_changes_bad_point_id")
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_series_changes_experiment_id")
        ),
        sa.ForeignKeyConstraint(
            ["good_point_id"], ["series_points.id"], name=op.f("fk_series_changes_good_point_id")
        ),
        sa.ForeignKeyConstraint(
            ["recovers_id"], ["series_changes.id"], name=op.f("fk_series_changes_recovers_id")
        ),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=op.f("fk_series_changes_series_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series_changes")),
        sa.UniqueConstraint(
            "series_id",
            "first_bad_night",
            "kind",
            name=op.f("uq_series_changes_series_id_first_bad_night_kind"),
        ),
    )
    with op.batch_alter_table("series_changes", schema=None) as batch_op:
        batch_op.create_index("ix_series_changes_state", ["state"], unique=False)


def downgrade() -> None:
    """Undo."""
    with op.batch_alter_table("series_changes", schema=None) as batch_op:
        batch_op.drop_index("ix_series_changes_state")

    op.drop_table("series_changes")
    with op.batch_alter_table("series_points", schema=None) as batch_op:
        batch_op.drop_index("ix_series_points_series_id_received_at")

    op.drop_table("series_points")
    with op.batch_alter_table("series_nights", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_series_nights_state"))

    op.drop_table("series_nights")
    with op.batch_alter_table("series_deliveries", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_series_deliveries_series_id"))

    op.drop_table("series_deliveries")
    op.drop_table("series")
