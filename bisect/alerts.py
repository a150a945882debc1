"""Alerts in: what raises them, and what they carry.

An alert is a message that a series got worse. It comes from the nightly series of this server, from
Alertmanager, Grafana or any program, or from a person. Whoever has one calls ``raise_alert``; what
follows (grouping, policy, bisection, messages) is done in the background by ``alerting.desk``.

    raise_alert(services, AlertSignal(source="series", fingerprint=change_id, ...)) -> alert id
    resolve_alert(services, "series", change_id, started_at, "back since 09-22") -> alert id | None

Both are idempotent: an alert is one per (source, fingerprint, start), however often it is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from perfbisect.core.states import ChangeKind
from perfbisect.services import Services


@dataclass(frozen=True, slots=True)
class AlertSignal:
    """A message that a series got worse, from whoever sees it."""

    #: ``series``, ``alertmanager``, ``grafana`` or ``generic`` (any program, the command line).
    source: str
    #: Names it for its source: together with ``started_at``, what is told twice is one alert.
    fingerprint: str
    #: Since when it is seen; aware.
    started_at: datetime
    #: One line for people; empty: made up from the rest.
    title: str = ""
    #: Name of a nightly series. What it knows (repository, package, recipe, benchmark, pool,
    #: policy) need not be repeated below.
    series: str | None = None
    #: Name of a benchmark that is known here, and of a pool of hosts.
    benchmark: str | None = None
    pool: str | None = None
    #: What the range is a range of: name or URL of a repository, with the recipe that builds it,
    #: or a package of the index.
    repository: str | None = None
    recipe: str | None = None
    package: str | None = None
    #: A recovery is explained like a regression (what made it good again?), and ends nothing by
    #: itself: whoever knows which alert it ends calls ``resolve_alert``.
    kind: ChangeKind = ChangeKind.REGRESSION
    #: The good and the bad end next to the change: revisions, versions or nights (``2019-09-14``).
    #: Of a recovery, the good end is the later one.
    good: str | None = None
    bad: str | None = None
    #: Levels in the benchmark's unit, and the relative change between them (``-0.31``).
    before: float | None = None
    after: float | None = None
    change: float | None = None
    #: That the change is real.
    probability: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Page of the sender about it.
    url: str = ""


def raise_alert(services: Services, signal: AlertSignal) -> str:
    """Store an alert unless it is there; return its id. Cheap: nothing is started here.

    Raises:
        BadInputError: the signal can't be right (naive moment, empty fingerprint, text too long).
        TransientError: the database can't be written.
    """
    from perfbisect.alerting.inbox import receive

    return receive(services, signal)


def resolve_alert(
    services: Services,
    source: str,
    fingerprint: str,
    started_at: datetime,
    words: str = "",
    *,
    whole: bool = True,
) -> str | None:
    """Note that an alert's value came back; return its id, or None if there is no such alert.

    Args:
        words: what came back since when, for people: ``8,400, still 6% below July``.
        whole: False: it came back in part only, which is said, but does not close the alert.
    """
    from perfbisect.alerting.inbox import note_recovery

    return note_recovery(services, source, fingerprint, started_at, words, whole=whole)
