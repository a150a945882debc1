"""Where the package index is and how it is reached, from this machine's settings of pip and uv.

perfbisect names no index itself. In this order: what the caller gives, ``UV_DEFAULT_INDEX``,
``UV_INDEX_URL``, ``PIP_INDEX_URL``, pip's configuration files, the default of the client library.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pypi_simple import PYPI_SIMPLE_ENDPOINT

from perfbisect.errors import BadInputError

#: The client library's default index was taken: nothing is configured.
DEFAULT = "default"
#: The caller named the index.
GIVEN = "given"

_URL_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "SSL_CERT_FILE")


@dataclass(frozen=True, slots=True)
class IndexAccess:
    """How to reach one package index. Proxies and ``netrc`` come from the environment as usual."""

    #: Root of the simple API, without credentials.
    url: str
    #: Setting that named it: a variable, a file, ``given`` or ``default``.
    source: str
    username: str = ""
    password: str = field(default="", repr=False)
    #: File or directory of CA certificates; empty: the client library's own.
    ca_bundle: str = ""

    def installer_variables(self) -> dict[str, str]:
        """Return what uv needs in its environment to install from the same index.

        A given index comes first, in front of the machine's own: it may lack the dependencies.
        """
        variables = {}
        if self.source == GIVEN:
            variables["UV_INDEX"] = self._with_credentials()
        elif self.source != DEFAULT:
            variables["UV_DEFAULT_INDEX"] = self._with_credentials()
        if self.ca_bundle and Path(self.ca_bundle).is_file():
            variables["SSL_CERT_FILE"] = self.ca_bundle
        return variables

    def is_same_host(self, url: str) -> bool:
        """Return whether a URL is on the index's host, which the credentials are for."""
        own, other = urlsplit(self.url), urlsplit(url)
        return (own.scheme, own.netloc) == (other.scheme, other.netloc)

    def _with_credentials(self) -> str:
        if not self.username:
            return self.url
        parts = urlsplit(self.url)
        user = quote(self.username, safe="")
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        return urlunsplit(parts._replace(netloc=f"{user}{secret}@{parts.netloc}"))


def index_access(
    url: str = "",
    environ: Mapping[str, str] | None = None,
    pip_files: Sequence[Path] | None = None,
) -> IndexAccess:
    """Return how this machine reaches its package index.

    Args:
        url: root of a simple API to use in place of the machine's.
        environ: environment variables; None: this process's.
        pip_files: pip's configuration files, the strongest last; None: where pip looks for them.

    Raises:
        BadInputError: the URL is not one of http or https, or a file of pip's can't be read.
    """
    environ = os.environ if environ is None else environ
    files = pip_config_files(environ) if pip_files is None else pip_files
    pip = _read_pip(files)
    found = [(GIVEN, url)] if url else []
    found += [(name, environ[name]) for name in _URL_VARIABLES if environ.get(name)]
    found += [(source, value) for source, value in (pip.get("index-url", ("", "")),) if value]
    source, chosen = found[0] if found else (DEFAULT, PYPI_SIMPLE_ENDPOINT)
    certificates = [environ[name] for name in _CA_VARIABLES if environ.get(name)]
    bundle = certificates[0] if certificates else pip.get("cert", ("", ""))[1]
    return _parse(chosen, source, bundle)


def pip_config_files(environ: Mapping[str, str]) -> list[Path]:
    """Return where pip looks for its configuration, the strongest last."""
    chosen = environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return []
    home = Path(environ.get("HOME", "~")).expanduser()
    system = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path(directory) / "pip" / "pip.conf" for directory in reversed(system.split(":"))]
    files += [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", user / "pip" / "pip.conf"]
    files.append(Path(sys.prefix) / "pip.conf")
    return [*files, Path(chosen)] if chosen else files


def _read_pip(files: Sequence[Path]) -> dict[str, tuple[str, str]]:
    """Return setting -> (file, value); ``[install]`` is stronger than ``[global]``."""
    found: dict[str, tuple[str, str]] = {}
    for section in ("global", "install"):
        for path in files:
            parser = configparser.RawConfigParser()
            try:
                parser.read(path, encoding="utf-8")
            except (configparser.Error, OSError, UnicodeDecodeError) as error:
                raise BadInputError(
                    f"pip's configuration {path} can't be read: {error}",
                    field="index",
                    value=str(path),
                ) from error
            if parser.has_section(section):
                for key, value in parser.items(section):
                    found[key.replace("_", "-").lower()] = (str(path), value.strip())
    return found


def _parse(text: str, source: str, bundle: str) -> IndexAccess:
    """Split the credentials off, so that they never reach a message, a log or a row."""
    name, equals, rest = text.partition("=")
    url = rest if equals and "/" not in name else text  # uv's form: NAME=URL
    try:
        parts = urlsplit(url.strip())
        username, password = unquote(parts.username or ""), unquote(parts.password or "")
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        parts, username, password, host = urlsplit(""), "", "", ""
    if parts.scheme not in ("http", "https") or not host:
        shown = urlunsplit(parts._replace(netloc=host, query="", fragment=""))
        raise BadInputError(
            f"the package index is '{shown}' (from {source}); right is the URL of a simple API, "
            "like https://index.example/simple/",
            field="index",
            value=shown,
        )
    clean = urlunsplit(parts._replace(netloc=host, query="", fragment=""))
    return IndexAccess(clean.rstrip("/") + "/", source, username, password, bundle)
