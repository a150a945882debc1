"""artifacts and hosts

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    for table in ("builds", "runs"):
        op.add_column(table, sa.Column("log_artifact", sa.String(length=200), nullable=True))
    op.create_table(
        "host_health",
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("health", sa.JSON(), nullable=True),
        sa.Column("out_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("out_by", sa.String(length=200), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("back_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name="fk_host_health_host"),
        sa.PrimaryKeyConstraint("host", name="pk_host_health"),
    )
    op.create_index("ix_points_host_id", "points", ["host", "id"])
    op.create_index("ix_points_benchmark_digest_id", "points", ["benchmark_digest", "id"])
    few = sa.text("rejected <> ''")
    op.create_index(
        "ix_points_rejected_host", "points", ["host"], sqlite_where=few, postgresql_where=few
    )


def downgrade() -> None:
    """Undo."""
    op.drop_index("ix_points_rejected_host", table_name="points")
    op.drop_index("ix_points_benchmark_digest_id", table_name="points")
    op.drop_index("ix_points_host_id", table_name="points")
    op.drop_table("host_health")
    for table in ("runs", "builds"):
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.drop_column("log_artifact")
