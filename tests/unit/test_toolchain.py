"""perfbisect.core.toolchain: facts of a tree, from its own files."""

from __future__ import annotations

import pytest

from perfbisect.core.toolchain import (
    TOOLCHAIN_FILES,
    makes_script,
    output_path,
    toolchain_facts,
)

PIP = "tensorflow/tools/pip_package"
SETUP = f"{PIP}/setup.py"
BUILD = f"{PIP}/BUILD"


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({".bazelversion": "0.29.1\n"}, "0.29.1"),
        ({".bazelversion": "6.5.0\n# comment\n"}, "6.5.0"),
        ({".bazelversion": "# comment\n7.4.1"}, "7.4.1"),
        ({".bazelversion": "3.7.2", "configure.py": "_TF_MAX_BAZEL_VERSION = '3.99.0'"}, "3.7.2"),
        (
            {
                "configure.py": "_TF_MIN_BAZEL_VERSION = '0.24.1'\n"
                "_TF_MAX_BAZEL_VERSION = '0.26.1'\n"
            },
            "0.26.1",
        ),
        (
            {"configure.py": "_TF_MIN_BAZEL_VERSION = '3.1.0'\n_TF_MAX_BAZEL_VERSION = '3.99.0'\n"},
            "3.1.0",
        ),
        ({"configure.py": "  check_bazel_version('0.24.1', '0.25.2')\n"}, "0.25.2"),
        ({"configure.py": "  check_bazel_version('0.5.4')\n"}, "0.5.4"),
        ({"configure.py": "def check_bazel_version(min_version, max_version):\n"}, ""),
        ({".bazelversion": "latest\n"}, ""),
        ({}, ""),
    ],
)
def test_bazel_version(files: dict[str, str], version: str) -> None:
    """The pinned version wins, else the newest real one that configure.py allows."""
    facts = toolchain_facts(files)
    assert facts.bazel == version
    assert facts.reasons[0].startswith("Bazel")


@pytest.mark.parametrize(
    ("version", "gpu"),
    [
        ("1.12.0", "tf-cuda10.0"),
        ("1.14.0", "tf-cuda10.0"),
        ("1.15.0", "tf-cuda10.0"),
        ("2.0.0", "tf-cuda10.0"),
        ("2.1.0", "tf-cuda10.1"),
        ("2.3.0", "tf-cuda10.1"),
        ("2.4.0", "tf-cuda11"),
        ("2.14.0", "tf-cuda11"),
        ("2.15.0", "tf-clang-cuda12"),
        ("2.17.0", "tf-clang-cuda12"),
        ("2.18.0", "tf-hermetic"),
        ("2.20.0", "tf-hermetic"),
    ],
)
def test_toolchain_by_version(version: str, gpu: str) -> None:
    """Each release line is served by the toolchain of its era."""
    facts = toolchain_facts({SETUP: f"_VERSION = '{version}'\n"})
    assert facts.gpu_toolchain == gpu
    assert facts.cpu_toolchain == "tf-cpu"
    assert facts.tensorrt == (gpu != "tf-hermetic")


@pytest.mark.parametrize(
    ("bazel", "gpu"),
    [
        ("0.26.1", "tf-cuda10.0"),
        ("0.29.1", "tf-cuda10.1"),
        ("3.1.0", "tf-cuda11"),
        ("6.1.0", "tf-clang-cuda12"),
        ("6.5.0", "tf-hermetic"),
    ],
)
def test_toolchain_by_bazel(bazel: str, gpu: str) -> None:
    """A tree that tells no version is placed by its Bazel."""
    assert toolchain_facts({".bazelversion": bazel}).gpu_toolchain == gpu


def test_hermetic_cuda_decides_before_any_version() -> None:
    """A tree whose rc file chooses CUDA hermetically is hermetic, whatever number it carries."""
    facts = toolchain_facts(
        {
            ".bazelrc": 'build:cuda --repo_env=HERMETIC_CUDA_VERSION="12.5.1"\n'
            "build:cuda_wheel --@local_config_cuda//cuda:include_cuda_libs=false\n",
            "tensorflow/tf_version.bzl": 'TF_VERSION = "2.17.0"\n',
        }
    )
    assert (facts.gpu_toolchain, facts.cpu_toolchain) == ("tf-hermetic", "tf-hermetic")
    assert facts.configs == {"cuda", "cuda_wheel"}


@pytest.mark.parametrize(
    ("rc", "default"),
    [
        ("build:xla --define=with_xla_support=true\n", False),
        ("build:xla --define with_xla_support=true\nbuild --config=v2\n", False),
        ("# Enable XLA\nbuild --define=with_xla_support=true\n", True),
        ("", False),
    ],
)
def test_xla_default(rc: str, default: bool) -> None:
    """XLA is on by default only where the rc file says so outside any configuration."""
    assert toolchain_facts({".bazelrc": rc}).xla_by_default is default


@pytest.mark.parametrize(
    ("build", "target"),
    [
        ('sh_binary(\n    name = "build_pip_package",\n)', f"//{PIP}:build_pip_package"),
        ('tf_wheel(\n    name = "wheel",\n)', f"//{PIP}:wheel"),
        (
            'tf_wheel(name = "wheel")\nsh_binary(name="build_pip_package")',
            f"//{PIP}:build_pip_package",
        ),
        ('py_binary(\n    name = "build_pip_package_py",\n)', ""),
        ("", ""),
    ],
)
def test_target(build: str, target: str) -> None:
    """The script is used as long as the tree has it, then the wheel target."""
    assert toolchain_facts({BUILD: build}).target == target


def test_hermetic_python_is_read_from_workspace() -> None:
    """A WORKSPACE that sets up hermetic Python turns --python_path off."""
    workspace = 'load("@//third_party/py:python_init_rules.bzl", "python_init_rules")'
    assert toolchain_facts({"WORKSPACE": workspace}).hermetic_python
    assert not toolchain_facts({"WORKSPACE": "workspace(name = 'x')"}).hermetic_python


def test_only_listed_files_matter() -> None:
    """Every file that a fact is read from is on the list of files to read."""
    assert {".bazelversion", "configure.py", BUILD, SETUP, ".bazelrc"} <= set(TOOLCHAIN_FILES)


@pytest.mark.parametrize(
    ("label", "path"),
    [
        ("//a/b:c", "bazel-bin/a/b/c"),
        ("//a/b", "bazel-bin/a/b/b"),
        ("//:c", "bazel-bin/c"),
        ("@repo//a:c", "bazel-bin/a/c"),
    ],
)
def test_output_path(label: str, path: str) -> None:
    """A label's output lies below bazel-bin by package and name."""
    assert output_path(label) == path


def test_only_the_pip_package_script_is_run() -> None:
    """The known script is recognised by name in both spellings; other targets are not run."""
    assert makes_script(f"//{PIP}:build_pip_package")
    assert not makes_script(f"//{PIP}:wheel")


@pytest.mark.parametrize(
    ("rc", "default", "by_config", "v1"),
    [
        ("build:v2 --define=tf_api_version=2\n", 1, False, True),
        ("build:v1 --define=x=1\nbuild:v2 --define=x=2\nbuild --config=v2\n", 2, True, True),
        ("build:v2 --define=tf_api_version=2\nbuild --config=v2\n", 2, True, False),
        ("", 1, False, True),
    ],
)
def test_the_api_of_a_tree(rc: str, default: int, by_config: bool, v1: bool) -> None:
    """Since October 2019 the rc file chooses version 2 for every build; later it has no other."""
    facts = toolchain_facts({".bazelrc": rc})
    assert (facts.api_default, facts.api_by_config, facts.api_v1) == (default, by_config, v1)


def test_which_bazels_a_tree_accepts() -> None:
    """The limits of configure.py are kept apart from the version that is pinned."""
    files = {
        ".bazelversion": "3.1.0\n",
        "configure.py": "_TF_MIN_BAZEL_VERSION = '2.0.0'\n_TF_MAX_BAZEL_VERSION = '3.99.0'\n",
    }
    assert toolchain_facts(files).bazel_range == ("2.0.0", "3.99.0")
    assert toolchain_facts(files).bazel == "3.1.0"
