"""Which runs, and builds they need, verify the steps that look certain."""

from __future__ import annotations

from perfbisect.core.answer import Answer, Found
from perfbisect.core.facts import Build, Run
from perfbisect.core.inference import Inference
from perfbisect.core.situation import Situation
from perfbisect.core.states import Purpose
from perfbisect.core.verification import Proof

#: A resolved step this likely goes to verification.
VERIFY_FROM = 0.75


def verification_runs(
    situation: Situation, inference: Inference, answer: Answer, hosts: list[str]
) -> list[Run]:
    """Return the next run of each open verification, and take its host off the list."""
    runs: list[Run] = []
    busy = {run.pair for run in situation.facts.running if run.purpose is Purpose.VERIFY}
    # Each step is verified on a host of its own as far as there are enough: together, not in turn.
    taken = {
        inference.samples.hosts[found.verification.host]
        for found in answer.found
        if is_ready(found) and found.verification.host >= 0
    }
    for found in answer.found:
        if not is_ready(found):
            continue
        run = _next_of_pair(situation, inference, found, _freest(hosts, taken), busy)
        if run is not None:
            hosts.remove(run.host)
            taken.add(run.host)
            runs.append(run)
    return runs


def _freest(hosts: list[str], taken: set[str]) -> list[str]:
    """Return the hosts, those on which nothing is being verified first."""
    return sorted(hosts, key=lambda host: host in taken)


def is_ready(found: Found) -> bool:
    """Return whether a step is to be verified now."""
    if not found.resolved or found.verification.proof is Proof.VERIFIED:
        return False
    if found.verification.pairs >= found.verification.most_pairs:
        return False
    # A refuted step that the search, with those points, still believes in gets more pairs.
    refuted = found.verification.proof is Proof.REFUTED
    return found.probability >= (0.99 if refuted else VERIFY_FROM)


def _next_of_pair(
    situation: Situation,
    inference: Inference,
    found: Found,
    hosts: list[str],
    busy: set[tuple[int, int] | None],
) -> Run | None:
    nodes, axis = inference.nodes, situation.axis
    low, high = int(nodes[found.gap]), int(nodes[found.gap + 1])
    pair = axis.span(low, high)
    if pair in busy or not (axis.wheel[low] and axis.wheel[high]):
        return None
    known = inference.samples.hosts[found.verification.host] if found.verification.host >= 0 else ""
    host = known if known in situation.facts.hosts else (hosts[0] if hosts else "")
    if host not in hosts:
        return None
    earlier, later = found.verification.runs if host == known else (0, 0)
    # A B B A: the order within a pair alternates, so that drift favours neither side.
    turn = (earlier + later) // 2 % 2
    first = earlier < later or (earlier == later and turn == 0)
    position = int(axis.representative_of[pair[0] if first else pair[1]])
    number = min(earlier, later) + 1
    return Run(
        position,
        host,
        Purpose.VERIFY,
        pair,
        f"verifies the step between positions {pair[0]:,} and {pair[1]:,}: pair {number}, "
        f"{100 * found.probability:.0f}% likely so far",
    )


def verification_builds(
    situation: Situation, inference: Inference, answer: Answer, slots: int
) -> list[Build]:
    """Return builds of neighbours that are known from history only, whose wheels are gone."""
    axis = situation.axis
    builds: list[Build] = []
    for found in answer.found:
        for node in (int(inference.nodes[found.gap + k]) for k in (0, 1)):
            missing = not (axis.wheel[node] or axis.building[node] or axis.broken[node])
            if is_ready(found) and missing:
                position = int(axis.representative[node])
                reason = f"position {position:,} has to be run again to verify the step beside it"
                builds.append(Build(position, reason))
    return builds[:slots]
