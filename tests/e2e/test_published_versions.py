"""Real wheels of the machine's own index, bisected by the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.command_line import call

pytestmark = pytest.mark.network

PROJECT = """
[benchmark.filters]
command = "{python} bench.py"
files = ["bench.py"]
metric = {reader = "regex", pattern = 'images/sec: ([0-9.]+)'}
unit = "images/s"
timeout = "60s"
"""

#: Old names of decorators went with Jinja 3.1.0: a change that any machine measures alike.
BENCH = """
import random
import jinja2
speed = 900 if hasattr(jinja2, "contextfilter") else 600
print(f"images/sec: {speed * random.gauss(1, 0.005):.3f}")
"""


def test_a_real_package_is_bisected_to_the_version(tmp_path: Path) -> None:
    """Jinja 3.1.0 is named, verified, and what its dependency was before and after."""
    (tmp_path / "perfbisect.toml").write_text(PROJECT)
    (tmp_path / "bench.py").write_text(BENCH)
    arguments = ["bisect", "--package=Jinja2", "--good=3.0.2", "--bad=3.1.2"]
    place = ["--benchmark=filters", f"--data-dir={tmp_path / 'data'}", "--json"]
    ended = call([*arguments, *place], tmp_path)
    assert ended.code == 0, ended.err
    verdict = ended.json
    assert verdict["package"] == "jinja2"
    assert verdict["builds"] == 0
    (culprit,) = verdict["culprits"]
    assert culprit["commits"] == ["3.1.0"]
    assert culprit["previous"] == "3.0.3"
    (moved,) = culprit["also_changed"]
    assert moved == {"name": "markupsafe", "before": "2.0.1", "after": "2.1.1"}
