"""Alembic's entry: runs migrations one process at a time, with bounded waits on PostgreSQL."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.pool import NullPool

from perfbisect.store import access_tables as _access_tables  # noqa: F401 - declares its tables
from perfbisect.store import alert_tables as _alert_tables  # noqa: F401 - declares its tables
from perfbisect.store import artifact_tables as _artifact_tables  # noqa: F401 - declares its table
from perfbisect.store import host_tables as _host_tables  # noqa: F401 - declares its table
from perfbisect.store import lease_tables as _lease_tables  # noqa: F401 - declares its tables
from perfbisect.store import series_tables as _series_tables  # noqa: F401 - declares its tables
from perfbisect.store.tables import Base, EnumText, UtcDateTime

#: Arbitrary but fixed: every perfbisect process asks for the same advisory lock.
LOCK_KEY = 7_236_187_904


def _render_item(kind: str, item: object, _: object) -> str | bool:
    # Migrations must not import the package: they outlive its classes.
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and isinstance(item, EnumText):
        return f"sa.String(length={item.impl_instance.length})"
    return False


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        compare_type=True,
        render_item=_render_item,
        render_as_batch=connection.dialect.name == "sqlite",
        transaction_per_migration=False,
    )
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL lock_timeout = '10s'"))
            connection.execute(text("SET LOCAL statement_timeout = '15min'"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        context.run_migrations()


def run() -> None:
    """Use the caller's connection, or open one for the ``alembic`` command."""
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _migrate(connection)
        if not connection.in_transaction():
            return
        connection.commit()
        return
    url = context.config.get_main_option("sqlalchemy.url")
    if not url:
        from perfbisect.settings import Settings

        url = Settings().url
    engine = create_engine(url, poolclass=NullPool)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "begin", lambda c: c.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.connect() as own:
        _migrate(own)
        own.commit()


run()
