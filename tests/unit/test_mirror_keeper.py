"""Mirrors are made in the background, once, and whoever asks is told where that stands."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from perfbisect.client import Client
from perfbisect.errors import BadInputError, TransientError
from perfbisect.git.fetching import Fetching
from perfbisect.git.source import Source
from perfbisect.mirror_keeper import MirrorKeeper

URL = "https://host.example/x.git"


class Maker:
    """Makes a mirror when it is let to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go = threading.Event()
        self.calls = 0
        self.error = error

    def __call__(self, source: Source, mirrors_dir: Path, fetching: Fetching) -> None:
        self.calls += 1
        self.go.wait()
        if self.error is not None:
            raise self.error
        (mirrors_dir / source.name).mkdir()


def test_who_asks_is_told_to_come_back(tmp_path: Path) -> None:
    """While a mirror is made, requests end soon and start nothing twice; afterwards they go on."""
    maker = Maker()
    keeper = MirrorKeeper(maker)
    for _ in range(3):
        with pytest.raises(TransientError, match="send the same request again") as caught:
            keeper.require(URL, tmp_path, wait=0)
        assert caught.value.field == "repository"
    maker.go.set()
    keeper.require(URL, tmp_path, wait=60)
    keeper.require(URL, tmp_path, wait=0)
    assert maker.calls == 1


@pytest.mark.parametrize("error", [BadInputError("no such repository"), TransientError("down")])
def test_failures_are_told_and_tried_again(tmp_path: Path, error: Exception) -> None:
    """What went wrong is raised to who asked, and the next request tries anew."""
    maker = Maker(error)
    maker.go.set()
    keeper = MirrorKeeper(maker)
    for calls in (1, 2):
        with pytest.raises(type(error), match=str(error)):
            keeper.require(URL, tmp_path, wait=60)
        assert maker.calls == calls


def test_the_command_line_asks_again() -> None:
    """A submission goes on asking with the same key while the repository is mirrored."""
    keys = []
    slept: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) < 3:
            problem = {"status": 503, "detail": "is being mirrored", "field": "repository"}
            return httpx.Response(503, json=problem)
        return httpx.Response(202, json={"id": "1"})

    transport = httpx.MockTransport(answer)
    with Client("http://host", transport=transport, sleep=slept.append) as client:
        told: list[str] = []
        assert client.submit({}, "k", patience=60, waiting=told.append) == {"id": "1"}
        assert keys == ["k"] * 3
        assert (told, slept) == (["is being mirrored"] * 2, [5.0, 5.0])
        keys.clear()
        with pytest.raises(TransientError):
            client.submit({}, "k")
