"""alerts and messages

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "feedback",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("bisection_id", sa.String(length=26), nullable=False),
        sa.Column("is_right", sa.Boolean(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("by", sa.String(length=200), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_feedback_bisection_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feedback")),
    )
    with op.batch_alter_table("feedback", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_feedback_at"), ["at"], unique=False)
        batch_op.create_index("ix_feedback_bisection_id_id", ["bisection_id", "id"], unique=False)

    op.create_table(
        "findings",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("origin", sa.String(length=2000), nullable=False),
        sa.Column("commits_digest", sa.String(length=64), nullable=False),
        sa.Column("commits", sa.JSON(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("bisection_id", sa.String(length=26), nullable=False),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("proven_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_findings_bisection_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_findings")),
        sa.UniqueConstraint(
            "origin", "commits_digest", name=op.f("uq_findings_origin_commits_digest")
        ),
    )
    with op.batch_alter_table("findings", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_findings_bisection_id"), ["bisection_id"], unique=False
        )

    op.create_table(
        "alerts",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("fingerprint", sa.String(length=200), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("held_by", sa.String(length=16), nullable=False),
        sa.Column("held_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("series", sa.String(length=200), nullable=True),
        sa.Column("repository", sa.String(length=2000), nullable=True),
        sa.Column("package", sa.String(length=200), nullable=True),
        sa.Column("recipe", sa.String(length=200), nullable=True),
        sa.Column("benchmark", sa.String(length=200), nullable=True),
        sa.Column("pool", sa.String(length=200), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("good", sa.String(length=2000), nullable=True),
        sa.Column("bad", sa.String(length=2000), nullable=True),
        sa.Column("before", sa.Double(), nullable=True),
        sa.Column("after", sa.Double(), nullable=True),
        sa.Column("change", sa.Double(), nullable=True),
        sa.Column("probability", sa.Double(), nullable=True),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("group_key", sa.String(length=64), nullable=True),
        sa.Column("leader_id", sa.String(length=26), nullable=True),
        sa.Column("alone", sa.Boolean(), nullable=False),
        sa.Column("by_hand", sa.Boolean(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("bisection_id", sa.String(length=26), nullable=True),
        sa.Column("experiment_id", sa.String(length=26), nullable=True),
        sa.Column("finding_id", sa.String(length=26), nullable=True),
        sa.Column("notices", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_notice_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("bisected_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("resolution", sa.Text(), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_by", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_alerts_bisection_id")
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_alerts_experiment_id")
        ),
        sa.ForeignKeyConstraint(["finding_id"], ["findings.id"], name=op.f("fk_alerts_finding_id")),
        sa.ForeignKeyConstraint(["leader_id"], ["alerts.id"], name=op.f("fk_alerts_leader_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
        sa.UniqueConstraint(
            "source",
            "fingerprint",
            "started_at",
            name=op.f("uq_alerts_source_fingerprint_started_at"),
        ),
    )
    with op.batch_alter_table("alerts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_alerts_bisected_at"), ["bisected_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_alerts_bisection_id"), ["bisection_id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_alerts_experiment_id"), ["experiment_id"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_alerts_finding_id"), ["finding_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_alerts_group_key"), ["group_key"], unique=False)
        batch_op.create_index(batch_op.f("ix_alerts_leader_id"), ["leader_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_alerts_series"), ["series"], unique=False)
        batch_op.create_index("ix_alerts_state_created_at", ["state", "created_at"], unique=False)

    op.create_table(
        "announcements",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("alert_id", sa.String(length=26), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("spread_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["alert_id"], ["alerts.id"], name=op.f("fk_announcements_alert_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_announcements")),
        sa.UniqueConstraint("alert_id", "key", name=op.f("uq_announcements_alert_id_key")),
    )
    with op.batch_alter_table("announcements", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_announcements_spread_at"), ["spread_at"], unique=False)

    op.create_table(
        "messages",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("target", sa.String(length=100), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("dedupe_key", sa.String(length=200), nullable=False),
        sa.Column("alert_id", sa.String(length=26), nullable=True),
        sa.Column("bisection_id", sa.String(length=26), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["alert_id"], ["alerts.id"], name=op.f("fk_messages_alert_id")),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_messages_bisection_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sa.UniqueConstraint("target", "dedupe_key", name=op.f("uq_messages_target_dedupe_key")),
    )
    with op.batch_alter_table("messages", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_messages_alert_id"), ["alert_id"], unique=False)
        batch_op.create_index(
            "ix_messages_state_next_attempt_at", ["state", "next_attempt_at"], unique=False
        )

    op.create_table(
        "notices",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.Column("alert_id", sa.String(length=26), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("excerpt", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["alert_id"], ["alerts.id"], name=op.f("fk_notices_alert_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
    )
    with op.batch_alter_table("notices", schema=None) as batch_op:
        batch_op.create_index("ix_notices_alert_id_id", ["alert_id", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_notices_at"), ["at"], unique=False)

    with op.batch_alter_table("bisections", schema=None) as batch_op:
        batch_op.add_column(sa.Column("priority", sa.Integer(), server_default="0", nullable=False))

    with op.batch_alter_table("experiments", schema=None) as batch_op:
        batch_op.add_column(sa.Column("priority", sa.Integer(), server_default="0", nullable=False))


def downgrade() -> None:
    """Undo."""
    with op.batch_alter_table("experiments", schema=None) as batch_op:
        batch_op.drop_column("priority")

    with op.batch_alter_table("bisections", schema=None) as batch_op:
        batch_op.drop_column("priority")

    with op.batch_alter_table("notices", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_notices_at"))
        batch_op.drop_index("ix_notices_alert_id_id")

    op.drop_table("notices")
    with op.batch_alter_table("messages", schema=None) as batch_op:
        batch_op.drop_index("ix_messages_state_next_attempt_at")
        batch_op.drop_index(batch_op.f("ix_messages_alert_id"))

    op.drop_table("messages")
    with op.batch_alter_table("announcements", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_announcements_spread_at"))

    op.drop_table("announcements")
    with op.batch_alter_table("alerts", schema=None) as batch_op:
        batch_op.drop_index("ix_alerts_state_created_at")
        batch_op.drop_index(batch_op.f("ix_alerts_series"))
        batch_op.drop_index(batch_op.f("ix_alerts_leader_id"))
        batch_op.drop_index(batch_op.f("ix_alerts_group_key"))
        batch_op.drop_index(batch_op.f("ix_alerts_finding_id"))
        batch_op.drop_index(batch_op.f("ix_alerts_experiment_id"))
        batch_op.drop_index(batch_op.f("ix_alerts_bisection_id"))
        batch_op.drop_index(batch_op.f("ix_alerts_bisected_at"))

    op.drop_table("alerts")
    with op.batch_alter_table("findings", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_findings_bisection_id"))

    op.drop_table("findings")
    with op.batch_alter_table("feedback", schema=None) as batch_op:
        batch_op.drop_index("ix_feedback_bisection_id_id")
        batch_op.drop_index(batch_op.f("ix_feedback_at"))

    op.drop_table("feedback")
