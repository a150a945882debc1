"""Which benchmark a position of an axis is measured by: its own where a companion moves."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Select, func, literal, select

from perfbisect.store.tables import BisectionRow, CandidateRow


def benchmark_at(row: BisectionRow) -> ColumnElement[str]:
    """Return the digest of a candidate's benchmark, for queries that select from candidates."""
    if row.companions is None:
        return literal(row.benchmark_digest)
    return func.coalesce(CandidateRow.benchmark_digest, row.benchmark_digest)


def benchmarks_of(row: BisectionRow) -> Select[str]:
    """Return the digests of all benchmarks along a bisection's axis, as a subquery."""
    if row.companions is None:
        return select(literal(row.benchmark_digest))
    return select(benchmark_at(row)).where(CandidateRow.bisection_id == row.id).distinct()
