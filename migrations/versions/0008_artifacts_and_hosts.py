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


def downgrade() -> None:
    """Undo."""
    for table in ("runs", "builds"):
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.drop_column("log_artifact")
