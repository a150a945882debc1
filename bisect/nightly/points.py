"""Points of nights: checked, stored once however often they are sent, and read back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.core.moments import in_utc
from perfbisect.core.reading import LEAST_VALUE, MOST_VALUE
from perfbisect.core.recipe import digest_of
from perfbisect.errors import BadInputError, ConflictError
from perfbisect.services import Services
from perfbisect.store.database import new_id, now
from perfbisect.store.series_tables import SeriesDeliveryRow, SeriesPointRow, SeriesRow

#: Points in one delivery.
MOST_POINTS = 5000
#: Earlier nights than this are a mistake of the sender.
EARLIEST = date(1990, 1, 1)


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("should be a number, not true or false")
    return value


Value = Annotated[
    float,
    BeforeValidator(_no_truth),
    Field(gt=0, ge=LEAST_VALUE, le=MOST_VALUE, allow_inf_nan=False),
]
Sha = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{4,64}$")]


class NightPoint(BaseModel):
    """What a night's version gave on one host."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    night: date = Field(description="Day of the build.", examples=["2019-09-14"])
    value: Value | None = Field(
        default=None,
        description="In the series' unit; null: the median of `values`.",
    )
    values: tuple[Value, ...] = Field(default=(), max_length=1000, description="One for each run.")
    runs: int | None = Field(default=None, ge=1, le=100_000, description="Runs behind `value`.")
    version: Annotated[str, Field(max_length=200)] = ""
    commits: dict[Annotated[str, Field(max_length=200)], Sha] = Field(
        default_factory=dict, max_length=50, description="Commit of each repository built."
    )
    host: Annotated[str, Field(max_length=200)] = ""
    measured_at: datetime | None = None

    @field_validator("measured_at")
    @classmethod
    def _on_the_calendar(cls, value: datetime | None) -> datetime | None:
        if value is not None:
            in_utc(value)
        return value

    @field_validator("night")
    @classmethod
    def _possible(cls, value: date) -> date:
        # It may be tomorrow already where the sender is. A night beyond that would be the newest
        # one for as long as the series exists.
        latest = (now() + timedelta(days=1)).date()
        if not EARLIEST <= value <= latest:
            raise ValueError(f"a night is a day from {EARLIEST} to {latest}")
        return value

    @model_validator(mode="after")
    def _has_value(self) -> NightPoint:
        if self.value is None and not self.values:
            raise ValueError("a point has a value, or values")
        return self

    @property
    def median(self) -> float:
        """The value, in the series' unit."""
        if self.value is not None:
            return self.value
        ranked = sorted(self.values)
        middle = len(ranked) // 2
        return ranked[middle] if len(ranked) % 2 else 0.5 * (ranked[middle - 1] + ranked[middle])

    @property
    def moment(self) -> datetime | None:
        """When it was measured, in UTC unless told otherwise."""
        return None if self.measured_at is None else in_utc(self.measured_at)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a delivery."""

    series: str
    #: Points that are new.
    added: int
    #: Points that were there already, as they are.
    known: int
    #: The new ones' first and last night; None: there is none.
    first: date | None = None
    last: date | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "series": self.series,
            "added": self.added,
            "known": self.known,
            "first": self.first.isoformat() if self.first else None,
            "last": self.last.isoformat() if self.last else None,
        }


@dataclass(slots=True)
class _Delivery:
    added: list[NightPoint] = field(default_factory=list)
    known: int = 0


def store_points(
    services: Services,
    series: SeriesRow,
    points: Sequence[NightPoint],
    *,
    source: str,
    idempotency_key: str | None = None,
    experiment_id: str | None = None,
) -> dict[str, Any]:
    """Store the points that are new; all of them or none.

    Returns:
        ``Recorded`` as JSON values; the same again for the same idempotency key.

    Raises:
        ConflictError: a point of that night, version and host is there with another value, or the
            key was used for other points. Points are facts: they are never rewritten.
    """
    digest = digest_of([series.id, *(point.model_dump(mode="json") for point in points)])
    with services.database.write() as session:
        if idempotency_key is not None:
            before = _by_key(session, idempotency_key, digest)
            if before is not None:
                return before
        delivery = _add(session, series, points, source, experiment_id)
        nights = [point.night for point in delivery.added]
        answer = Recorded(
            series.name,
            len(nights),
            delivery.known,
            min(nights, default=None),
            max(nights, default=None),
        ).to_dict()
        if idempotency_key is not None:
            session.add(
                SeriesDeliveryRow(
                    idempotency_key=idempotency_key,
                    series_id=series.id,
                    request_digest=digest,
                    answer=answer,
                    created_at=now(),
                )
            )
    return answer


def _by_key(session: Session, key: str, digest: str) -> dict[str, Any] | None:
    row = session.get(SeriesDeliveryRow, key)
    if row is None:
        return None
    if row.request_digest != digest:
        raise ConflictError(
            "this Idempotency-Key was used for other points; send a new key",
            field="Idempotency-Key",
            value=key,
        )
    return dict(row.answer)


def _add(
    session: Session,
    series: SeriesRow,
    points: Sequence[NightPoint],
    source: str,
    experiment_id: str | None,
) -> _Delivery:
    nights = {point.night for point in points}
    query = select(SeriesPointRow).where(
        SeriesPointRow.series_id == series.id,
        SeriesPointRow.night.between(min(nights), max(nights)),
    )
    there = {(row.night, row.version, row.host): row.value for row in session.scalars(query)}
    delivery = _Delivery()
    for number, point in enumerate(points):
        key = (point.night, point.version, point.host)
        known = there.get(key)
        if known is None:
            there[key] = point.median
            delivery.added.append(point)
            session.add(_row(series, point, source, experiment_id))
        elif math.isclose(known, point.median, rel_tol=1e-9):
            delivery.known += 1
        else:
            raise _conflict(series, number, point, known)
    session.flush()
    return delivery


def _conflict(series: SeriesRow, number: int, point: NightPoint, known: float) -> ConflictError:
    named = f"night {point.night}"
    named += f", version {point.version}" if point.version else ""
    named += f", host {point.host}" if point.host else ""
    return ConflictError(
        f"points[{number}].value: {named} of series '{series.name}' has {known:g} already, and "
        f"can't become {point.median:g}: points are never rewritten; another measurement of the "
        "night needs a version or host of its own",
        field=f"points[{number}].value",
        value=point.median,
    )


def _row(
    series: SeriesRow, point: NightPoint, source: str, experiment_id: str | None
) -> SeriesPointRow:
    moment = now()
    return SeriesPointRow(
        id=new_id(),
        series_id=series.id,
        night=point.night,
        version=point.version,
        commits={name: sha.lower() for name, sha in point.commits.items()},
        host=point.host,
        value=point.median,
        runs=point.runs or max(len(point.values), 1),
        run_values=list(point.values),
        source=source,
        measured_at=point.moment or datetime.combine(point.night, time(), UTC),
        received_at=moment,
        experiment_id=experiment_id,
    )


def check_count(points: Sequence[object], field_name: str = "points") -> None:
    """Refuse deliveries that are empty or too large.

    Raises:
        BadInputError: says how many there may be.
    """
    if not 1 <= len(points) <= MOST_POINTS:
        raise BadInputError(
            f"{field_name}: {len(points)} points; send 1 to {MOST_POINTS} at once",
            field=field_name,
            value=len(points),
        )


def points_of(
    session: Session, series_id: str, *, since: date | None = None
) -> list[SeriesPointRow]:
    """Return the points of a series in the order of nights."""
    query = select(SeriesPointRow).where(SeriesPointRow.series_id == series_id)
    if since is not None:
        query = query.where(SeriesPointRow.night >= since)
    order = (SeriesPointRow.night, SeriesPointRow.host, SeriesPointRow.id)
    return list(session.scalars(query.order_by(*order)))


def point_json(row: SeriesPointRow) -> Mapping[str, Any]:
    """Return a point as the API and the pages show it."""
    return {
        "id": row.id,
        "night": row.night.isoformat(),
        "version": row.version,
        "commits": row.commits,
        "host": row.host,
        "value": row.value,
        "runs": row.runs,
        "values": row.run_values,
        "source": row.source,
        "measured_at": row.measured_at.isoformat(),
        "received_at": row.received_at.isoformat(),
        "experiment": row.experiment_id,
    }
