"""A small package index over HTTP on loopback, and wheels to put into it."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from perfbisect.publishing.access import IndexAccess
from perfbisect.publishing.values import Published


def wheel_bytes(members: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive with these members, always the same for the same members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return buffer.getvalue()


@dataclass
class Asked:
    """One request that the index got."""

    path: str
    headers: Mapping[str, str]


@dataclass
class FakeIndex:
    """What the index has and how it behaves; may be changed between requests."""

    #: File name -> content.
    files: dict[str, bytes] = field(default_factory=dict)
    #: File name -> further keys of its JSON entry, e.g. ``upload-time``.
    extra: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: File name -> what the index says its SHA-256 is, where that is not the truth.
    claimed: dict[str, str] = field(default_factory=dict)
    #: HTML (PEP 503) only.
    html: bool = False
    #: Answers requests for parts of files.
    ranges: bool = True
    #: Statuses to answer the next requests with, before anything else.
    statuses: list[int] = field(default_factory=list)
    #: Break the next answers of files after so many bytes.
    cuts: list[int] = field(default_factory=list)
    #: ``user:password`` in base64 that requests must bring.
    secret: str = ""
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    @property
    def access(self) -> IndexAccess:
        return IndexAccess(f"{self.url}/simple/", "given")

    def published(self, name: str) -> Published:
        """Return a file as a listing would."""
        content = self.files[name]
        package, version = name.split("-")[:2]
        sha256 = self.claimed.get(name, hashlib.sha256(content).hexdigest())
        return Published(package, version, name, f"{self.url}/files/{name}", sha256, len(content))

    def asked_for(self, name: str) -> list[Asked]:
        return [request for request in self.asked if request.path.endswith(f"/{name}")]


@contextmanager
def serving(index: FakeIndex) -> Iterator[FakeIndex]:
    """Serve an index until the end of the block."""

    class Handler(_Handler):
        fake = index

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: clients of these tests hang up in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    fake: FakeIndex
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_HEAD(self) -> None:
        # uv asks so whether parts of files are sent.
        self.do_GET()

    def do_GET(self) -> None:
        fake = self.fake
        fake.asked.append(Asked(self.path, dict(self.headers)))
        if fake.statuses:
            return self._send(fake.statuses.pop(0), b"trouble", "text/plain")
        if fake.secret and self.headers.get("Authorization") != f"Basic {fake.secret}":
            return self._send(401, b"who are you?", "text/plain")
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "simple":
            return self._project(name)
        if name in fake.files:
            return self._file(fake.files[name])
        return self._send(404, b"nothing", "text/plain")

    def _project(self, project: str) -> None:
        fake = self.fake
        names = [name for name in fake.files if _project_of(name) == project]
        if not names:
            return self._send(404, b"no such project", "text/plain")
        if fake.html:
            links = [
                f'<a href="/files/{name}#sha256={fake.published(name).sha256}">{name}</a>'
                for name in names
            ]
            body = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
            return self._send(200, body, "text/html")
        page = {
            "meta": {"api-version": "1.1"},
            "name": project,
            "versions": sorted({name.split("-")[1] for name in names}),
            "files": [
                {
                    "filename": name,
                    "url": f"/files/{name}",
                    "hashes": {"sha256": fake.published(name).sha256},
                    "size": len(fake.files[name]),
                    **fake.extra.get(name, {}),
                }
                for name in names
            ],
        }
        return self._send(200, json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json")

    def _file(self, content: bytes) -> None:
        wanted = self.headers.get("Range", "") if self.fake.ranges else ""
        if not wanted:
            return self._send(200, content, "application/octet-stream", cut=True)
        low, _, high = wanted.removeprefix("bytes=").partition("-")
        start = int(low) if low else max(0, len(content) - int(high))
        stop = int(high) + 1 if low and high else len(content)
        told = {"Content-Range": f"bytes {start}-{min(stop, len(content)) - 1}/{len(content)}"}
        if start >= len(content):
            told = {"Content-Range": f"bytes */{len(content)}"}
            return self._send(416, b"", "text/plain", told)
        return self._send(206, content[start:stop], "application/octet-stream", told, cut=True)

    def _send(
        self,
        status: int,
        body: bytes,
        kind: str,
        headers: Mapping[str, str] | None = None,
        *,
        cut: bool = False,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut and self.fake.cuts:
            body = body[: self.fake.cuts.pop(0)]
            self.close_connection = True
        self.wfile.write(body)


def _project_of(filename: str) -> str:
    return filename.split("-")[0].replace("_", "-").lower()
