"""Git as an attacker sees it: repositories, servers and names made to run or reach something."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.repositories import Workshop

from perfbisect.builder import failure_of
from perfbisect.core.revision import Action, Change, Revision
from perfbisect.core.states import FailureKind
from perfbisect.errors import BadInputError, TransientError
from perfbisect.git.bounds import require_moderate
from perfbisect.git.fetching import Fetching
from perfbisect.git.process import Git, bound, check_argument, limiting_prefix
from perfbisect.git.source import parse_source
from perfbisect.history import Conflict, open_mirror

#: Nothing inside but this machine, by its address.
HERE = ("127.0.0.0/8",)


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """A repository with one commit."""
    shop = Workshop(tmp_path / "shop")
    shop.commit("one", {"a": "1\n"})
    return shop


def here(host: str, port: int) -> list[str]:
    """Resolve every name to this machine."""
    return ["127.0.0.1"]


@contextmanager
def http(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Run a server on this machine; yield its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def files_of(directory: Path, asked: list[str]) -> type[BaseHTTPRequestHandler]:
    """Return a handler that serves a directory, and notes what was asked for."""

    class Files(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(directory))

        def do_GET(self) -> None:
            asked.append(f"{self.headers['host']} {self.path}")
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    return Files


def published(shop: Workshop, place: Path) -> Path:
    """Return a bare copy that a plain file server can serve."""
    shop.git("clone", "--quiet", "--bare", str(shop.path), str(place))
    Git(place).run("update-server-info")
    return place


def test_nothing_of_a_repository_or_of_the_user_is_run(
    shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attributes of a hostile repository find no program, though the user's own git knows some."""
    proof = tmp_path / "run"
    command = f"touch {proof}; cat"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in (
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "fsmonitor-watchman",
    ):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {proof}\n")
        (hooks / name).chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    for key, value in {
        "filter.evil.smudge": command,
        "filter.evil.process": command,
        "filter.lfs.smudge": command,
        "merge.evil.driver": f"touch {proof}; false",
        "diff.evil.textconv": command,
        "diff.evil.command": command,
        "diff.external": command,
        "core.hooksPath": str(hooks),
        "core.fsmonitor": str(hooks / "fsmonitor-watchman"),
        "core.attributesFile": str(home / "attributes"),
        "core.pager": command,
        "init.templateDir": str(tmp_path / "template"),
        "log.showSignature": "true",
        "gpg.program": str(hooks / "post-checkout"),
    }.items():
        shop.git("config", "--file", str(home / ".gitconfig"), key, value)
    (home / "attributes").write_text("* filter=evil diff=evil merge=evil\n")
    (tmp_path / "template/hooks").mkdir(parents=True)
    (tmp_path / "template/hooks/post-checkout").symlink_to(hooks / "post-checkout")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path / "template"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(hooks / "post-checkout"))
    shop.commit(
        "attributes",
        {
            ".gitattributes": "* filter=evil diff=evil merge=evil\n*.bin filter=lfs\n",
            ".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c touch% x\n',
            ".lfsconfig": '[lfs]\n\turl = "https://elsewhere.example"\n',
            ".gitconfig": "[core]\n\tfsmonitor = false\n",
            "big.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        },
    )
    two = shop.commit("two", {"a": "2\n"})
    three = shop.commit("three", {"a": "3\n"})
    shop.git("update-index", "--add", "--cacheinfo", f"160000,{three},x")
    shop.git("commit", "--quiet", "-m", "a submodule")
    last = shop.head
    proof.unlink(missing_ok=True)
    mirror = open_mirror(shop.path, tmp_path / "mirrors")
    mirror.candidates(shop.git("rev-list", "--max-parents=0", "HEAD"), three)
    mirror.diff(two)
    mirror.relations(two)
    reverted = mirror.resolve_revision(Revision(three, (Change(Action.REVERT, two),)))
    assert isinstance(reverted, Conflict)
    mirror.checkout_tree(mirror.resolve(last).tree, last, tmp_path / "out")
    assert (tmp_path / "out/big.bin").read_text().startswith("version https://git-lfs")
    assert list((tmp_path / "out/x").iterdir()) == []
    assert not proof.exists()
    # The traps are real: git that is not told otherwise steps into them.
    subprocess.run(["git", "-C", shop.path, "show", "--ext-diff", two], check=False, timeout=60)
    assert proof.exists()


def test_a_hidden_promise_of_the_source_is_seen(shop: Workshop, tmp_path: Path) -> None:
    """A partial clone, whose lacking objects a program of its own would bring, can't hide that."""
    proof = tmp_path / "run"
    (shop.path / ".git/more").write_text(
        '[remote "origin"]\n\tpromisor = true\n\turl = .\n'
        f"\tuploadpack = touch {proof}; git-upload-pack\n"
    )
    shop.git("config", "include.path", "more")
    with pytest.raises(BadInputError, match="partial clone"):
        open_mirror(shop.path, tmp_path / "mirrors")
    assert not proof.exists()


@pytest.mark.parametrize(
    "text",
    [
        "ext::sh -c touch% /tmp/x",
        "fd::17",
        "file:///etc",
        "/etc",
        "../etc",
        "-oProxyCommand=x",
        "--upload-pack=x",
        "ssh://-oProxyCommand=x/y",
        "https://host.example/a\nb",
        "https://host.example/a\x1b[2J",
        "https://host.example/\u202egit.a",
        "gopher://host.example/a",
        "HTTPS+ext::x",
        "",
    ],
)
def test_what_is_no_address_of_a_repository_is_refused(text: str) -> None:
    """Helpers, paths of the server, options and hidden characters are no repositories."""
    with pytest.raises(BadInputError):
        parse_source(text, allow_local=False)


@pytest.mark.parametrize(
    "text",
    [
        "-x",
        "--output=/tmp/x",
        "a\0b",
        "a\nb",
        "a\x1b[2Jb",
        "\x9b2J",
        "\u202ea",
        "a\u2028b",
        "",
        " ",
    ],
)
def test_what_is_no_revision_is_refused(text: str) -> None:
    """Options, control characters and characters that turn text around are no revisions."""
    with pytest.raises(BadInputError):
        check_argument(text, "good")


@pytest.mark.parametrize(
    "url",
    [
        "https://repository.example/x.git",
        "http://repository.example:8000/x.git",
        "git://repository.example/x.git",
        "ssh://git@repository.example/x.git",
        "git@repository.example:x.git",
    ],
)
@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "fe80::1", "::ffff:10.0.0.7"]
)
def test_repositories_inside_are_refused(url: str, address: str, tmp_path: Path) -> None:
    """Where others can reach the service, no repository may lie inside, by whatever protocol."""
    fetching = Fetching(inside=(), resolve=lambda host, port: ["8.8.8.8", address])
    with pytest.raises(BadInputError, match="not of the public Internet"):
        open_mirror(url, tmp_path / "mirrors", allow_local=False, fetching=fetching)
    assert not list((tmp_path / "mirrors").glob("*.git"))


def test_the_connection_goes_to_the_machine_that_was_checked(
    shop: Workshop, tmp_path: Path
) -> None:
    """A name is resolved once: git does not ask again, when the answer may be another."""
    published(shop, tmp_path / "served/x.git")
    asked: list[str] = []
    fetching = Fetching(inside=HERE, resolve=here)
    with http(files_of(tmp_path / "served", asked)) as port:
        # No resolver of the world knows this name.
        url = f"http://repository.invalid:{port}/x.git"
        mirror = open_mirror(url, tmp_path / "mirrors", fetching=fetching)
    assert mirror.resolve("master").sha == shop.head
    assert {line.partition(" ")[0] for line in asked} == {f"repository.invalid:{port}"}


def test_redirects_are_not_followed(shop: Workshop, tmp_path: Path) -> None:
    """A server outside can't send git inside; the message says what to do."""
    published(shop, tmp_path / "served/x.git")
    asked: list[str] = []

    with http(files_of(tmp_path / "served", asked)) as inside:

        class Elsewhere(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(HTTPStatus.FOUND)
                self.send_header("location", f"http://127.0.0.1:{inside}{self.path}")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with http(Elsewhere) as outside:
            url = f"http://127.0.0.1:{outside}/x.git"
            with pytest.raises(BadInputError, match="not followed: give that one"):
                open_mirror(url, tmp_path / "mirrors", fetching=Fetching(inside=HERE))
            assert asked == []
            # Its own user may be led anywhere.
            open_mirror(url, tmp_path / "mirrors")
    assert asked


def test_no_other_place_for_objects_is_looked_at(shop: Workshop, tmp_path: Path) -> None:
    """A list of alternates on the server does not lead git to another one."""
    bare = published(shop, tmp_path / "served/x.git")
    secret = published(shop, tmp_path / "inside/secret.git")
    for folder in [*bare.glob("objects/??"), bare / "objects/pack"]:
        for file in folder.iterdir():
            file.unlink()
    asked: list[str] = []
    with http(files_of(secret.parent, asked)) as inside:
        alternates = f"http://127.0.0.1:{inside}/secret.git/objects\n"
        (bare / "objects/info/http-alternates").write_text(alternates)
        with http(files_of(tmp_path / "served", [])) as outside:
            url = f"http://127.0.0.1:{outside}/x.git"
            with pytest.raises(BadInputError):
                open_mirror(url, tmp_path / "mirrors", fetching=Fetching(inside=HERE))
    assert asked == []


def test_a_repository_that_is_too_large_leaves_nothing(shop: Workshop, tmp_path: Path) -> None:
    """What outgrows the limit is ended with its reason, and takes no space afterwards."""
    shop.path.joinpath("noise").write_bytes(os.urandom(3_000_000))
    shop.commit("noise")
    mirrors = tmp_path / "mirrors"
    published(shop, tmp_path / "served/x.git")
    with http(files_of(tmp_path / "served", [])) as port:
        url = f"http://127.0.0.1:{port}/x.git"
        small = Fetching(size=1_000_000)
        with pytest.raises(BadInputError, match=r"is larger than .*MAX_REPOSITORY_SIZE"):
            open_mirror(url, mirrors, fetching=small)
    assert not [path for path in mirrors.iterdir() if path.is_dir()]


@contextmanager
def silent() -> Iterator[int]:
    """Listen, take connections and never answer; yield the port."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.mark.parametrize("scheme", ["git", "http"])
def test_a_server_that_never_answers_is_given_up(scheme: str, tmp_path: Path) -> None:
    """Fetching has an end, whatever the other side does."""
    with silent() as port:
        fetching = Fetching(seconds=0.3, look=0.05)
        with pytest.raises(TransientError, match=r"took longer than .*PERFBISECT_FETCH_HOURS"):
            open_mirror(f"{scheme}://127.0.0.1:{port}/x", tmp_path / "m", fetching=fetching)


def test_a_disk_that_fills_up_ends_the_fetch(tmp_path: Path) -> None:
    """Fetching stops before the disk is full."""
    with silent() as port:
        fetching = Fetching(keep_free=1 << 62, look=0.05)
        with pytest.raises(TransientError, match="PERFBISECT_MIN_FREE_SPACE"):
            open_mirror(f"git://127.0.0.1:{port}/x", tmp_path / "m", fetching=fetching)


def test_a_tree_of_billions_of_files_is_refused(shop: Workshop, tmp_path: Path) -> None:
    """Twelve directories, each ten times the one below, are no tree that is checked out."""
    inner = shop.git("hash-object", "-w", "--stdin", stdin="x")
    kind = "100644 blob"
    for _ in range(12):
        names = "".join(f"{kind} {inner}\t{name}\n" for name in "abcdefghij")
        inner, kind = shop.git("mktree", stdin=names), "040000 tree"
    commit = shop.git("commit-tree", inner, "-m", "bomb")
    with pytest.raises(BadInputError, match="holds more than") as refused:
        require_moderate(shop.path / ".git", inner, most_files=100_000)
    assert failure_of(refused.value).kind is FailureKind.PERMANENT
    require_moderate(shop.path / ".git", shop.tree())
    assert commit


def test_git_has_limits_of_its_own(shop: Workshop) -> None:
    """Every git process may take so much memory and processor time, and no more."""
    git = Git(shop.path / ".git", settings={"alias.limits": "!cat /proc/self/limits"})
    command = [*limiting_prefix(), *git.command(["limits"])]
    said = subprocess.check_output(command, env=git.environment, text=True, timeout=60)
    limits = {line[:26].strip(): line[26:].split()[0] for line in said.splitlines()}
    assert int(limits["Max cpu time"]) == 1800
    assert int(limits["Max data size"]) <= 8 * 1024**3
    assert limits["Max core file size"] == "0"
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        bound(process.pid)
        assert resource.prlimit(process.pid, resource.RLIMIT_CPU)[0] == 1800
        assert 0 < resource.prlimit(process.pid, resource.RLIMIT_DATA)[0] <= 8 * 1024**3
