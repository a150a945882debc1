"""Archives that a Bazel workspace downloads: addresses and checksums, read from its own files.

Starlark is close enough to Python that Python's own parser reads it. Nothing is run: what is
written out, or put together from constants of the same file (``+``, ``%``, ``.format``), is
understood, and the rest is said to be not understood.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Words by which ``sha256`` and the addresses are named in the rules of the eras.
_SUMS = ("sha256", "jar_sha256")
_ADDRESSES = ("urls", "url", "jar_urls", "jar_url")
#: Sums of several files at once: ``filegroup_external(sha256_urls = {sum: [address, …]})``.
_BY_SUM = ("sha256_urls", "extra_build_file_content_sha256_urls", "sha256_urls_linux")

#: Functions of the tree that turn one address into several, and what they put in front.
_MIRRORS: Mapping[str, str] = {
    "tf_mirror_urls": "https://storage.googleapis.com/mirror.tensorflow.org/"
}

#: Stands for what a function is called with.
_GIVEN = object()

_FILE_NAME = re.compile(r"[A-Za-z0-9_][\w.+%@~-]{0,200}", re.ASCII)
#: Characters of a text, or members of a list, that are put together at most.
_LONGEST = 100_000
#: ``%9s``, ``%*s`` and ``{:>9}``: made longer than what goes in.
_PADDED = re.compile(r"%[-#0 +]*[0-9*]|\{[^{}]*:")
_HEX = frozenset("0123456789abcdef")
_SCHEMES = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class Archive:
    """One file that a build downloads."""

    #: SHA-256, 64 hexadecimal digits.
    sha256: str
    #: Where it may be had, in the order in which they are tried.
    urls: tuple[str, ...]

    @property
    def name(self) -> str:
        """Last part of its first address, which Bazel looks for in a directory of archives."""
        return self.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Last parts of all its addresses, each once; what can't be a file's name is left out."""
        last = [url.partition("?")[0].rstrip("/").rpartition("/")[2] for url in self.urls]
        found = dict.fromkeys(name for name in last if _FILE_NAME.fullmatch(name))
        return tuple(found) or (self.sha256,)


@dataclass(frozen=True, slots=True)
class Found:
    """What a file names."""

    archives: tuple[Archive, ...] = ()
    #: Calls that can't be understood without running them, as ``line 12: http_archive(name)``.
    puzzles: tuple[str, ...] = ()


def read_archives(text: str) -> Found:
    """Return the archives that one ``WORKSPACE`` or ``.bzl`` file names.

    A file that can't be read as Starlark is one puzzle.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        return Found(puzzles=(f"line {getattr(error, 'lineno', None) or 1}: not understood",))
    reader = _Reader()
    reader.read(tree.body, {})
    return Found(tuple(reader.archives), tuple(reader.puzzles))


def merged(found: Sequence[Archive]) -> tuple[Archive, ...]:
    """Return each file once, with all the addresses that anybody names for it, the first first."""
    addresses: dict[str, list[str]] = {}
    for archive in found:
        known = addresses.setdefault(archive.sha256, [])
        known += [url for url in archive.urls if url not in known]
    return tuple(Archive(sha256, tuple(urls)) for sha256, urls in addresses.items())


@dataclass(slots=True)
class _Reader:
    """Walks a file with the constants that are known at each place."""

    archives: list[Archive] = field(default_factory=list)
    puzzles: list[str] = field(default_factory=list)

    def read(self, body: Sequence[ast.stmt], names: dict[str, Any]) -> None:
        """Read statements; ``names`` are the constants known so far, and get those bound here."""
        for statement in body:
            if isinstance(statement, ast.FunctionDef):
                given = {argument.arg: _GIVEN for argument in statement.args.args}
                self.read(statement.body, names | given)
                continue
            if isinstance(statement, ast.If | ast.For):
                self.read(statement.body, dict(names))
                self.read(statement.orelse, dict(names))
                continue
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                _bind(statement.targets[0], _value(statement.value, names), names)
            for node in ast.walk(statement):
                if isinstance(node, ast.Call):
                    self._call(node, names)

    def _call(self, call: ast.Call, names: Mapping[str, Any]) -> None:
        given = {each.arg: each.value for each in call.keywords if each.arg}
        for key in _BY_SUM:
            if isinstance(mapping := _value(given.get(key), names), dict):
                for sha256, urls in mapping.items():
                    self._add(call, names, sha256, urls)
        sums = [given[key] for key in _SUMS if key in given]
        if sums and _is_handed_on(sums[0], names):
            # The body of a rule or macro: what it is given is written where it is called.
            return
        addresses = [given[key] for key in _ADDRESSES if key in given]
        if not sums or not addresses:
            return
        urls = [url for each in addresses for url in _urls(_value(each, names))]
        self._add(call, names, _value(sums[0], names), urls)

    def _add(self, call: ast.Call, names: Mapping[str, Any], sha256: Any, urls: Any) -> None:
        found = _urls(urls)
        if sha256 == "":
            # No sum, no promise: such an archive can't be kept for anybody.
            return
        if not isinstance(sha256, str) or not _is_sum(sha256.lower()) or not found:
            self.puzzles.append(f"line {call.lineno}: {_named(call, names)}")
            return
        self.archives.append(Archive(sha256.lower(), tuple(found)))


def _is_handed_on(node: ast.expr, names: Mapping[str, Any]) -> bool:
    return isinstance(node, ast.Attribute) or _value(node, names) is _GIVEN


def _bind(target: ast.expr, value: Any, names: dict[str, Any]) -> None:
    if isinstance(target, ast.Name):
        names.pop(target.id, None)
        if value is not None:
            names[target.id] = value


def _named(call: ast.Call, names: Mapping[str, Any]) -> str:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "?")
    own = next((_value(each.value, names) for each in call.keywords if each.arg == "name"), None)
    return f"{name}({own if isinstance(own, str) else '…'})"


def _is_sum(text: str) -> bool:
    return len(text) == 64 and set(text) <= _HEX


def _urls(value: Any) -> list[str]:
    """Return the addresses of a value: one, or a list of them; what is none is left out."""
    listed = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [url for url in listed if isinstance(url, str) and url.startswith(_SCHEMES)]


def _value(node: ast.expr | None, names: Mapping[str, Any]) -> Any:
    """Return text, a number, a list or a dictionary that an expression is; None: not known."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(each, names) for each in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        known = [(_value(key, names), _value(value, names)) for key, value in pairs]
        return {key: value for key, value in known if isinstance(key, str)}
    if isinstance(node, ast.BinOp):
        return _combined(node, names)
    if isinstance(node, ast.Call):
        return _called(node, names)
    return None


def _combined(node: ast.BinOp, names: Mapping[str, Any]) -> Any:
    left, right = _value(node.left, names), _value(node.right, names)
    if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, str | list):
        # What doubles line by line would not fit into any memory.
        return left + right if len(left) + len(right) <= _LONGEST else None
    if isinstance(node.op, ast.Mod) and isinstance(left, str) and right is not None:
        parts = tuple(right) if isinstance(right, list) else right
        try:
            return None if _unknown(right) or _is_padded(left) else _short(left % parts)
        except (TypeError, ValueError, KeyError):
            return None
    return None


def _is_padded(text: str) -> bool:
    """Return whether a format asks for a width, which may be anything."""
    return _PADDED.search(text) is not None


def _short(text: str) -> str | None:
    return text if len(text) <= _LONGEST else None


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, list) and None in value)


def _called(node: ast.Call, names: Mapping[str, Any]) -> Any:
    arguments = [_value(each, names) for each in node.args]
    named = {each.arg: _value(each.value, names) for each in node.keywords if each.arg}
    if isinstance(node.func, ast.Name) and node.func.id in _MIRRORS and len(arguments) == 1:
        return _mirrored(_MIRRORS[node.func.id], arguments[0])
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("format", "replace"):
        return None
    text = _value(node.func.value, names)
    if not isinstance(text, str) or None in [*arguments, *named.values()]:
        return None
    if node.func.attr == "replace":
        strings = [each for each in arguments if isinstance(each, str)]
        if len(strings) != 2 or len(arguments) != 2:
            return None
        grown = (text.count(strings[0]) + 1) * len(strings[1]) + len(text)
        return text.replace(strings[0], strings[1]) if grown <= _LONGEST else None
    return _formatted(text, arguments, named)


def _formatted(text: str, arguments: list[Any], named: dict[str, Any]) -> str | None:
    # Attributes and indices of a value could reach anything; Starlark has none in its formats.
    if any(mark in text.replace("{{", "") for mark in ("{0.", "{0[", "!")) or ".__" in text:
        return None
    if _is_padded(text):
        return None
    plain = str | int
    if not all(isinstance(each, plain) for each in [*arguments, *named.values()]):
        return None
    try:
        return _short(text.format(*arguments, **named))
    except (AttributeError, IndexError, KeyError, ValueError):
        return None


def _mirrored(prefix: str, url: Any) -> list[str] | None:
    if not isinstance(url, str) or not url.startswith("https://"):
        return None
    return [prefix + url.removeprefix("https://"), url]
