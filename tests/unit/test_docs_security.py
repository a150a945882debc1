"""docs/security.md under test: what it says is shown by a test is shown by one that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.findall(
    r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs/security.md").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(("file", "function"), sorted(set(NAMED)))
def test_every_test_that_is_named_exists(file: str, function: str) -> None:
    """A threat's test can be run by the name that the table gives."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^(?:async )?def {function}\(", text, re.MULTILINE)


def test_every_hostile_test_is_told_of() -> None:
    """What was tried as an attacker stands in the table."""
    known = {function for _, function in NAMED}
    tried = [
        function
        for file in sorted((ROOT / "tests/integration").glob("test_hostile_*.py"))
        for function in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    ]
    assert tried
    assert sorted(set(tried) - known) == []
