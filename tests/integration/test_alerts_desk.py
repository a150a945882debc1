"""From alerts to culprits: the desk on a real repository, with scripted builds and runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.helpers.alerting import AT_ONCE, SECRET, receiving, scene

from perfbisect.alerting.hands import dismiss_alert, start_alert
from perfbisect.alerts import raise_alert, resolve_alert
from perfbisect.core.alert_states import AlertState, MessageState
from perfbisect.core.states import ChangeKind
from perfbisect.store.alert_tables import FindingRow, MessageRow
from perfbisect.store.database import now
from perfbisect.store.tables import BisectionRow, ExperimentRow


def test_one_bisection_for_many_benchmarks(tmp_path: Path) -> None:
    """Three alerts of one range: the strongest is bisected, its culprit is measured on the others;
    the one that has another cause gets a bisection of its own."""
    steps = {"strong": {5: 0.5}, "weak": {5: 0.8}, "other": {2: 0.7}}
    with scene(tmp_path, steps) as here:
        weak = raise_alert(here.services, here.signal("weak", -0.2))
        strong = raise_alert(here.services, here.signal("strong", -0.5))
        other = raise_alert(here.services, here.signal("other", -0.3))
        rows = {
            name: here.until_state(alert, "explained")
            for name, alert in (("strong", strong), ("weak", weak), ("other", other))
        }
        assert rows["weak"].leader_id == strong
        assert rows["weak"].finding_id == rows["strong"].finding_id
        assert rows["weak"].bisection_id == rows["strong"].bisection_id
        assert rows["other"].finding_id != rows["strong"].finding_id
        assert rows["other"].alone
        with here.services.database.read() as session:
            bisections = session.scalars(select(BisectionRow)).all()
            experiments = session.scalars(select(ExperimentRow)).all()
            culprits = {row.id: row.commits for row in session.scalars(select(FindingRow))}
    assert len(bisections) == 2
    asked = [(row.origin, row.priority) for row in bisections]
    asked += [(row.origin, row.priority) for row in experiments]
    assert culprits[str(rows["strong"].finding_id)] == [here.repository.shas[5]]
    assert culprits[str(rows["other"].finding_id)] == [here.repository.shas[2]]
    # Whatever alerts submit stands behind what people submit.
    assert set(asked) == {("alert", -10)}


def test_a_late_alert_joins_the_answer(tmp_path: Path) -> None:
    """An alert of a range whose culprit is known already is checked, not bisected again; the same
    benchmark told by another source is not even checked."""
    with scene(tmp_path, {"strong": {5: 0.5}, "weak": {5: 0.8}}) as here:
        first = raise_alert(here.services, here.signal("strong"))
        here.until_state(first, "explained")
        late = raise_alert(here.services, here.signal("weak", -0.2))
        again = raise_alert(here.services, here.signal("strong", source="alertmanager"))
        for alert in (late, again):
            row = here.until_state(alert, "explained")
            assert row.finding_id == here.alert(first).finding_id
        with here.services.database.read() as session:
            assert len(session.scalars(select(BisectionRow)).all()) == 1
            checks = session.scalars(
                select(ExperimentRow.id).where(ExperimentRow.origin == "alert")
            ).all()
            assert len(checks) == 1


def test_what_does_not_reproduce_is_closed(tmp_path: Path) -> None:
    """An alert about nothing ends as not reproduced; the next of its group is tried by itself."""
    with scene(tmp_path, {"calm": {}, "weak": {5: 0.8}}) as here:
        calm = raise_alert(here.services, here.signal("calm", -0.4))
        weak = raise_alert(here.services, here.signal("weak", -0.2))
        here.until_state(calm, "not_reproduced")
        row = here.until_state(weak, "explained")
        assert row.leader_id is None
        assert here.alert(calm).closed_at is not None


def test_a_recovery_is_explained_and_over(tmp_path: Path) -> None:
    """A recovery's cause is found by a search for the fix; nothing stays open for it."""
    with scene(tmp_path, {"back": {0: 0.5, 4: 2.0}}) as here:
        shas = here.repository.shas
        signal = here.signal("back", 1.0, kind=ChangeKind.RECOVERY, good=shas[-1], bad=shas[0])
        row = here.until_state(raise_alert(here.services, signal), "resolved")
        with here.services.database.read() as session:
            finding = session.get_one(FindingRow, row.finding_id)
        assert finding.commits == [shas[4]]


def test_messages_tell_each_thing_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened, found and fixed reach the target once each, however many alerts and looks
    there are; each carries its alert, and the report in short."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    with receiving() as inbox:
        config = AT_ONCE + (
            f'[notify.hook]\nkind = "webhook"\nurl = "{inbox.url}"\nsecret_env = "HOOK_SECRET"\n'
        )
        steps = {"strong": {5: 0.5}, "weak": {5: 0.8}}
        with scene(tmp_path, steps, config=config, outbound_allowed=["127.0.0.1"],
                   public_url="https://bench.example.org") as here:  # fmt: skip
            strong = raise_alert(here.services, here.signal("strong"))
            weak = raise_alert(here.services, here.signal("weak", -0.2))

            def told() -> bool:
                here.desk.sender.send_due()
                return here.alert(weak).state == "explained" and "perfbisect.found" in inbox.kinds()

            here.until(told, "found")
            for alert, signal in ((strong, "strong"), (weak, "weak")):
                when = here.alert(alert).started_at
                name = f"{signal}-fingerprint"
                assert resolve_alert(here.services, "generic", name, when, "back since 12-02")
                assert here.alert(alert).state is AlertState.RESOLVED

            def fixed() -> bool:
                here.desk.sender.send_due()
                return "perfbisect.fixed" in inbox.kinds()

            here.until(fixed, "fixed")
            for _ in range(3):
                here.desk.look()
                here.desk.sender.send_due()
            with here.services.database.read() as session:
                states = set(session.scalars(select(MessageRow.state)))
    assert inbox.kinds() == ["perfbisect.opened", "perfbisect.found", "perfbisect.fixed"]
    assert states == {MessageState.DELIVERED}
    found = dict(zip(inbox.kinds(), (body for _, body in inbox.got), strict=True))
    report = found["perfbisect.found"]["data"]
    assert report["commits"] == [here.repository.shas[5]]
    assert here.repository.shas[5][:10] in report["markdown"]
    assert "https://bench.example.org/bisections/" in report["markdown"]
    assert "back since 12-02" in found["perfbisect.fixed"]["data"]["markdown"]


@pytest.mark.parametrize(
    ("policy", "held_by"),
    [
        ('hours = "{later}"', "hours"),
        ("budget_per_day = 0", "budget"),
        ('start = "ask"', "ask"),
    ],
)
def test_what_may_not_start_waits_with_its_reason(
    tmp_path: Path, policy: str, held_by: str
) -> None:
    """Hours, budget and a policy that asks keep an alert waiting, and say so; a person starts it
    all the same, or dismisses it."""
    moment = now()
    window = f"{moment + timedelta(hours=2):%H:%M}-{moment + timedelta(hours=3):%H:%M}"
    config = (
        '[alerts]\ngroup_wait = "0s"\nself_checks = false\n[alerts.policy]\n'
        + policy.format(later=window) + "\n"
    )  # fmt: skip
    with scene(tmp_path, {"strong": {5: 0.5}}, config=config, working=False) as here:
        alert = raise_alert(here.services, here.signal("strong"))
        other = raise_alert(here.services, here.signal("strong", fingerprint="second"))
        here.desk.look()
        row = here.alert(alert)
        assert row.held_by == held_by
        assert row.reason
        assert (row.held_until is not None) == (row.state is AlertState.QUEUED)
        start_alert(here.services, alert, "a person")
        dismiss_alert(here.services, other, "a person", "the host was rebuilt")
        here.desk.look()
        assert here.alert(alert).state is AlertState.BISECTING
        assert here.alert(other).state is AlertState.DISMISSED
        assert "the host was rebuilt" in here.alert(other).reason


def test_a_spent_budget_comes_back(tmp_path: Path) -> None:
    """The second alert of a series waits until the first bisection is a day old, then starts."""
    config = AT_ONCE + "budget_per_day = 1\n"
    with scene(tmp_path, {"strong": {5: 0.5}}, config=config, working=False) as here:
        shas = here.repository.shas
        first = raise_alert(here.services, here.signal("strong"))
        here.desk.look()
        second = raise_alert(
            here.services, here.signal("strong", fingerprint="second", bad=shas[6])
        )
        here.desk.look()
        assert here.alert(first).state is AlertState.BISECTING
        waiting = here.alert(second)
        assert (waiting.state, waiting.held_by) == (AlertState.QUEUED, "budget")
        here.clock.ahead = timedelta(hours=24, minutes=1)
        here.desk.look()
        assert here.alert(second).state is AlertState.BISECTING


def test_an_alert_that_says_too_little_is_held_until_a_person_completes_it(
    tmp_path: Path,
) -> None:
    """Without a range nothing can be bisected: it is held with what is missing, and goes on once a
    person says it."""
    with scene(tmp_path, {"strong": {5: 0.5}}, working=False) as here:
        alert = raise_alert(here.services, here.signal("strong", good=None, recipe=None))
        here.desk.look()
        row = here.alert(alert)
        assert (row.state, row.held_by) == (AlertState.HELD, "incomplete")
        assert "a good end" in row.reason
        start_alert(
            here.services, alert, "a person",
            {"recipe": "scripted", "good": here.repository.shas[0]},
        )  # fmt: skip
        here.desk.look()
        assert here.alert(alert).state is AlertState.BISECTING


def test_what_is_refused_is_held_with_the_words_of_the_refusal(tmp_path: Path) -> None:
    """A repository that may not be submitted here holds the alert, and names it."""
    with scene(tmp_path, {"strong": {5: 0.5}}, working=False) as here:
        strange = here.signal("strong", repository="https://example.org/strange.git")
        alert = raise_alert(here.services, strange)
        here.desk.look()
        row = here.alert(alert)
        assert (row.state, row.held_by) == (AlertState.HELD, "request")
        assert "https://example.org/strange.git" in row.reason
