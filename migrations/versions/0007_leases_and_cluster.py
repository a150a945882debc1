"""leases and the cluster

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=250), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    for table in ("bisections", "experiments"):
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.add_column(sa.Column("pinned_host", sa.String(length=200), nullable=True))


def downgrade() -> None:
    """Undo."""
    for table in ("experiments", "bisections"):
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.drop_column("pinned_host")
    op.drop_table("leases")
