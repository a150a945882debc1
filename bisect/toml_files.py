"""The one way to read a TOML file that people wrote."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from perfbisect.errors import BadInputError, why_unreadable

#: Bytes of a file at most.
MOST_BYTES = 10_000_000


def read_toml(file: Path) -> dict[str, Any]:
    """Return what a file says.

    Raises:
        FileNotFoundError: there is none.
        BadInputError: it can't be read, is too large, or is not TOML.
    """
    try:
        if file.stat().st_size > MOST_BYTES:
            raise BadInputError(f"{file}: larger than {MOST_BYTES} bytes", value=str(file))
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        why = why_unreadable(error)
        raise BadInputError(f"{file}: not TOML: {why}", value=str(file)) from error
    except OSError as error:
        why = why_unreadable(error)
        raise BadInputError(f"{file}: can't be read: {why}", value=str(file)) from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError, OverflowError) as error:
        # A number of thousands of digits is a ValueError of its own; brackets without end recurse.
        raise BadInputError(f"{file}: not TOML: {error}", value=str(file)) from error
