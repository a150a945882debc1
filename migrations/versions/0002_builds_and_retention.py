"""builds and retention

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("candidates", sa.Column("carried", sa.JSON(), nullable=True))
    op.add_column("bisections", sa.Column("build_notes", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Undo."""
    with op.batch_alter_table("bisections", schema=None) as batch_op:
        batch_op.drop_column("build_notes")
    with op.batch_alter_table("candidates", schema=None) as batch_op:
        batch_op.drop_column("carried")
