"""perfbisect.core.archives: what a workspace downloads, read without running anything."""

from __future__ import annotations

import pytest

from perfbisect.core.archives import Archive, merged, read_archives

A, B, C = "a" * 64, "b" * 64, "c" * 64

#: Shapes of the eras: a list of mirrors; one address; constants; a helper; sums by address.
SHAPES = {
    "a list of mirrors": (
        f'tf_http_archive(name = "six", sha256 = "{A}", strip_prefix = "six-1.10.0",\n'
        '    urls = ["http://mirror.example.org/six.tar.gz", "https://six.example.org/six.tar.gz"])',
        [
            Archive(
                A, ("http://mirror.example.org/six.tar.gz", "https://six.example.org/six.tar.gz")
            )
        ],
    ),
    "one address": (
        f'http_archive(name = "x", url = "https://e.org/x.zip", sha256 = "{A.upper()}")',
        [Archive(A, ("https://e.org/x.zip",))],
    ),
    "constants of the function": (
        "def repo(name):\n"
        '    COMMIT = "abc123"\n'
        f'    SUM = "{A}"\n'
        "    tf_http_archive(name = name, sha256 = SUM,\n"
        '        urls = ["https://e.org/{commit}.tar.gz".format(commit = COMMIT),\n'
        '                "https://f.org/%s.tar.gz" % COMMIT,\n'
        '                "https://g.org/" + COMMIT + ".zip"])\n',
        [
            Archive(
                A,
                (
                    "https://e.org/abc123.tar.gz",
                    "https://f.org/abc123.tar.gz",
                    "https://g.org/abc123.zip",
                ),
            )
        ],
    ),
    "TensorFlow's own helper": (
        f'tf_http_archive(name = "y", sha256 = "{A}", urls = tf_mirror_urls("https://e.org/y.gz"))',
        [
            Archive(
                A,
                (
                    "https://storage.googleapis.com/mirror.tensorflow.org/e.org/y.gz",
                    "https://e.org/y.gz",
                ),
            )
        ],
    ),
    "sums by address": (
        f'filegroup_external(name = "f", sha256_urls = {{"{A}": ["https://e.org/1"],\n'
        f'    "{B}": ["https://e.org/2"]}})',
        [Archive(A, ("https://e.org/1",)), Archive(B, ("https://e.org/2",))],
    ),
    "jars": (
        f'java_import_external(name = "j", jar_sha256 = "{A}", jar_urls = ["https://e.org/j.jar"])',
        [Archive(A, ("https://e.org/j.jar",))],
    ),
    "inside an if and a comprehension-free loop": (
        f'if True:\n    native.http_archive(name="n", sha256="{A}", urls=["https://e.org/n.gz"])\n',
        [Archive(A, ("https://e.org/n.gz",))],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_of_the_eras(shape: str) -> None:
    """Each way in which TensorFlow named its archives over the years is understood."""
    text, archives = SHAPES[shape]
    found = read_archives(text)
    assert (list(found.archives), found.puzzles) == (archives, ())


@pytest.mark.parametrize(
    ("text", "puzzle"),
    [
        (f'http_archive(name = "x", sha256 = "{A}", urls = [LOADED])', "line 1: http_archive(x)"),
        (
            '\nhttp_file(name = "x", sha256 = SUM, urls = ["https://e.org/x"])',
            "line 2: http_file(x)",
        ),
        (f'http_archive(sha256 = "{A}", url = 7)', "line 1: http_archive(…)"),
        (f'http_archive(sha256 = "{A}", url = "{{0.__class__}}".format(7))', "http_archive"),
        ("http_archive(", "line 1: not understood"),
    ],
)
def test_what_is_not_understood_is_said(text: str, puzzle: str) -> None:
    """What only running the file would tell is named with its line, and never guessed."""
    found = read_archives(text)
    assert found.archives == ()
    assert puzzle in found.puzzles[0]


def test_archives_without_a_sum_are_left_out() -> None:
    """What nothing vouches for can't be kept for anybody, and is no puzzle either."""
    assert read_archives('http_archive(name = "x", sha256 = "", urls = ["https://e.org/x"])') == (
        read_archives("")
    )


def test_one_file_of_many_commits_is_one_archive() -> None:
    """The same sum in many commits is one file, to be had from every address ever named."""
    found = merged(
        [
            Archive(A, ("https://one.org/v1.0.zip",)),
            Archive(B, ("https://b.org/b.zip",)),
            Archive(A, ("https://two.org/v1.0.zip?raw=1", "https://one.org/v1.0.zip")),
        ]
    )
    assert found == (
        Archive(A, ("https://one.org/v1.0.zip", "https://two.org/v1.0.zip?raw=1")),
        Archive(B, ("https://b.org/b.zip",)),
    )
    assert found[0].names == ("v1.0.zip",)
