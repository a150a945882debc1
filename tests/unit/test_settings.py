"""Settings: what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import make_url

from perfbisect.settings import Settings


@pytest.mark.parametrize("name", ["p%41", "p?x", "p#q", "a b", "ä"])
def test_a_data_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Letters that mean more in a URL are letters: the database is in that very directory."""
    directory = tmp_path / name
    assert make_url(Settings(data_dir=directory).url).database == str(directory / "perfbisect.db")
