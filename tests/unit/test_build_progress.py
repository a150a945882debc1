"""perfbisect.core.build_progress: how far a build is, from its log."""

from __future__ import annotations

import pytest

from perfbisect.core.build_progress import BuildProgress, bar, read_progress, seconds_left


@pytest.mark.parametrize(
    ("log", "progress"),
    [
        ("[0 / 3] [Prepa] BazelWorkspaceStatusAction stable-status.txt\n", BuildProgress(0, 3)),
        (
            "[1 / 9] Compiling a.cc\nWARNING: x\n[1,234 / 20,001] Compiling b.cc; 3s local ...\n",
            BuildProgress(1234, 20001),
        ),
        ("[12/345] Building CXX object a.o\n", BuildProgress(12, 345)),
        ("Loading: 0 packages loaded\n", None),
        ("x [1 / 2] in the middle of a line\n", None),
        ("[0 / 0] nothing\n", None),
    ],
)
def test_the_last_count_of_a_log(log: str, progress: BuildProgress | None) -> None:
    """Bazel's and ninja's counts are read, the last one counts, and other brackets are none."""
    assert read_progress(log) == progress


@pytest.mark.parametrize(
    ("progress", "elapsed", "usual", "left"),
    [
        (BuildProgress(1, 1000), 10.0, None, None),
        (BuildProgress(1, 1000), 10.0, 100.0, 90.0),
        (BuildProgress(1, 1000), 200.0, 100.0, 0.0),
        (BuildProgress(500, 1000), 30.0, None, 30.0),
        (BuildProgress(500, 1000), 30.0, 100.0, 50.0),
        (BuildProgress(1000, 1000), 30.0, 100.0, 0.0),
    ],
)
def test_time_left(
    progress: BuildProgress, elapsed: float, usual: float | None, left: float | None
) -> None:
    """Early on the builds before it are believed, later the build's own speed."""
    assert seconds_left(progress, elapsed, usual) == left


def test_bar() -> None:
    """The bar is as full as the share, and never over."""
    assert bar(0.25, 8) == "[##......]"
    assert bar(7.0, 4) == "[####]"
