"""tokens and limits

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("rate_limit", sa.String(length=100), nullable=True),
        sa.Column("max_unfinished", sa.Integer(), nullable=True),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("name", name=op.f("uq_tokens_name")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
    )
    op.create_table(
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("token_id", sa.String(length=26), nullable=True),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.create_index("ix_audit_actor_id", ["actor", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_audit_action"), ["action"], unique=False)
    op.create_table(
        "once",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_once")),
    )
    with op.batch_alter_table("once", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_once_created_at"), ["created_at"], unique=False)
    _index_evidence()
    # Lists filter by who asked.
    with op.batch_alter_table("bisections", schema=None) as batch_op:
        batch_op.create_index("ix_bisections_requested_by", ["requested_by"], unique=False)
    with op.batch_alter_table("experiments", schema=None) as batch_op:
        batch_op.create_index("ix_experiments_requested_by", ["requested_by"], unique=False)


def _index_evidence() -> None:
    """Make what the page of a bisection reads be read from indices alone."""
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index("ix_runs_bisection_id")
        batch_op.create_index("ix_runs_bisection_id_id", ["bisection_id", "id"], unique=False)
        batch_op.create_index(
            "ix_runs_failed",
            ["bisection_id"],
            unique=False,
            sqlite_where=sa.text("failure_kind IS NOT NULL"),
            postgresql_where=sa.text("failure_kind IS NOT NULL"),
        )
    columns = ["benchmark_digest", "recipe_digest", "tree"]
    with op.batch_alter_table("points", schema=None) as batch_op:
        batch_op.create_index("ix_points_axis", columns, unique=False)
        batch_op.create_index(
            "ix_points_rejected",
            columns,
            unique=False,
            sqlite_where=sa.text("rejected <> ''"),
            postgresql_where=sa.text("rejected <> ''"),
        )


def downgrade() -> None:
    """Undo."""
    with op.batch_alter_table("points", schema=None) as batch_op:
        batch_op.drop_index("ix_points_rejected")
        batch_op.drop_index("ix_points_axis")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index("ix_runs_failed")
        batch_op.drop_index("ix_runs_bisection_id_id")
        batch_op.create_index("ix_runs_bisection_id", ["bisection_id"], unique=False)
    with op.batch_alter_table("experiments", schema=None) as batch_op:
        batch_op.drop_index("ix_experiments_requested_by")
    with op.batch_alter_table("bisections", schema=None) as batch_op:
        batch_op.drop_index("ix_bisections_requested_by")
    op.drop_table("once")
    op.drop_table("audit")
    op.drop_table("tokens")
