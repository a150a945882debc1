"""What all tables are made of: their base, and columns for moments, words and long keys."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, MetaData, String, TypeDecorator
from sqlalchemy.orm import DeclarativeBase

from perfbisect.core.states import (
    BisectionState,
    ExperimentKind,
    FailureKind,
    Outcome,
    Purpose,
    WorkState,
)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware moment in UTC; SQLite has no time zones, so they are put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse naive moments and store UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a moment without a time zone can't be stored")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return an aware moment."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class EnumText(TypeDecorator[StrEnum]):
    """A word of a ``StrEnum``, stored as text; other words are refused on both ways."""

    impl = String
    cache_ok = True

    def __init__(self, words: type[StrEnum], length: int) -> None:
        super().__init__(length)
        self.words = words

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Store the word."""
        return None if value is None else self.words(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> StrEnum | None:
        """Return the enum's member, so that ``is`` holds."""
        return None if value is None else self.words(value)


class Base(DeclarativeBase):
    """Declarative base: constraint names are fixed so that migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own declaration
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        list[Any]: JSON,
        BisectionState: EnumText(BisectionState, 16),
        Outcome: EnumText(Outcome, 24),
        WorkState: EnumText(WorkState, 16),
        FailureKind: EnumText(FailureKind, 16),
        Purpose: EnumText(Purpose, 16),
        ExperimentKind: EnumText(ExperimentKind, 24),
    }


#: Autoincrementing key that is 64 bits wide on PostgreSQL and a rowid on SQLite.
BigId = BigInteger().with_variant(Integer, "sqlite")
