"""All points of an axis, for whoever wants them in one piece: neither memory nor patience grows."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import select

from perfbisect.store import queries
from perfbisect.store.catalogue import EXPORT_BATCH
from perfbisect.store.database import Database
from perfbisect.store.page_queries import AnyRow
from perfbisect.store.queries import Axis, PointCounts
from perfbisect.store.tables import PointRow

_POINT = (
    PointRow.id,
    PointRow.tree,
    PointRow.commit_sha,
    PointRow.value,
    PointRow.unit,
    PointRow.host,
    PointRow.purpose,
    PointRow.rejected,
    PointRow.measured_at,
    PointRow.seconds,
    PointRow.run_id,
    PointRow.bisection_id,
    PointRow.experiment_id,
    PointRow.wheel_id,
    PointRow.environment,
)


def export_axis_points(
    database: Database, bisection_id: str
) -> tuple[Axis, Iterator[list[AnyRow]]]:
    """Return an axis, and every point that speaks for it in batches, in order of the axis.

    Each batch is read by itself, so that a slow reader keeps no transaction open for long, and by
    the index of trees: in order of id, every batch would sort all points once more.

    Raises:
        NotFoundError: no such bisection.
    """
    with database.read() as session:
        row = queries.get_bisection(session, bisection_id).row
        axis = queries.axis_of(session, bisection_id)
        counts = queries.count_axis_points(session, row)

    def batches() -> Iterator[list[AnyRow]]:
        for trees in _grouped(axis, counts):
            query = (
                select(*_POINT)
                .where(queries.speaks_for(row), PointRow.tree.in_(trees))
                .order_by(PointRow.id)
            )
            with database.read() as session:
                rows = session.execute(query.execution_options(yield_per=EXPORT_BATCH))
                for batch in rows.partitions():
                    yield sorted(batch, key=lambda point: axis.position_of_tree[point.tree])

    return axis, batches()


def _grouped(axis: Axis, counts: dict[str, PointCounts]) -> Iterator[list[str]]:
    """Yield trees in order of the axis, so many at a time that their points make a batch."""
    group: list[str] = []
    held = 0
    for tree in axis.position_of_tree:
        if tree not in counts:
            continue
        points = counts[tree].accepted + counts[tree].rejected
        if group and held + points > EXPORT_BATCH:
            yield group
            group, held = [], 0
        group.append(tree)
        held += points
    if group:
        yield group
