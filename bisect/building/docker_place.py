"""Builds in containers: an image per toolchain, a container without privileges per step."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from perfbisect.building.bazel_binaries import OF_IMAGE, BazelBinaries, version_said
from perfbisect.building.images import Image, Images, Toolchain, host_ca
from perfbisect.building.place import (
    Directories,
    Paths,
    Step,
    StepResult,
    Stopped,
    parse_python_version,
    step_environment,
)
from perfbisect.building.warm import WarmContainer, WarmContainers
from perfbisect.containers import ContainerSpec, Docker
from perfbisect.core.recipe import Recipe
from perfbisect.core.states import FailureKind
from perfbisect.ports import BuildRequest, CancelledWork, CancelToken, Failure
from perfbisect.untrusted import hand_over

#: Share of the machine's memory for builds whose recipe names none.
_MEMORY_SHARE = 0.9
#: User of builds inside containers where perfbisect itself is root; Dockerfiles name the same.
BUILDER_UID = 10001

_INSIDE = Paths(
    src="/build/src",
    out="/build/out",
    home="/build/home",
    cache="/build/cache",
    bazel_root="/build/bazel",
    distdir="/build/distdir",
)
_CA = "/build/host-ca.crt"
#: In place of a version: the image's Bazel runs, and does not tell.
_UNTOLD = "untold"


class DockerPlace:
    """Runs steps in containers. Implements ``Place``."""

    def __init__(
        self,
        request: BuildRequest,
        directories: Directories,
        docker: Docker,
        images: Images,
        binaries: BazelBinaries,
        cancel: CancelToken,
        *,
        toolchain: str,
        epoch: int,
        jobs: int,
        warm: WarmContainers | None = None,
        docker_host: str = "",
    ) -> None:
        """Make a place.

        Args:
            warm: where containers of kept trees are kept; None: each step gets one of its own.
            docker_host: URL that the engine was opened by.
        """
        self._request = request
        self._directories = directories
        self._docker = docker
        self._images = images
        self._binaries = binaries
        self._cancel = cancel
        self._toolchain = toolchain
        self._epoch = epoch
        cpus = int(request.recipe.cpus)
        available = jobs or os.cpu_count() or 1
        self._jobs = max(1, min(available, cpus) if cpus else available)
        self._bazel: dict[str, str] = {}
        self._image: Image | None = None
        self._user = _user(docker)
        self._warm = warm
        self._docker_host = docker_host
        self._kept: WarmContainer | None = None
        self._lent = contextlib.ExitStack()

    @property
    def paths(self) -> Paths:
        """The directories as they are mounted."""
        return _INSIDE

    @property
    def python(self) -> str:
        """The image's Python."""
        return self._request.recipe.python

    @property
    def uv(self) -> str:
        """The image's uv."""
        return "uv"

    @property
    def jobs(self) -> int:
        """How many processes may compile at once."""
        return self._jobs

    @property
    def environment(self) -> dict[str, Any]:
        """The image, which holds everything else."""
        image = self._ensure_image()
        return {
            "docker": True,
            "toolchain": self._toolchain,
            "image": image.id,
            "image_tag": image.tag,
            "network": self._request.recipe.network,
            **self._bazel,
        }

    def prepare(self) -> None:
        """Have the image, built now if need be, and the container of a kept tree."""
        self._ensure_image()
        self._hand_over()
        if self._warm is None:
            return
        # What a step is started with is told then: only what stays is the container's own.
        spec = replace(self._spec(Step(())), env={})
        tree = self._directories.src.parent
        lent = self._warm.lend(self._docker, tree, spec, self._docker_host)
        self._kept = self._lent.enter_context(lent)

    def close(self) -> None:
        """Give back what was lent."""
        self._lent.close()

    def python_version(self) -> tuple[int, int] | None:
        """Ask the image's Python for its version."""
        spec = self._spec(Step((self.python, "--version")))
        done = self._docker.run(spec, timeout=120.0, cancel=self._cancel)
        if done.cancelled:
            raise CancelledWork
        return parse_python_version(done.tail)

    @property
    def toolchain_key(self) -> str:
        """The image's own digest."""
        return self._ensure_image().id.rpartition(":")[2][:20]

    def bazel(self, version: str) -> tuple[str, str]:
        """Put a Bazel of this version, verified on this machine, into the image.

        With ``bazel_binary = "image"`` the image's own is used, if it is of that version.
        """
        if self._request.recipe.bazel_binary == OF_IMAGE:
            return "bazel", self._own_bazel(version)
        found = self._binaries.find(version, self._request.recipe.bazel_binary, self._cancel)
        self._bazel = {"bazel": found.version}
        self._image = self._images.ensure(
            Toolchain(
                self._toolchain,
                {"BAZEL_VERSION": found.version, **_args(self._request.recipe)},
                {"bazel": found.path},
            ),
            self._request.log_path,
            self._cancel,
        )
        return "bazel", found.version

    def _own_bazel(self, version: str) -> str:
        """Return the version of the image's Bazel, which must be the one that is wanted."""
        image = self._ensure_image()
        # A wrapper may choose by the tree's .bazelversion.
        name = f"image-{self.toolchain_key}-{version}"
        known = self._request.cache_dir / "bazel" / "version" / name
        said = known.read_text() if known.exists() else self._ask_bazel(known)
        if said == _UNTOLD:
            # Distributions build it without a label: whoever names the image vouches for it.
            said = version
        elif not said or version not in ("", said):
            wrong = f"has Bazel {said}, and {version} is wanted"
            what = wrong if said else "has no Bazel that runs"
            advice = "Set the recipe's bazel to the image's version, or leave bazel_binary out."
            cause = f"the image {image.tag} {what}"
            raise Stopped(Failure(FailureKind.OURS, cause, advice=advice))
        self._bazel = {"bazel": said, "bazel_binary": OF_IMAGE}
        return said

    def _ask_bazel(self, known: Path) -> str:
        argv = ("bazel", "--batch", f"--output_user_root={_INSIDE.home}/.bazel-version", "version")
        self._hand_over()
        done = self._docker.run(self._spec(Step(argv)), timeout=300.0, cancel=self._cancel)
        if done.cancelled:
            raise CancelledWork
        said = version_said(done.tail) if done.returncode == 0 else ""
        if "Version information not available" in done.tail:
            said = _UNTOLD
        if said:
            known.parent.mkdir(parents=True, exist_ok=True)
            known.write_text(said)
        return said

    @property
    def keeps_server(self) -> bool:
        """Whether the container outlives a step."""
        return self._warm is not None

    def run(self, step: Step, timeout: float) -> StepResult:
        """Run a step in a container of its own, or in that of the kept tree."""
        self._hand_over()
        run = self._docker.run if self._kept is None else self._kept.run
        done = run(
            self._spec(step), timeout=timeout, cancel=self._cancel, log_path=self._request.log_path
        )
        return StepResult(
            done.returncode,
            timed_out=done.timed_out,
            cancelled=done.cancelled,
            out_of_memory=done.out_of_memory and done.returncode != 0,
            overrun=done.overrun,
            log_error=done.log_error,
        )

    def _ensure_image(self) -> Image:
        if self._image is None:
            args = _args(self._request.recipe)
            if self._toolchain == "python":
                args = {"UV_VERSION": importlib.metadata.version("uv"), **args}
            self._image = self._images.ensure(
                Toolchain(self._toolchain, args), self._request.log_path, self._cancel
            )
        return self._image

    def _spec(self, step: Step) -> ContainerSpec:
        recipe = self._request.recipe
        own, mirror = self._directories, self._request.mirror.resolve()
        ca = host_ca() if recipe.network else None
        return ContainerSpec(
            work=self._request.id,
            image=self._ensure_image().id,
            argv=step.argv,
            env={
                **({} if ca is None else _trust()),
                **(_proxies() if recipe.network else {}),
                **step_environment(self, recipe.env, self._epoch),
                **step.env,
            },
            user=self._user,
            working_dir=_INSIDE.src,
            mounts=(
                (own.src, _INSIDE.src, False),
                (own.out, _INSIDE.out, False),
                (own.home, _INSIDE.home, False),
                (own.cache, _INSIDE.cache, False),
                (own.bazel_root, _INSIDE.bazel_root, False),
                (own.distdir, _INSIDE.distdir, True),
                # The tree's .git borrows the mirror's objects by their path.
                (mirror, str(mirror), True),
                *(() if ca is None else ((ca, _CA, True),)),
            ),
            network=recipe.network,
            # The rest keeps the machine alive.
            memory=recipe.memory or str(int(psutil.virtual_memory().total * _MEMORY_SHARE)),
            cpus=recipe.cpus,
        )

    def _hand_over(self) -> None:
        """Give the directories to the user of the container, where that is another one."""
        uid = int(self._user.partition(":")[0])
        if uid in (0, os.geteuid()):
            return
        own = self._directories
        for top in (own.src, own.out, own.home):
            hand_over(top, uid)
        for top in (own.cache, own.bazel_root):
            os.chown(top, uid, uid)


def _args(recipe: Recipe) -> dict[str, str]:
    base = {"BASE_IMAGE": recipe.base_image} if recipe.base_image else {}
    return {**base, **recipe.toolchain_args}


def _user(docker: Docker) -> str:
    """Return ``uid:gid`` of builds: never root, but where root is nobody (a rootless engine)."""
    if docker.rootless():
        return "0:0"
    if os.geteuid() == 0:
        return f"{BUILDER_UID}:{BUILDER_UID}"
    return f"{os.geteuid()}:{os.getegid()}"


def _trust() -> dict[str, str]:
    names = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    return dict.fromkeys((*names, "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"), _CA)


def _proxies() -> dict[str, str]:
    names = ("http_proxy", "https_proxy", "no_proxy")
    both = (*names, *(name.upper() for name in names))
    return {name: os.environ[name] for name in both if os.environ.get(name)}
