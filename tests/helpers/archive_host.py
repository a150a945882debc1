"""A host of archives: some are there, some are gone, and connections may break."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class ArchiveHost:
    """What the host has, and what it was asked for."""

    url: str = ""
    #: Path -> content.
    files: dict[str, bytes] = field(default_factory=dict)
    #: Paths at which the connection breaks after so many bytes, once.
    breaks: dict[str, int] = field(default_factory=dict)
    #: (path, first byte asked for).
    asked: list[tuple[str, int]] = field(default_factory=list)


@contextlib.contextmanager
def archive_host() -> Iterator[ArchiveHost]:
    """Serve on loopback for as long as the block lasts."""
    host = ArchiveHost()

    class Handler(BaseHTTPRequestHandler):
        # Bazel's cache wants nothing older.
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(found[1]) if found else 0
            host.asked.append((self.path, start))
            content = host.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(206 if found else 200)
            if found:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            stop = host.breaks.pop(self.path, len(content))
            self.close_connection = stop < len(content)
            self.wfile.write(content[start:stop])

        def do_PUT(self) -> None:
            """Keep what is sent, as a cache does."""
            host.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    host.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
