"""Wheels downloaded once, verified, gone on with after a break, and kept within a limit."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.helpers.package_index import FakeIndex, serving

from perfbisect.errors import BadInputError, NotFoundError, TransientError
from perfbisect.packages import WheelCache
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.publishing.index import TRIES
from perfbisect.publishing.values import Published

SIZE = 300_000
#: What a broken connection keeps is a multiple of this.
PIECE = 16_384
NAMES = [f"demo-{number}.0-py3-none-any.whl" for number in range(5)]
FIRST = NAMES[0]


@pytest.fixture
def index() -> Iterator[FakeIndex]:
    """Five files of equal size and different content."""
    fake = FakeIndex()
    for number, name in enumerate(NAMES):
        fake.files[name] = bytes([number, 7, 13, number]) * (SIZE // 4)
    with serving(fake):
        yield fake


def cache_of(index: FakeIndex, root: Path, limit: int = 100 * SIZE) -> WheelCache:
    return WheelCache(root, index.access, limit, first_wait=0.001)


def get(cache: WheelCache, wheel: Published) -> Path:
    with cache.hold(wheel) as path:
        return path


def parts(root: Path) -> list[int]:
    return [path.stat().st_size for path in root.rglob("*.part")]


def test_a_wheel_is_downloaded_once_under_its_own_name(index: FakeIndex, tmp_path: Path) -> None:
    """The second holder gets the same file without a request; installers need its name."""
    cache = cache_of(index, tmp_path)
    wheel = index.published(FIRST)
    with cache.hold(wheel) as path:
        assert path.name == FIRST
        assert path.read_bytes() == index.files[FIRST]
    assert get(cache_of(index, tmp_path), wheel) == path
    assert len(index.asked) == 1
    assert cache.usage().wheels == 1
    assert cache.usage().bytes == SIZE


def test_progress_is_told_up_to_the_whole(index: FakeIndex, tmp_path: Path) -> None:
    """The bytes that are there only grow, and end at the size of the wheel."""
    seen: list[tuple[int, int]] = []
    with cache_of(index, tmp_path).hold(
        index.published(FIRST), progress=lambda done, total: seen.append((done, total))
    ):
        pass
    done = [item[0] for item in seen]
    assert done == sorted(done)
    assert seen[-1] == (SIZE, SIZE)


def test_a_broken_connection_goes_on_where_it_was(index: FakeIndex, tmp_path: Path) -> None:
    """More breaks than tries do not matter while each try brings something new."""
    index.cuts = [2 * PIECE] * (TRIES + 1)
    path = get(cache_of(index, tmp_path), index.published(FIRST))
    assert path.read_bytes() == index.files[FIRST]
    starts = [request.headers.get("Range", "") for request in index.asked]
    assert starts == ["", *(f"bytes={2 * PIECE * number}-" for number in range(1, TRIES + 2))]


def test_without_ranges_it_starts_again(index: FakeIndex, tmp_path: Path) -> None:
    """A server that always sends the whole file is believed: what was there is replaced."""
    index.cuts = [3 * PIECE]
    index.ranges = False
    path = get(cache_of(index, tmp_path), index.published(FIRST))
    assert path.read_bytes() == index.files[FIRST]


def test_a_connection_that_breaks_at_once_is_transient(index: FakeIndex, tmp_path: Path) -> None:
    """Tries that bring nothing end, and say where the download stands."""
    index.cuts = [0] * 50
    with pytest.raises(TransientError):
        get(cache_of(index, tmp_path), index.published(FIRST))
    assert len(index.asked) == TRIES


def test_what_came_before_an_error_is_kept_for_the_next_time(
    index: FakeIndex, tmp_path: Path
) -> None:
    """A download that failed for now goes on in the next call, from another cache object too."""
    index.cuts = [3 * PIECE, *[0] * (2 * TRIES)]
    with pytest.raises(TransientError):
        get(cache_of(index, tmp_path), index.published(FIRST))
    assert parts(tmp_path) == [3 * PIECE]
    index.cuts, index.asked = [], []
    path = get(cache_of(index, tmp_path), index.published(FIRST))
    assert path.read_bytes() == index.files[FIRST]
    assert [request.headers.get("Range") for request in index.asked] == [f"bytes={3 * PIECE}-"]
    assert parts(tmp_path) == []


def test_a_complete_part_is_not_asked_for_again(index: FakeIndex, tmp_path: Path) -> None:
    """A process killed between the last byte and the rename costs nothing."""
    wheel = index.published(FIRST)
    part = tmp_path / wheel.sha256 / f"{FIRST}.part"
    part.parent.mkdir()
    part.write_bytes(index.files[FIRST])
    assert get(cache_of(index, tmp_path), wheel).read_bytes() == index.files[FIRST]
    assert index.asked == []


@pytest.mark.parametrize("length", [1000, SIZE, SIZE + 5])
def test_a_part_of_another_content_is_thrown_away(
    index: FakeIndex, tmp_path: Path, length: int
) -> None:
    """A damaged beginning is noticed by the digest and downloaded afresh, whatever its length."""
    wheel = index.published(FIRST)
    part = tmp_path / wheel.sha256 / f"{FIRST}.part"
    part.parent.mkdir()
    part.write_bytes(b"?" * length)
    assert get(cache_of(index, tmp_path), wheel).read_bytes() == index.files[FIRST]


@pytest.mark.parametrize("length", [SIZE - 100, SIZE, SIZE + 5])
def test_parts_where_the_index_tells_no_size(index: FakeIndex, tmp_path: Path, length: int) -> None:
    """Without a size, the server's word on the range decides whether a part is complete."""
    wheel = index.published(FIRST)
    unsized = Published(wheel.package, wheel.version, FIRST, wheel.url, wheel.sha256)
    part = tmp_path / wheel.sha256 / f"{FIRST}.part"
    part.parent.mkdir()
    part.write_bytes((index.files[FIRST] + b"?????")[:length])
    assert get(cache_of(index, tmp_path), unsized).read_bytes() == index.files[FIRST]


def test_wrong_content_is_refused_for_good(index: FakeIndex, tmp_path: Path) -> None:
    """A file that twice is not what the index says never gets a wheel's name."""
    index.claimed[FIRST] = "f" * 64
    cache = cache_of(index, tmp_path)
    with pytest.raises(BadInputError, match="is not what the index says it is"):
        get(cache, index.published(FIRST))
    assert len(index.asked) == 2
    assert list(tmp_path.rglob("*.whl")) == []
    assert parts(tmp_path) == []


def test_a_file_that_is_gone_is_refused_at_once(index: FakeIndex, tmp_path: Path) -> None:
    """404 is no trouble that passes: one request, and an error that names the URL."""
    wheel = index.published(FIRST)
    del index.files[FIRST]
    with pytest.raises(NotFoundError, match="status 404"):
        get(cache_of(index, tmp_path), wheel)
    assert len(index.asked) == 1


def test_a_file_larger_than_told_is_refused(index: FakeIndex, tmp_path: Path) -> None:
    """Not a byte more is written than there is room made for."""
    wheel = index.published(FIRST)
    index.files[FIRST] += b"more"
    with pytest.raises(BadInputError, match="is larger than"):
        get(cache_of(index, tmp_path), wheel)


def test_a_download_can_be_cancelled(index: FakeIndex, tmp_path: Path) -> None:
    """The token ends a download in the middle, and what came is kept."""
    cancel = CancelToken()
    wheel = index.published(FIRST)
    cache = cache_of(index, tmp_path)
    with (
        pytest.raises(CancelledWork),
        cache.hold(wheel, cancel, progress=lambda done, total: cancel.cancel()),
    ):
        pass
    (kept,) = parts(tmp_path)
    assert 0 < kept < SIZE
    assert get(cache, wheel).read_bytes() == index.files[FIRST]


def test_the_longest_unused_wheels_make_room(index: FakeIndex, tmp_path: Path) -> None:
    """Within a limit of three wheels, the one that was used last longest ago goes first."""
    cache = cache_of(index, tmp_path, 3 * SIZE)
    wheels = [index.published(name) for name in NAMES]
    for wheel in (*wheels[:3], wheels[0], wheels[3]):
        get(cache, wheel)
    there = {path.name for path in tmp_path.rglob("*.whl")}
    assert there == {NAMES[0], NAMES[2], NAMES[3]}
    assert cache.usage().bytes == 3 * SIZE


def test_the_limit_holds_while_a_download_goes_on(index: FakeIndex, tmp_path: Path) -> None:
    """Room is made before the first byte: at no time is there more than the limit."""
    cache = cache_of(index, tmp_path, 2 * SIZE)
    most = 0

    def measure(done: int, total: int) -> None:
        nonlocal most
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        most = max(most, sum(path.stat().st_size for path in files))

    for name in NAMES:
        with cache.hold(index.published(name), progress=measure):
            pass
    assert SIZE < most <= 2 * SIZE + 10  # ten bytes: the number that reserves the room


def test_a_held_wheel_is_never_removed(index: FakeIndex, tmp_path: Path) -> None:
    """Wheels in use stay though they are the oldest; where nothing else is left, it is told."""
    cache = cache_of(index, tmp_path, 2 * SIZE)
    wheels = [index.published(name) for name in NAMES]
    with cache.hold(wheels[0]) as first:
        for wheel in wheels[1:4]:
            get(cache, wheel)
        assert first.exists()
        with (
            cache.hold(wheels[3]) as second,
            pytest.raises(TransientError, match="wheels in use take"),
        ):
            get(cache, wheels[4])
        assert first.exists()
        assert second.exists()
    get(cache, wheels[4])
    assert cache.usage().wheels == 2


def test_a_wheel_larger_than_the_limit_is_refused(index: FakeIndex, tmp_path: Path) -> None:
    """What can never fit is said before anything is removed for it."""
    small = cache_of(index, tmp_path, SIZE - 1)
    get(cache_of(index, tmp_path), index.published(NAMES[1]))
    with pytest.raises(BadInputError, match="raise the limit"):
        get(small, index.published(FIRST))
    assert small.usage().wheels == 1


def test_prune_keeps_what_is_held(index: FakeIndex, tmp_path: Path) -> None:
    """Pruning to nothing removes everything but wheels in use, and tells how much it removed."""
    cache = cache_of(index, tmp_path / "cache")
    assert cache.prune(0) == 0
    for name in NAMES:
        get(cache, index.published(name))
    with cache.hold(index.published(FIRST)) as path:
        assert cache.prune(0) == 4 * SIZE
        assert path.exists()
    assert cache.prune() == 0


def test_abandoned_parts_make_room_as_well(index: FakeIndex, tmp_path: Path) -> None:
    """What a failed download left is counted, and goes when room is needed."""
    cache = cache_of(index, tmp_path, 2 * SIZE)
    index.cuts = [3 * PIECE, *[0] * (2 * TRIES)]
    with pytest.raises(TransientError):
        get(cache, index.published(FIRST))
    index.cuts = []
    assert cache.usage().bytes == SIZE
    assert cache.usage().wheels == 0
    for name in NAMES[1:3]:
        get(cache, index.published(name))
    assert parts(tmp_path) == []


def test_threads_share_one_download(index: FakeIndex, tmp_path: Path) -> None:
    """Eight threads that want one wheel at once cause one request."""
    wheel = index.published(FIRST)
    ready = threading.Barrier(8)

    def want(_number: int) -> bytes:
        ready.wait()
        with cache_of(index, tmp_path).hold(wheel) as path:
            return path.read_bytes()

    with ThreadPoolExecutor(8) as pool:
        contents = list(pool.map(want, range(8)))
    assert contents == [index.files[FIRST]] * 8
    assert len(index.asked) == 1


def test_who_waited_to_download_looks_again(index: FakeIndex, tmp_path: Path) -> None:
    """Threads that all saw no wheel, and then wait for each other, download it once."""
    wheel = index.published(FIRST)
    with (tmp_path / f"{wheel.sha256}.lock").open("w") as lock, ThreadPoolExecutor(3) as pool:
        # Everybody can look, nobody can begin, until this is released.
        fcntl.flock(lock, fcntl.LOCK_SH)
        paths = [pool.submit(get, cache_of(index, tmp_path), wheel) for _ in range(3)]
        time.sleep(0.5)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert {path.result(60) for path in paths} == {tmp_path / wheel.sha256 / FIRST}
    assert len(index.asked) == 1


def test_waiting_for_anothers_download_can_be_cancelled(index: FakeIndex, tmp_path: Path) -> None:
    """Who waits for a wheel that somebody else downloads can give up."""
    wheel = index.published(FIRST)
    cancel, begun, go_on = CancelToken(), threading.Event(), threading.Event()

    def pause(done: int, total: int) -> None:
        begun.set()
        go_on.wait(60)

    def fetch() -> None:
        with cache_of(index, tmp_path).hold(wheel, progress=pause):
            pass

    other = threading.Thread(target=fetch)
    other.start()
    try:
        assert begun.wait(60)
        cancel.cancel()
        with pytest.raises(CancelledWork), cache_of(index, tmp_path).hold(wheel, cancel):
            pass
    finally:
        go_on.set()
        other.join()


PROCESS = """
import hashlib, os, sys
from pathlib import Path
from perfbisect.packages import IndexAccess, Published, WheelCache

root, limit, url, *names = sys.argv[1:]
cache = WheelCache(Path(root), IndexAccess(url + "/simple/", "given"), int(limit), first_wait=0.01)
for item in names:
    name, sha256, size = item.split(":")
    wheel = Published("demo", "1.0", name, f"{url}/files/{name}", sha256, int(size))
    with cache.hold(wheel) as path:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256, name
"""


def test_processes_share_a_cache_that_is_too_small_for_all(
    index: FakeIndex, tmp_path: Path
) -> None:
    """Processes that load and evict at once always read whole wheels, and stay within the limit."""
    cache = cache_of(index, tmp_path, 3 * SIZE)
    wheels = [index.published(name) for name in NAMES]
    items = [f"{wheel.filename}:{wheel.sha256}:{wheel.size}" for wheel in wheels]
    orders = [items * 3, items[::-1] * 3]
    argv = [sys.executable, "-c", PROCESS, str(tmp_path), str(3 * SIZE), index.url]
    running = [
        subprocess.Popen([*argv, *order], stderr=subprocess.PIPE, text=True) for order in orders
    ]
    errors = [process.communicate(timeout=120)[1] for process in running]
    assert errors == ["", ""]
    assert cache.usage().bytes <= 3 * SIZE


def test_a_killed_process_leaves_nothing_locked(index: FakeIndex, tmp_path: Path) -> None:
    """After a kill in the middle of a download, the next one goes on with what is there."""
    wheel = index.published(FIRST)
    script = PROCESS.replace(
        "cache.hold(wheel)",
        "cache.hold(wheel, progress=lambda done, total: total < 2 * done and os.abort())",
    )
    argv = [sys.executable, "-c", script, str(tmp_path), str(9 * SIZE), index.url]
    item = f"{wheel.filename}:{wheel.sha256}:{wheel.size}"
    killed = subprocess.run([*argv, item], capture_output=True, timeout=60, check=False)
    assert killed.returncode < 0
    (kept,) = parts(tmp_path)
    assert kept > 0
    index.asked = []
    assert get(cache_of(index, tmp_path), wheel).read_bytes() == index.files[FIRST]
    assert index.asked[0].headers["Range"] == f"bytes={kept}-"
