"""``perfbisect alert`` against a listening service, and a service that does all by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.helpers.alerting import SteppedRunner, scene
from tests.helpers.command_line import call
from tests.helpers.conducting import make_conductor
from tests.helpers.serving import API, listening, settings_in, shown_app

from perfbisect.api import create_app
from perfbisect.conductor import Conductor
from perfbisect.services import Services
from perfbisect.testing import ScriptedBuilder


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with listening(shown_app(settings_in(tmp_path))) as address:
        yield address


STARTED = ("--started", "2019-09-14T06:00:00Z")


def test_told_repeated_and_over(url: str) -> None:
    """The same alert is new, then repeated, then over; each time the command says which it is."""
    command = ["alert", "--benchmark", "resnet50", *STARTED, "--server", url]
    first, second = call(command), call(command)
    over = call([*command, "--resolved", "--json"])
    assert [each.code for each in (first, second, over)] == [0, 0, 0]
    assert first.out.startswith("accepted")
    assert second.out.startswith("repeated")
    (told,) = over.json["alerts"]
    assert told["result"] == "resolved"
    assert f"{url}/alerts/{told['alert']}" in first.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--series"),
        (("--series", "a", "--resolved"), "--started"),
        (("--series", "a", "--started", "yesterday"), "started_at"),
        (("--series", "a", "--before", "-3"), "before"),
        (("--series", ""), "--series: is empty"),
        (("--series", "a", "--pool", ""), "--pool: is empty"),
        (("--series", "nobody-knows-it"), "series: no series 'nobody-knows-it' here"),
    ],
)
def test_what_can_not_be_right_is_bad_input(url: str, options: tuple[str, ...], words: str) -> None:
    """Exit code 2, and the message names what is wrong."""
    done = call(["alert", *options, "--server", url])
    assert done.code == 2
    assert words in done.err


def test_a_service_needs_nobody(tmp_path: Path) -> None:
    """An alert told to a running service ends with its culprit, without another word."""
    with scene(tmp_path, {"strong": {5: 0.5}}, working=False) as here:
        runner = SteppedRunner(here.repository, {"strong": {5: 0.5}})

        def make(services: Services) -> Conductor:
            return make_conductor(services, ScriptedBuilder(), runner, tmp_path)

        shas = here.repository.shas
        with listening(create_app(here.services.settings, make=make)) as address:
            told = call(
                [
                    "alert", "--benchmark", "strong", "--repo", str(here.repository.path),
                    "--recipe", "scripted", "--good", shas[0], "--bad", shas[-1],
                    "--server", address, "--json",
                ]
            )  # fmt: skip
            (alert,) = told.json["alerts"]
            with httpx.Client(base_url=address + API, timeout=60) as client:
                while (now := client.get(f"/alerts/{alert['alert']}").json())["state"] in (
                    "new", "queued", "bisecting",
                ):  # fmt: skip
                    time.sleep(0.1)
                verdict = client.get(f"/bisections/{now['bisection_id']}").json()
    assert now["state"] == "explained"
    assert [each["commits"] for each in verdict["culprits"]] == [[shas[5]]]
    assert verdict["origin"] == "alert"
