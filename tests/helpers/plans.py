"""What a database plans to do for the queries of an answer: which tables it would read whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

from perfbisect.store.database import Database

#: Tables that grow with everything that is measured.
GROWING = ("points", "runs", "candidates", "builds", "wheels", "events", "decisions")

Query = tuple[str, Any]


@contextmanager
def queries(engine: Engine) -> Iterator[list[Query]]:
    """Yield a list that gets every query: its text and its parameters."""
    seen: list[Query] = []

    def before(*given: Any) -> None:
        statement, parameters, many = given[2], given[3], given[5]
        if not many and statement.lstrip().upper().startswith(("SELECT", "WITH")):
            seen.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", before)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", before)


def whole_reads(database: Database, asked: Sequence[Query]) -> list[str]:
    """Return what of the plans reads a growing table whole, with the query's text.

    An index that is read in its order for a ``LIMIT``, without a condition, is none. PostgreSQL is
    told to avoid reading whole tables, which it prefers while they are small: what is left has no
    index to use.
    """
    found = []
    with database.engine.connect() as connection:
        if not database.is_sqlite:
            connection.exec_driver_sql("SET enable_seqscan = off")
        for statement, parameters in dict.fromkeys((text, _frozen(given)) for text, given in asked):
            explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
            given = _thawed(parameters)
            rows = connection.exec_driver_sql(f"{explain} {statement}", given).all()
            lines = [str(row[-1]) for row in rows]
            if wrong := [line for line in lines if _reads_whole(line, statement)]:
                found.append(f"{wrong} of {lines}\n{statement}")
    return found


def _reads_whole(line: str, statement: str) -> bool:
    tables = "|".join(GROWING)
    if re.search(rf"Seq Scan on ({tables})\b", line):
        return True
    scan = re.search(rf"^SCAN ({tables})\b(?: USING (?:COVERING )?INDEX (\w+))?", line)
    first_few = "LIMIT" in statement and "WHERE" not in statement
    return scan is not None and not (scan.group(2) and first_few)


def _frozen(parameters: Any) -> Any:
    return tuple(parameters.items()) if isinstance(parameters, dict) else tuple(parameters)


def _thawed(parameters: Any) -> Any:
    named = parameters and isinstance(parameters[0], tuple)
    return dict(parameters) if named else parameters
