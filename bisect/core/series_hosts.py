"""From points of several hosts to one value a night: hosts are compared through shared nights only.

Values of different hosts are never compared directly. A host's offset is the median of the
differences on nights that both measured; hosts that share no night with the others, directly or
through a third, stay apart: a step between their nights may be the hosts' and is none of a series.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from perfbisect.core.series import NightValue


@dataclass(frozen=True, slots=True)
class HostValue:
    """A value of one night on one host, in the series' unit."""

    night: date
    host: str
    value: float


def nights_of_points(points: Sequence[HostValue]) -> list[NightValue]:
    """Return one value for each night that has points, in the order of nights."""
    by_night: dict[date, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        by_night[point.night][point.host].append(math.log(point.value))
    table = {
        night: {host: statistics.median(logs) for host, logs in hosts.items()}
        for night, hosts in sorted(by_night.items())
    }
    offsets, group = _offsets(table)
    found: list[NightValue] = []
    before: set[int] | None = None
    for night, hosts in table.items():
        corrected = [value - offsets[host] for host, value in hosts.items()]
        groups = {group[host] for host in hosts}
        linked = before is None or bool(groups & before)
        found.append(NightValue(night, math.exp(statistics.median(corrected)), linked))
        before = groups
    return found


def _offsets(
    table: Mapping[date, Mapping[str, float]],
) -> tuple[dict[str, float], dict[str, int]]:
    """Return each host's offset in its group (log), and the number of its group.

    The host with the most nights is the group's reference; others join it one by one, the one with
    the most shared nights first.
    """
    nights: dict[str, set[date]] = defaultdict(set)
    for night, hosts in table.items():
        for host in hosts:
            nights[host].add(night)
    waiting = sorted(nights, key=lambda host: (-len(nights[host]), host))
    offsets: dict[str, float] = {}
    group: dict[str, int] = {}
    number = 0
    while waiting:
        first = waiting.pop(0)
        offsets[first], group[first] = 0.0, number
        placed = [first]
        while waiting:
            shared = {
                host: [night for night in nights[host] if any(night in nights[p] for p in placed)]
                for host in waiting
            }
            best = max(waiting, key=lambda host: len(shared[host]))
            if not shared[best]:
                break
            offsets[best] = statistics.median(
                table[night][best]
                - statistics.median(
                    table[night][p] - offsets[p] for p in placed if p in table[night]
                )
                for night in shared[best]
            )
            group[best] = number
            placed.append(best)
            waiting.remove(best)
        number += 1
    return offsets, group
