"""companions and artifacts

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("candidates", sa.Column("benchmark_digest", sa.String(length=64), nullable=True))
    op.add_column("bisections", sa.Column("companions", sa.JSON(), nullable=True))
    op.create_table(
        "run_artifacts",
        sa.Column("run_id", sa.String(length=26), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("artifact", sa.String(length=200), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_artifacts_run_id"),
        sa.PrimaryKeyConstraint("run_id", "position", name="pk_run_artifacts"),
    )
    op.create_index("ix_run_artifacts_artifact", "run_artifacts", ["artifact"])


def downgrade() -> None:
    """Undo."""
    op.drop_table("run_artifacts")
    with op.batch_alter_table("bisections", schema=None) as batch_op:
        batch_op.drop_column("companions")
    with op.batch_alter_table("candidates", schema=None) as batch_op:
        batch_op.drop_column("benchmark_digest")
