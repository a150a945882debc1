"""Local builds with the real Bazel 0.26.1, fetched by npm."""

from __future__ import annotations

import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.helpers.archive_host import archive_host
from tests.helpers.building import KERNEL, WORKSPACE, Yard, log_of, make_workspace, need
from tests.helpers.repositories import Workshop

from perfbisect.archive_download import ArchiveFetcher
from perfbisect.building.artifacts import sha256_of
from perfbisect.building.checkout import remove
from perfbisect.core.archives import Archive
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.states import FailureKind

pytestmark = pytest.mark.network

BAZEL = Recipe(
    name="tiny",
    kind=RecipeKind.BAZEL,
    docker=False,
    xla=True,
    march="x86-64",
    define={"with_default_optimizations": "true"},
)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    need("npm")
    return Yard(tmp_path_factory.mktemp("yard"))


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    need("g++")
    return make_workspace(tmp_path / "repository")


def test_the_script_that_bazel_built_writes_the_wheel(yard: Yard, workshop: Workshop) -> None:
    """The Bazel that the tree asks for builds the script, and the script's wheel comes back."""
    request = yard.request(workshop, BAZEL)
    result = yard.succeed(request)
    with zipfile.ZipFile(result.path) as wheel:
        assert "tiny/libkernel.so" in wheel.namelist()
    assert result.environment["bazel"] == "0.26.1"
    assert result.environment["commands"][0] == (
        "bazel build --copt=-march=x86-64 --define=with_default_optimizations=true "
        "--define=with_xla_support=true --host_copt=-march=x86-64 "
        "//tensorflow/tools/pip_package:build_pip_package"
    )
    assert "[Bazel 0.26.1: configure.py allows 0.24.1 to 0.26.1]" in log_of(request)


def test_adjacent_commit_rebuilds_only_what_changed(yard: Yard, workshop: Workshop) -> None:
    """A commit that touches only a document starts no process of Bazel; the wheel is the same."""
    first = yard.succeed(yard.request(workshop, BAZEL))
    workshop.commit("Words", {"README.md": "words\n"})
    request = yard.request(workshop, BAZEL)
    second = yard.succeed(request)
    assert "INFO: 0 processes." in log_of(request)
    assert first.sha256 == second.sha256


def test_compile_error_is_permanent(yard: Yard, workshop: Workshop) -> None:
    """A kernel that does not compile is a permanent failure with the compiler's lines."""
    workshop.commit("Break", {"tensorflow/core/kernel.cc": KERNEL.replace("sum +=", "sun +=")})
    failure = yard.fail(yard.request(workshop, BAZEL))
    assert failure.kind is FailureKind.PERMANENT
    assert "tensorflow/core/kernel.cc, line 5" in failure.cause
    assert "was not declared" in failure.lines[0]


def test_artifacts_instead_of_a_wheel(yard: Yard, workshop: Workshop) -> None:
    """A recipe with its own target and artifacts gets them out of bazel-bin."""
    recipe = replace(
        BAZEL,
        target="//tensorflow/core:libkernel.so",
        artifacts=("bazel-bin/tensorflow/core/*.so",),
    )
    result = yard.succeed(yard.request(workshop, recipe))
    assert result.path.name == "artifacts.tar.gz"


def test_unknown_config_is_ours(yard: Yard, workshop: Workshop) -> None:
    """A configuration that the tree does not define is the recipe's mistake."""
    failure = yard.fail(yard.request(workshop, replace(BAZEL, cuda=True)))
    assert failure.kind is FailureKind.OURS
    assert "cuda is not defined" in failure.lines[0]


def test_bazel_that_does_not_exist_is_ours(yard: Yard, workshop: Workshop) -> None:
    """A version that is nowhere to be had is named, with what to do."""
    failure = yard.fail(yard.request(workshop, replace(BAZEL, bazel="0.0.9")))
    assert failure.kind is FailureKind.OURS
    assert "0.0.9" in failure.cause
    assert "bazel_binary" in failure.advice


def test_tree_without_a_wheel_target_is_permanent(yard: Yard, tmp_path: Path) -> None:
    """A revision from before the target was there is skipped, and the log says what is missing."""
    workshop = Workshop(tmp_path / "repository")
    workshop.commit("Nothing yet", {"WORKSPACE": "", ".bazelversion": "0.26.1\n"})
    failure = yard.fail(yard.request(workshop, BAZEL))
    assert failure.kind is FailureKind.PERMANENT
    assert "no target" in failure.cause


def test_wheel_target_of_later_trees(yard: Yard, workshop: Workshop) -> None:
    """A tree that has the wheel target instead of the script gets its wheel out of bazel-bin."""
    workshop.commit(
        "Build the wheel as a target",
        {
            "tensorflow/tools/pip_package/BUILD": (
                'genrule(name = "wheel", srcs = ["//tensorflow/core:libkernel.so"],\n'
                '        outs = ["wheel_house/tiny-1.0-py3-none-any.whl"],\n'
                '        tools = ["//:make_wheel.py"],\n'
                '        cmd = "python3 $(location //:make_wheel.py) $< $(@D)")\n'
            ),
            ".bazelrc": "build --define=with_xla_support=true\n",
        },
    )
    request = yard.request(workshop, BAZEL)
    result = yard.succeed(request)
    assert result.path.name == "tiny-1.0-py3-none-any.whl"
    assert "with_xla_support" not in result.environment["commands"][0]
    assert "left out: XLA is on by default" in log_of(request)


def test_archives_that_are_gone_come_from_the_distdir(yard: Yard, workshop: Workshop) -> None:
    """An archive whose host is dead is taken from the directory of archives, by name and sum."""
    packed = yard.path / "zlib-1.0.tar.gz"
    source = make_archive(packed)
    workshop.commit(
        "Depend on an archive",
        {
            "WORKSPACE": (
                'workspace(name = "tiny")\n'
                'load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")\n'
                f'http_archive(name = "zlib", sha256 = "{sha256_of(packed)}",\n'
                '    urls = ["http://archives.example.invalid/zlib-1.0.tar.gz"],\n'
                f"    build_file_content = {source!r})\n"
            ),
            "tensorflow/core/BUILD": (
                WORKSPACE["tensorflow/core/BUILD"].replace(
                    '"kernel.cc"]', '"kernel.cc", "@zlib//:zlib.h"]'
                )
            ),
        },
    )
    failure = yard.fail(yard.request(workshop, BAZEL))
    assert failure.kind is FailureKind.TRANSIENT
    distdir = yard.path / "cache/distdir"
    distdir.mkdir(parents=True, exist_ok=True)
    packed.rename(distdir / packed.name)
    yard.succeed(yard.request(workshop, BAZEL))


def test_an_archive_that_is_gone_is_permanent_until_it_is_fetched_from_elsewhere(
    yard: Yard, workshop: Workshop, tmp_path: Path
) -> None:
    """A real dead URL is the revision's; what another address still has makes it build again."""
    packed = tmp_path / "zlib-2.0.tar.gz"
    source = make_archive(packed)
    with archive_host() as host:
        host.files["/mirror/zlib-2.0.tar.gz"] = packed.read_bytes()
        workspace = (
            'workspace(name = "tiny")\n'
            'load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")\n'
            f'http_archive(name = "zlib", sha256 = "{sha256_of(packed)}",\n'
            f'    urls = ["{host.url}/gone/zlib-2.0.tar.gz"],\n'
            f"    build_file_content = {source!r})\n"
        )
        kernel = WORKSPACE["tensorflow/core/BUILD"].replace(
            '"kernel.cc"]', '"kernel.cc", "@zlib//:zlib.h"]'
        )
        workshop.commit("Depend", {"WORKSPACE": workspace, "tensorflow/core/BUILD": kernel})
        failure = yard.fail(yard.request(workshop, BAZEL))
        assert failure.kind is FailureKind.PERMANENT
        assert failure.cause == "an archive that the build downloads is gone from its address"
        assert "fetch-archives" in failure.advice
        archive = Archive(sha256_of(packed), (f"{host.url}/gone/zlib-2.0.tar.gz",))
        mirrored = replace(archive, urls=(*archive.urls, f"{host.url}/mirror/zlib-2.0.tar.gz"))
        fetched = ArchiveFetcher(yard.path / "cache/distdir").fetch(mirrored)
        assert [each.why for each in fetched.dead] == ["HTTP 404 Not Found"]
    yard.succeed(yard.request(workshop, BAZEL))


def test_a_cache_is_shared_by_machines(yard: Yard, workshop: Workshop) -> None:
    """What was compiled once comes from the remote cache where nothing of one's own is left."""
    with archive_host() as host:
        recipe = replace(BAZEL, remote_cache=host.url)
        workshop.commit("Nobody's", {"tensorflow/core/kernel.cc": f"// {host.url}\n{KERNEL}"})
        yard.succeed(yard.request(workshop, recipe))
        assert any(path.startswith("/cas/") for path in host.files)
        # As on another machine whose data lie in the same place.
        remove(yard.path / "cache" / "local")
        request = yard.request(workshop, recipe)
        yard.succeed(request)
    assert "remote cache hit" in log_of(request)


def make_archive(path: Path) -> str:
    """Pack a header; return the BUILD file that exports it."""
    header = path.with_name("zlib.h")
    header.write_text("#define ZLIB 1\n")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(header, "zlib.h")
    return 'exports_files(["zlib.h"])'
