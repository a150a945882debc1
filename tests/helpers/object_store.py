"""A real S3 server from a package, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.helpers.waiting import stopped

BUCKET = "wheels"

_PROGRAM = """
import sys
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # ends with the test that started it, however that ends
"""


@contextmanager
def s3_server() -> Iterator[str]:
    """Start a server with one bucket, where the environment's clients find it; yield its URL."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = f"http://127.0.0.1:{int(process.stdout.readline())}"
        with pytest.MonkeyPatch.context() as environment:
            for name in [each for each in os.environ if each.startswith("AWS_")]:
                environment.delenv(name)
            environment.setenv("AWS_ENDPOINT_URL", address)
            environment.setenv("AWS_ACCESS_KEY_ID", "tester")
            environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
            environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
            environment.setenv("NO_PROXY", "127.0.0.1")
            client().mkdir(BUCKET)
            yield address
    finally:
        stopped(process)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()


def client() -> Any:
    """Return a client of its own, as another program would have."""
    import s3fs

    return s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)
