"""Which package index is used, and how it is reached."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from perfbisect.errors import BadInputError
from perfbisect.packages import dating_options
from perfbisect.publishing.access import IndexAccess, index_access, pip_config_files


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_given_url_is_stronger_than_variables_and_those_than_files(tmp_path: Path) -> None:
    """Given, uv's variables, pip's variable, pip's files: the first that there is wins."""
    files = [write(tmp_path / "pip.conf", "[global]\nindex-url = https://file.example/simple\n")]
    environ = {
        "PIP_INDEX_URL": "https://pip.example/simple/",
        "UV_INDEX_URL": "https://old-uv.example/simple",
        "UV_DEFAULT_INDEX": "https://uv.example/simple",
    }
    expected = [
        ("https://uv.example/simple/", "UV_DEFAULT_INDEX"),
        ("https://old-uv.example/simple/", "UV_INDEX_URL"),
        ("https://pip.example/simple/", "PIP_INDEX_URL"),
        ("https://file.example/simple/", str(files[0])),
    ]
    given = index_access("https://given.example/simple", environ, files)
    assert (given.url, given.source) == ("https://given.example/simple/", "given")
    for name, answer in zip([*reversed(environ), ""], expected, strict=True):
        found = index_access(environ=environ, pip_files=files)
        assert (found.url, found.source) == answer
        environ.pop(name, None)


def test_without_any_setting_the_library_decides() -> None:
    """Where nothing is configured there is still an index, and uv is told nothing."""
    access = index_access(environ={}, pip_files=[])
    assert access.source == "default"
    assert access.url.startswith("https://")
    assert access.installer_variables() == {}


def test_later_files_and_the_install_section_are_stronger(tmp_path: Path) -> None:
    """pip's own order: the last file wins, and [install] over [global]; missing files are fine."""
    first = write(tmp_path / "a", "[global]\nindex_url = https://a.example\ncert = /a.pem\n")
    second = write(tmp_path / "b", "[global]\nindex-url = https://b.example\n")
    third = write(tmp_path / "c", "[install]\nindex-url = https://c.example\n")
    missing = tmp_path / "d"
    assert index_access(environ={}, pip_files=[first, second, missing]).url == "https://b.example/"
    found = index_access(environ={}, pip_files=[third, first, second])
    assert found.url == "https://c.example/"
    assert found.ca_bundle == "/a.pem"


def test_certificates_come_from_the_usual_variables() -> None:
    """The first of the known variables names the CA file; uv is told only if it is a file."""
    environ = {"SSL_CERT_FILE": "/ssl.pem", "PIP_CERT": __file__}
    access = index_access(environ=environ, pip_files=[])
    assert access.ca_bundle == __file__
    assert access.installer_variables() == {"SSL_CERT_FILE": __file__}
    del environ["PIP_CERT"]
    assert index_access(environ=environ, pip_files=[]).ca_bundle == "/ssl.pem"


def test_credentials_are_kept_out_of_sight() -> None:
    """User and password are split off the URL and never shown, but uv gets them."""
    environ = {"PIP_INDEX_URL": "https://me:s%2Fcret@index.example:8443/simple?x=1"}
    access = index_access(environ=environ, pip_files=[])
    assert access.url == "https://index.example:8443/simple/"
    assert (access.username, access.password) == ("me", "s/cret")
    assert "cret" not in repr(access)
    assert access.installer_variables() == {
        "UV_DEFAULT_INDEX": "https://me:s%2Fcret@index.example:8443/simple/"
    }


def test_a_given_index_is_added_in_front_of_the_machines_own() -> None:
    """The index of one package need not hold its dependencies."""
    access = index_access("https://nightly.example/simple", {}, [])
    assert access.installer_variables() == {"UV_INDEX": "https://nightly.example/simple/"}


def test_uvs_named_index() -> None:
    """uv's NAME=URL is understood."""
    environ = {"UV_DEFAULT_INDEX": "own=https://index.example/simple"}
    assert index_access(environ=environ, pip_files=[]).url == "https://index.example/simple/"


@pytest.mark.parametrize(
    "url", ["file:///srv/simple", "index.example/simple", "ftp://x.example", "https://", "http://["]
)
def test_a_url_that_is_none_of_an_index(url: str) -> None:
    """Anything but http and https is refused, and the message says where it came from."""
    with pytest.raises(BadInputError, match=r"from PIP_INDEX_URL.*like https://index\.example"):
        index_access(environ={"PIP_INDEX_URL": url}, pip_files=[])


def test_a_wrong_url_does_not_show_its_password() -> None:
    """Even a refused URL keeps its secret."""
    with pytest.raises(BadInputError) as caught:
        index_access("ftp://me:hidden@x.example/simple", {}, [])
    assert "hidden" not in str(caught.value)
    assert "hidden" not in str(caught.value.value)


def test_a_broken_file_of_pips_is_named(tmp_path: Path) -> None:
    """A file that can't be parsed is named, rather than ignored."""
    broken = write(tmp_path / "pip.conf", "index-url = https://x.example\n")
    with pytest.raises(BadInputError, match=r"pip\.conf can't be read"):
        index_access(environ={}, pip_files=[broken])


def test_where_pip_looks() -> None:
    """PIP_CONFIG_FILE comes last, and the null device switches all files off."""
    environ = {"HOME": "/home/someone", "PIP_CONFIG_FILE": "/own.conf"}
    files = pip_config_files(environ)
    assert files[-1] == Path("/own.conf")
    assert Path("/home/someone/.config/pip/pip.conf") in files
    assert pip_config_files({"PIP_CONFIG_FILE": "/dev/null"}) == []


def test_credentials_are_for_the_indexs_host_only() -> None:
    """Another host, port or scheme is another host."""
    access = IndexAccess("https://index.example/simple/", "given", "me", "secret")
    assert access.is_same_host("https://index.example/files/x.whl")
    assert not access.is_same_host("https://index.example:444/files/x.whl")
    assert not access.is_same_host("http://index.example/files/x.whl")
    assert not access.is_same_host("https://files.example/x.whl")


def test_dependencies_are_dated_and_pins_are_not() -> None:
    """Without a moment uv gets no options; with one, a benchmark's own requirements are exempt."""
    assert dating_options(None, ["numpy==2.1.3"]) == ()
    moment = datetime(2023, 10, 10, tzinfo=UTC)
    assert dating_options(moment, ["Ruamel_Yaml>=1", "numpy[x]==2.1.3; python_version>'3'"]) == (
        "--exclude-newer",
        "2023-10-10T00:00:00+00:00",
        "--exclude-newer-package",
        "numpy=2999-01-01T00:00:00Z",
        "--exclude-newer-package",
        "ruamel-yaml=2999-01-01T00:00:00Z",
    )
