"""Local builds with the real compiler, the real shell and the real git."""

from __future__ import annotations

import tarfile
import threading
import time
import zipfile
from pathlib import Path

import psutil
import pytest
from tests.helpers.building import KERNEL, MAKE_WHEEL, Yard, log_of, need, other_log
from tests.helpers.repositories import Workshop

from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.states import FailureKind
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.processes import MARKER

COMPILE = (
    "g++ -shared -fPIC -o libkernel.so tensorflow/core/kernel.cc\n"
    "{python} make_wheel.py libkernel.so {out}"
)


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "yard")


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    need("g++")
    workshop = Workshop(tmp_path / "repository")
    workshop.commit("A kernel", {"tensorflow/core/kernel.cc": KERNEL, "make_wheel.py": MAKE_WHEEL})
    return workshop


def recipe(command: str, **options: object) -> Recipe:
    values: dict[str, object] = {
        "name": "local",
        "kind": RecipeKind.COMMAND,
        "docker": False,
        "command": command,
        **options,
    }
    return Recipe(**values)  # type: ignore[arg-type]


def test_command_builds_a_wheel(yard: Yard, workshop: Workshop) -> None:
    """A shell command leaves a wheel, whose digest, command and log come back."""
    request = yard.request(workshop, recipe(COMPILE))
    result = yard.succeed(request)
    with zipfile.ZipFile(result.path) as wheel:
        assert "tiny/libkernel.so" in wheel.namelist()
    assert result.size == result.path.stat().st_size
    assert "g++ -shared" in result.environment["commands"][0]
    assert "$ g++ -shared" in log_of(request)


def test_same_tree_same_digest(yard: Yard, workshop: Workshop) -> None:
    """Two builds of one tree give the same bytes, whether packed as a wheel or by us."""
    compile_only = "g++ -shared -fPIC -o {out}/libkernel.so tensorflow/core/kernel.cc"
    for command in (COMPILE, compile_only):
        one, two = (yard.succeed(yard.request(workshop, recipe(command))) for _ in range(2))
        assert one.sha256 == two.sha256


def test_artifacts_are_packed_with_their_paths(yard: Yard, workshop: Workshop) -> None:
    """What the globs match is in the archive under its path in the tree, stamped by the commit."""
    command = "mkdir -p made/deep; echo 1 > made/deep/a.txt; echo 2 > made/b.txt; echo 3 > made/c"
    request = yard.request(workshop, recipe(command, artifacts=("made/**/*.txt",)))
    result = yard.succeed(request)
    with tarfile.open(result.path) as archive:
        members = {member.name: member for member in archive.getmembers()}
    assert set(members) == {"made/deep/a.txt", "made/b.txt"}
    assert members["made/b.txt"].mtime == int(workshop.git("show", "-s", "--format=%ct"))


def test_environment_is_small_and_clean(yard: Yard, workshop: Workshop) -> None:
    """The command sees the recipe's variables and an empty home, not the user's."""
    command = 'ls -A "$HOME"; env | cut -d= -f1 | sort; echo "A is $A"; echo x > {out}/x'
    request = yard.request(workshop, recipe(command, env={"A": "1"}))
    yard.succeed(request)
    said = log_of(request).split("\n")
    assert "A is 1" in said
    assert MARKER in said
    assert not {"SSH_AUTH_SOCK", "VIRTUAL_ENV", "PYTHONPATH", ".bashrc"} & set(said)


def test_git_is_real(yard: Yard, workshop: Workshop) -> None:
    """The tree knows its commit and its tags, as version stamping needs."""
    workshop.git("tag", "v1.2")
    request = yard.request(
        workshop, recipe("git describe --tags > {out}/version; cat {out}/version")
    )
    yard.succeed(request)
    assert "v1.2" in log_of(request).split("\n")


def test_compile_error_is_permanent(yard: Yard, workshop: Workshop) -> None:
    """A compile error skips the revision, with the compiler's own lines."""
    workshop.commit("Break", {"tensorflow/core/kernel.cc": KERNEL.replace("sum +=", "sun +=")})
    failure = yard.fail(yard.request(workshop, recipe(COMPILE)))
    assert failure.kind is FailureKind.PERMANENT
    assert "kernel.cc, line 5" in failure.cause
    assert "was not declared" in failure.lines[0]


def test_missing_program_is_ours(yard: Yard, workshop: Workshop) -> None:
    """A recipe that calls what is not there stops the search instead of skipping commits."""
    failure = yard.fail(yard.request(workshop, recipe("no-such-compiler -c x.cc")))
    assert failure.kind is FailureKind.OURS
    assert "no-such-compiler" in failure.lines[0]


def test_nothing_left_behind_is_permanent(yard: Yard, workshop: Workshop) -> None:
    """A command that ends well and leaves nothing is a failure that says so."""
    failure = yard.fail(yard.request(workshop, recipe("true")))
    assert failure.kind is FailureKind.PERMANENT
    assert "left neither a wheel nor artifacts" in failure.cause


def test_several_wheels_are_ours(yard: Yard, workshop: Workshop) -> None:
    """Two wheels can't be told apart, so the recipe is wrong."""
    failure = yard.fail(yard.request(workshop, recipe("touch {out}/a.whl {out}/b.whl")))
    assert failure.kind is FailureKind.OURS
    assert "2 wheels (a.whl, b.whl)" in failure.cause


def test_full_disk_is_transient(yard: Yard, workshop: Workshop) -> None:
    """A write that fails for want of space is tried again later."""
    failure = yard.fail(yard.request(workshop, recipe("cat make_wheel.py > /dev/full")))
    assert failure.kind is FailureKind.TRANSIENT
    assert failure.cause == "the disk is full"


def test_full_disk_of_the_log_is_transient(yard: Yard, workshop: Workshop) -> None:
    """A log that can't be written is infrastructure, too."""
    request = other_log(yard.request(workshop, recipe(COMPILE)), Path("/dev/full"))
    assert yard.fail(request).kind is FailureKind.TRANSIENT


def test_timeout_is_permanent(yard: Yard, workshop: Workshop) -> None:
    """A build that does not end in time is killed, and the revision is skipped."""
    failure = yard.fail(yard.request(workshop, recipe("echo started; sleep 600", timeout=1.0)))
    assert failure.kind is FailureKind.PERMANENT
    assert "longer than 1" in failure.cause
    assert failure.lines == ("started",)


def test_cancel_leaves_nothing_running(yard: Yard, workshop: Workshop) -> None:
    """After a cancel, build() raises once no process of the build is left."""
    request = yard.request(workshop, recipe("setsid sleep 600 & echo started; wait"))
    cancel = CancelToken()
    raised: list[BaseException] = []

    def build() -> None:
        try:
            yard.build(request, cancel)
        except CancelledWork as error:
            raised.append(error)

    thread = threading.Thread(target=build, daemon=True)
    thread.start()
    while "started\n" not in log_of(request):
        time.sleep(0.02)
    cancel.cancel()
    thread.join()
    assert len(raised) == 1
    assert not [each for each in psutil.process_iter() if _belongs(each, request.id)]


def _belongs(process: psutil.Process, work_id: str) -> bool:
    try:
        return process.environ().get(MARKER) == work_id
    except psutil.Error:
        return False


def test_unknown_python_is_ours(yard: Yard, workshop: Workshop) -> None:
    """A Python that this machine does not have is named in the failure."""
    failure = yard.fail(yard.request(workshop, recipe(COMPILE, python="python1.5")))
    assert failure.kind is FailureKind.OURS
    assert "python1.5" in failure.cause


def test_leaving_the_repository_is_ours(yard: Yard, workshop: Workshop) -> None:
    """Globs and subdirectories that lead out of the tree are refused before anything runs."""
    outside = recipe("true", artifacts=("../../*",))
    assert yard.fail(yard.request(workshop, outside)).kind is FailureKind.OURS
    elsewhere = recipe("", kind=RecipeKind.PIP_WHEEL, subdirectory="../..")
    assert yard.fail(yard.request(workshop, elsewhere)).kind is FailureKind.OURS
