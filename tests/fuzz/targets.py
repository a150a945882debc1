"""What is fuzzed: each parser takes bytes, and may refuse them as it says, and in no other way."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from packaging.tags import Tag
from pypi_simple import ProjectPage, UnsupportedRepoVersionError
from tests.fuzz.readers import READERS, Feed

from perfbisect.alerting.configuration import load_alert_config
from perfbisect.alerting.payloads import read_alertmanager, read_generic, read_json
from perfbisect.building.failures import classify
from perfbisect.config import load_recipe
from perfbisect.config_values import benchmark_from_dict, recipe_from_dict
from perfbisect.core.archives import read_archives
from perfbisect.core.build_progress import read_progress
from perfbisect.core.relations import changelist_of, pull_request_of, read_mentions
from perfbisect.core.revision import RevisionSyntaxError, parse_revision
from perfbisect.core.toolchain import TOOLCHAIN_FILES, toolchain_facts
from perfbisect.core.versions import commit_prefix, night_of
from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.git.log import _plain, _with_paths
from perfbisect.git.merging import _read_conflicts, cut_hunks
from perfbisect.git.patching import _where_it_failed
from perfbisect.git.process import check_argument
from perfbisect.git.source import parse_source
from perfbisect.logs import coloured, plain
from perfbisect.nightly.definitions import read_project
from perfbisect.nightly.formats import PointFormat, read_csv, read_points
from perfbisect.publishing.git_version import find_stamp_in
from perfbisect.publishing.listing import choose_range
from perfbisect.publishing.target import Target
from perfbisect.running.archives import unpack
from perfbisect.running.failures import RunFailed
from perfbisect.units import parse_duration, parse_percent, parse_size, parse_threshold
from perfbisect.web.ansi import to_html

_ANY = Target((Tag("py3", "none", "any"),), "3.11.4")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _text(data)


def _refusing(*refusals: type[BaseException]) -> Callable[[Callable[[bytes], object]], Feed]:
    """Return a decorator of parsers that may refuse in these ways."""

    def decorated(parse: Callable[[bytes], object]) -> Feed:
        def feed(data: bytes) -> None:
            try:
                parse(data)
            except refusals:
                return

        return feed

    return decorated


@_refusing(BadInputError)
def _deliveries(data: bytes) -> None:
    payload = read_json(data)
    for read in (read_alertmanager, read_generic):
        try:
            read(payload, [])
        except BadInputError:
            continue
    read_alertmanager(payload, [], source="grafana")


@_refusing(BadInputError)
def _points(data: bytes) -> None:
    document = _json(data)
    for chosen in PointFormat:
        try:
            read_points(document, chosen, night=date(2026, 1, 1), text=json.dumps)
        except BadInputError:
            continue


@_refusing(BadInputError, NotFoundError)
def _definitions(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "perfbisect.toml").write_bytes(data)
        for read in (read_project, load_alert_config):
            try:
                read(directory)
            except BadInputError:
                continue
        load_recipe("x", directory)


def _tables(data: bytes) -> None:
    document = _json(data)
    if not isinstance(document, dict):
        document = {"name": document}
    for read in (recipe_from_dict, benchmark_from_dict):
        try:
            read(document)
        except BadInputError:
            continue


def _git(data: bytes) -> None:
    text = _text(data)
    tokens = data.split(b"\0")
    for parse in (_plain, _with_paths):
        try:
            list(parse(tokens))
        except (ValueError, OverflowError, OSError):
            # Git writes names and seconds that are some; here there are others.
            continue
    cut_hunks(text)
    _where_it_failed(text, text)
    read_mentions(text)
    changelist_of(text)
    pull_request_of(text)


@_refusing(IndexError, ValueError)
def _conflicts(data: bytes) -> None:
    # What git prints is its own, but paths are the repository's: they can't break its form.
    _read_conflicts(b"0" * 40 + b"\0" + b"100644 " + b"1" * 40 + b" 1\t" + data + b"\0\0")


def _good(text: str) -> None:
    check_argument(text, "good")


def _source(text: str) -> None:
    parse_source(text, allow_local=False)


@_refusing(BadInputError)
def _names(data: bytes) -> None:
    text = _text(data)
    for check in (_good, _source):
        with contextlib.suppress(BadInputError):
            check(text)
    try:
        parse_revision(text)
    except RevisionSyntaxError:
        return


def _units(data: bytes) -> None:
    for value in (_text(data), _json(data)):
        for parse in (parse_duration, parse_percent, parse_size, parse_threshold):
            try:
                parse(value)
            except BadInputError:
                continue


def _logs(data: bytes) -> None:
    text = _text(data)
    classify(text)
    read_progress(text)
    assert "\x1b" not in plain(text)
    html = str(to_html(coloured(text)))
    assert "<script" not in html
    assert html.count("<") == html.count("<span class=") + html.count("</span>")


@_refusing(BadInputError, NotFoundError)
def _index_page(data: bytes) -> None:
    text = _text(data)
    pages = []
    with contextlib.suppress(ValueError, UnsupportedRepoVersionError):
        markup = f"<html>{text}"
        pages.append(ProjectPage.from_html("x", markup, base_url="https://index.example/x/"))
    files = [{"filename": text, "url": text, "hashes": {"sha256": text}}]
    named = {"name": "x", "files": files, "meta": {"api-version": "1.0"}}
    for document in (_json(data), named):
        try:
            pages.append(ProjectPage.from_json_data(document, "https://index.example/x/"))
        except (ValueError, TypeError, AttributeError, UnsupportedRepoVersionError):
            # The client library's own refusals; PackageIndex passes them on as bad input.
            continue
    for page in pages:
        try:
            choose_range("x", page.packages, "1.0", "2.0", _ANY)
        except (BadInputError, NotFoundError):
            continue


def _versions(data: bytes) -> None:
    night_of(_text(data))
    commit_prefix(_text(data))


@_refusing(RunFailed)
def _archive(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        archive = Path(name, "a.tar.gz")
        archive.write_bytes(data)
        inside = Path(name, "inside")
        inside.mkdir()
        unpack(archive, inside)


@_refusing(zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, OSError)
def _wheel(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        find_stamp_in(archive, "x-1.0-py3-none-any.whl")


def _tree(data: bytes) -> None:
    text = _text(data)
    read_archives(text)
    toolchain_facts(dict.fromkeys(TOOLCHAIN_FILES, text))


TARGETS: Mapping[str, Feed] = {
    **READERS,
    "webhooks": _deliveries,
    "points": _points,
    "points in CSV": _refusing(BadInputError)(lambda data: read_csv(_text(data), "f.csv")),
    "perfbisect.toml": _definitions,
    "recipes and benchmarks": _tables,
    "what git prints": _git,
    "conflicts": _conflicts,
    "names": _names,
    "units": _units,
    "logs": _logs,
    "index pages": _index_page,
    "versions": _versions,
    "archives of artifacts": _archive,
    "wheels": _wheel,
    "files of a tree": _tree,
}
