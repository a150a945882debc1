"""The noise of a host, from repeats of the same wheel."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.serving import Site

from perfbisect.store.noise import noise_of


@pytest.mark.parametrize("outliers", [0.0, 0.03])
def test_noise_is_that_of_a_run(outliers: float) -> None:
    """From few repeats of many wheels of all levels, 2% noise is found within a tenth."""
    random = np.random.default_rng(7)
    groups = [
        list(level + random.normal(0, 0.02, 3) - 0.5 * (random.random(3) < outliers))
        for level in random.normal(9, 3, 400)
    ]
    found = noise_of("host", "benchmark", groups)
    assert found is not None
    assert found.scale == pytest.approx(0.02, rel=0.1)
    assert found.outliers == pytest.approx(outliers, abs=0.01)
    assert (found.repeats, found.wheels) == (800, 400)


def test_few_repeats_say_nothing() -> None:
    """Single runs of many wheels, or three pairs, give no noise; equal values give none at all."""
    assert noise_of("host", "benchmark", [[1.0]] * 100) is None
    assert noise_of("host", "benchmark", [[1.0, 1.1]] * 3) is None
    still = noise_of("host", "benchmark", [[1.0, 1.0]] * 9)
    assert still is not None
    assert (still.scale, still.outliers) == (0.0, 0.0)


def test_hosts_tell_their_noise(site: Site) -> None:
    """API and page say how noisy each host is, and by how much that is known."""
    hosts = {host["name"]: host for host in site.json("/hosts")}
    (noise,) = hosts["gpu-17"]["noise"]
    assert noise["benchmark"] == "resnet50-train"
    assert 0.001 < noise["scale"] < 0.03
    page = site.client.get("/hosts").text
    assert f"{noise['scale'] * 100:.2f}%" in page
    assert "Builds under way" in page


def test_metrics_tell_the_queue_and_durations(site: Site) -> None:
    """Figures for Prometheus: jobs by state, work by state and duration, failures by kind."""
    text = site.client.get("/metrics").text
    for line in (
        'perfbisect_bisections{state="running"} 1.0',
        'perfbisect_builds{state="running"} 1.0',
        'perfbisect_failures{kind="permanent"} 2.0',
        "perfbisect_build_seconds_count",
        "perfbisect_run_seconds_sum",
    ):
        assert line in text, line
