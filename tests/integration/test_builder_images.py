"""Images of toolchains, built by the real engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.docker_base import need_base_image

from perfbisect.building.images import Image, Images, Toolchain
from perfbisect.containers import ContainerSpec, Docker
from perfbisect.ports import CancelToken
from perfbisect.resources import dockerfiles_dir

pytestmark = [pytest.mark.docker, pytest.mark.network]


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    need_base_image()
    with Docker() as opened:
        yield opened


def say(docker: Docker, image: Image, *argv: str) -> str:
    spec = ContainerSpec(
        work=f"test-{os.getpid()}",
        image=image.id,
        argv=argv,
        env={},
        user="10001:10001",
        working_dir="/",
    )
    return docker.run(spec, timeout=60.0, cancel=CancelToken()).tail


def test_requirements_and_bazel_are_in_the_image(docker: Docker, tmp_path: Path) -> None:
    """Python packages asked for can be imported, and the Bazel given is the one on PATH."""
    bazel = tmp_path / "bazel"
    bazel.write_text("#!/bin/sh\necho Build label: 9.9.9\n")
    toolchain = Toolchain(
        "tf-cpu",
        {"BASE_IMAGE": need_base_image(), "PIP_REQUIREMENTS": "iniconfig==2.0.0"},
        {"bazel": bazel},
    )
    images = Images(docker, dockerfiles_dir(), tmp_path / "locks")
    image = images.ensure(toolchain, tmp_path / "log", CancelToken())
    asked = "import importlib.metadata as m; print(m.version('iniconfig'))"
    assert say(docker, image, "python3", "-c", asked) == "2.0.0\n"
    assert say(docker, image, "bazel", "version") == "Build label: 9.9.9\n"
    assert say(docker, image, "g++", "--version").startswith("g++ ")
    assert "host-ca" not in say(docker, image, "ls", "/", "/context")


def test_built_once_per_arguments(docker: Docker, tmp_path: Path) -> None:
    """The same arguments find the image again; others make another."""
    dockerfiles = tmp_path / "dockerfiles"
    dockerfiles.mkdir()
    text = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG WORD=none\nRUN echo ${WORD} > /word\n"
    (dockerfiles / "small.Dockerfile").write_text(f"# {tmp_path}\n{text}")
    images = Images(docker, dockerfiles, tmp_path / "locks")

    def ensure(word: str, log: str) -> Image:
        args = {"BASE_IMAGE": need_base_image(), "WORD": word}
        return images.ensure(Toolchain("small", args), tmp_path / log, CancelToken())

    first, again, other = ensure("one", "1"), ensure("one", "2"), ensure("two", "3")
    assert first == again
    assert first.id != other.id
    assert "building image" in (tmp_path / "1").read_text()
    assert not (tmp_path / "2").exists()
    assert say(docker, other, "cat", "/word") == "two\n"
    for image in (first, other):
        docker.client.images.remove(image.tag)
