"""The demo repository is real: it compiles, its wheels work, its broken commits are broken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from perfbisect.demo.repository import BENCHMARK, DemoRepository, generate

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler (g++)")

SCRIPT = "tensorflow/tools/pip_package/build_local.sh"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoRepository:
    return generate(tmp_path_factory.mktemp("demo") / "repository")


def build(demo: DemoRepository, commit: str, work: Path) -> subprocess.CompletedProcess[str]:
    """Check a commit out below ``work`` and build it; wheels go to ``work/out``."""
    tree = work / "tree"
    git = ["git", "clone", "--quiet", "--no-checkout", str(demo.path), str(tree)]
    subprocess.run(git, check=True)
    subprocess.run(["git", "-C", str(tree), "checkout", "--quiet", commit], check=True)
    environment = {**os.environ, "PYTHON_BIN_PATH": sys.executable}
    command = [str(tree / SCRIPT), str(work / "out")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def install(work: Path) -> Path:
    """Unpack the one wheel of ``work/out``; return the directory to import from."""
    (wheel,) = (work / "out").glob("*.whl")
    site = work / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def newest(demo: DemoRepository, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("newest")
    done = build(demo, demo.bad, work)
    assert done.returncode == 0, done.stderr
    install(work)
    return work


def test_the_compiler_has_nothing_to_say(demo: DemoRepository, tmp_path: Path) -> None:
    """The good end builds without a warning, into one wheel."""
    done = build(demo, demo.good, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Wrote" in done.stdout


def test_equal_trees_give_equal_wheels(demo: DemoRepository, newest: Path, tmp_path: Path) -> None:
    """A wheel depends on the tree alone: built elsewhere it has the same bytes."""
    assert build(demo, demo.bad, tmp_path).returncode == 0
    (first,) = (newest / "out").glob("*.whl")
    (second,) = (tmp_path / "out").glob("*.whl")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_pip_takes_the_wheel(newest: Path, tmp_path: Path) -> None:
    """The wheel's metadata and record satisfy pip, which installs it without complaint."""
    (wheel,) = (newest / "out").glob("*.whl")
    command = ["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"]
    done = python(tmp_path, *command, "--target", str(tmp_path / "site"), str(wheel))
    if "No module named pip" in done.stderr:
        pytest.skip("no pip in this environment")
    assert done.returncode == 0, done.stderr
    code = "import tf_demo; print(tf_demo.__version__)"
    assert python(tmp_path / "site", "-c", code).stdout == "0.1.0\n"


def test_the_librarys_own_tests_pass(newest: Path) -> None:
    """The tests that come with the newest commit pass on its wheel."""
    tests = sorted((newest / "tree/tensorflow/python").glob("*_test.py"))
    assert len(tests) >= 5
    for test in tests:
        done = python(newest / "site", str(test))
        assert done.returncode == 0, done.stderr


def test_gradients_agree_with_differences(newest: Path) -> None:
    """The kernels' gradients of a convolution are the slopes that numbers show."""
    code = """
import random
import tf_demo as tf
shape = (2, 4, 4, 2, 3)
g = random.Random(1)
draw = lambda n: tf.tensor(n, (g.gauss(0, 1) for _ in range(n)))
x, w, dy = draw(2 * 16 * 2), draw(9 * 2 * 3), draw(2 * 16 * 3)
space, dx, dw = tf.conv_workspace(shape), tf.tensor(len(x)), tf.tensor(len(w))
tf.conv2d_backprop_input(w, dy, dx, space, shape)
tf.conv2d_backprop_filter(x, dy, dw, space, shape)
def value():
    y = tf.tensor(len(dy))
    tf.conv2d(x, w, y, space, shape)
    return sum(a * b for a, b in zip(y, dy))
def slope(array, i, h=0.05):
    kept = array[i]
    array[i] = kept + h; up = value()
    array[i] = kept - h; down = value()
    array[i] = kept
    return (up - down) / (2 * h)
for array, gradient in ((x, dx), (w, dw)):
    for i in range(len(array)):
        assert abs(slope(array, i) - gradient[i]) < 1e-2, (i, slope(array, i), gradient[i])
"""
    done = python(newest / "site", "-c", code)
    assert done.returncode == 0, done.stderr


def test_the_benchmark_trains_and_prints_its_metric(newest: Path) -> None:
    """Each window prints a positive figure, and the loss falls from the first to the last."""
    script = BENCHMARK.with_name("resnet_demo.py")
    done = python(newest / "site", str(script), "--windows", "4", "--seconds", "0.05")
    assert done.returncode == 0, done.stderr
    values = [float(value) for value in re.findall(r"images/sec: ([0-9.]+)", done.stdout)]
    losses = [float(value) for value in re.findall(r"loss: ([0-9.]+)", done.stdout)]
    assert len(values) == 4
    assert min(values) > 0
    assert losses[-1] < losses[0]


def test_the_broken_commits_do_not_compile(demo: DemoRepository, tmp_path: Path) -> None:
    """Each commit that is said to be broken fails in the compiler, and its neighbours do not."""
    first = demo.commits.index(demo.unbuildable[0])
    last = demo.commits.index(demo.unbuildable[-1])
    for index in range(first - 1, last + 2):
        done = build(demo, demo.commits[index], tmp_path / str(index))
        if first <= index <= last:
            assert done.returncode != 0
            assert "kFilterTaps" in done.stderr
        else:
            assert done.returncode == 0, done.stderr


def test_each_step_changes_the_machine_code(demo: DemoRepository, tmp_path: Path) -> None:
    """The library of each known step differs from its parent's; a step is in the kernels."""
    for step in demo.truth:
        libraries = []
        for commit in (step.parent, step.commit):
            work = tmp_path / commit
            if not work.exists():
                assert build(demo, commit, work).returncode == 0
                install(work)
            libraries.append((work / "site/tf_demo/libtf_demo.so").read_bytes())
        assert libraries[0] != libraries[1], step.subject
