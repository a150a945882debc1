"""Where artifacts are to be kept, as settings and ``[storage]`` of ``perfbisect.toml`` say."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from perfbisect.errors import BadInputError, did_you_mean
from perfbisect.toml_files import read_toml

#: Scheme -> what has to be installed for it.
SCHEMES = {"file": "", "s3": "perfbisect[s3]", "gs": "perfbisect[gcs]"}
#: Name of the project's own file, and the table in it.
_FILE, _TABLE = "perfbisect.toml", "storage"
_CREDENTIALS = "keep credentials and options out of it: they come from the environment"


def checked_url(text: str) -> str:
    """Return an address of artifacts, its scheme in small letters; empty: the data directory.

    Raises:
        PydanticCustomError: of type ``credentials``: it is none, and may hold what is secret.
        ValueError: it is none; says what would be right.
    """
    try:
        return _checked(text)
    except ValueError as error:
        if "@" in text or "?" in text:
            # Whatever else is wrong with it: it must not be shown.
            raise PydanticCustomError("credentials", _CREDENTIALS) from error
        raise


def _checked(text: str) -> str:
    if not text:
        return text
    if not text.isprintable():
        raise ValueError("an address has no control characters")
    address = urlsplit(text)
    scheme, _, rest = text.partition("://")
    if address.scheme not in SCHEMES or scheme.lower() != address.scheme:
        near = did_you_mean(address.scheme, SCHEMES)
        raise ValueError(
            f"begin with file://, s3:// or gs://{near}, as in 's3://bucket/perfbisect'"
        )
    if "@" in address.netloc or address.query:
        raise ValueError(_CREDENTIALS)
    if address.scheme == "file":
        if address.netloc or not address.path.startswith("/"):
            raise ValueError("a folder has an absolute path, as in 'file:///srv/perfbisect'")
    elif not address.netloc:
        raise ValueError(f"name a bucket, as in '{address.scheme}://bucket/perfbisect'")
    # fsspec knows schemes in small letters only.
    return f"{address.scheme}://{rest}"


def configured_url(directory: Path | None) -> str:
    """Return ``artifacts`` of ``[storage]`` in ``perfbisect.toml``; empty: it says nothing.

    Args:
        directory: where the file is; None: the current directory.

    Raises:
        BadInputError: it is no TOML, or the table can't be right; names the key.
    """
    file = (directory or Path.cwd()).resolve() / _FILE
    document = read_toml(file) if file.is_file() else {}
    return _url_of(file, document.get(_TABLE, {}))


def _url_of(file: Path, table: Any) -> str:
    if not isinstance(table, dict):
        raise BadInputError(f"{file}: {_TABLE} should be a table: [{_TABLE}]", field=_TABLE)
    for key in table:
        if key != "artifacts":
            near = did_you_mean(key, ["artifacts"])
            raise BadInputError(
                f"{file}: {_TABLE}.{key}: no such key{near}; known: artifacts", field=key
            )
    value = table.get("artifacts", "")
    if not isinstance(value, str):
        raise BadInputError(f"{file}: {_TABLE}.artifacts = {value!r} should be text", value=value)
    try:
        return checked_url(value)
    except PydanticCustomError as error:
        raise BadInputError(f"{file}: {_TABLE}.artifacts: {error}", field="artifacts") from error
    except ValueError as error:
        raise BadInputError(
            f"{file}: {_TABLE}.artifacts = {value!r}: {error}", field="artifacts", value=value
        ) from error
