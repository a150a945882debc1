from __future__ import annotations

from pathlib import Path

import pytest

from perfbisect.config import (
    LoadedBenchmark,
    list_known,
    list_presets,
    load_benchmark,
    load_recipe,
)
from perfbisect.core.recipe import ReaderKind, RecipeKind, Take
from perfbisect.errors import BadInputError, NotFoundError

RECIPE = """
[recipe]
name = "mine"
kind = "pip-wheel"
docker = false
build_requirements = ["setuptools<70"]
env = {CFLAGS = "-O2"}
timeout = "1h30m"
"""

BENCHMARK = """
[benchmark]
name = "speed"
command = "{python} speed.py --size 3"
files = ["speed.py"]
metric = {reader = "regex", pattern = 'images/sec: ([0-9.]+)', take = "max", skip = 1}
unit = "images/s"
requirements = ["numpy==2.1.3"]
timeout = 90
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def benchmark_in(directory: Path, text: str = BENCHMARK) -> LoadedBenchmark:
    write(directory / "speed.py", "print('images/sec: 3')\n")
    return load_benchmark(str(write(directory / "speed.toml", text)))


def test_recipe_from_a_file(tmp_path: Path) -> None:
    """A [recipe] table becomes a recipe, with durations in seconds and lists as tuples."""
    loaded = load_recipe(str(write(tmp_path / "mine.toml", RECIPE)))
    assert loaded.source == tmp_path / "mine.toml"
    assert loaded.recipe.kind is RecipeKind.PIP_WHEEL
    assert loaded.recipe.timeout == 5400.0
    assert loaded.recipe.build_requirements == ("setuptools<70",)
    assert loaded.recipe.env == {"CFLAGS": "-O2"}


def test_benchmark_from_a_file(tmp_path: Path) -> None:
    """A [benchmark] table becomes a benchmark that knows where its files are and their hashes."""
    loaded = benchmark_in(tmp_path)
    assert loaded.base_dir == tmp_path
    assert list(loaded.files) == ["speed.py"]
    assert loaded.benchmark.metric.reader is ReaderKind.REGEX
    assert loaded.benchmark.metric.take is Take.MAX
    assert loaded.benchmark.timeout == 90.0


def test_the_script_is_part_of_the_identity(tmp_path: Path) -> None:
    """Another content of a file gives another digest; the same content elsewhere does not."""
    one = benchmark_in(tmp_path / "one")
    two = benchmark_in(tmp_path / "two")
    assert one.digest == two.digest
    write(tmp_path / "two" / "speed.py", "print('images/sec: 4')\n")
    assert load_benchmark(str(tmp_path / "two" / "speed.toml")).digest != one.digest


def test_a_directory_of_files(tmp_path: Path) -> None:
    """A directory in ``files`` stands for what is below it, without what Python leaves there."""
    write(tmp_path / "lib" / "deep" / "a.py", "a = 1")
    write(tmp_path / "lib" / "b.py", "b = 1")
    write(tmp_path / "lib" / "__pycache__" / "b.cpython-311.pyc", "x")
    loaded = benchmark_in(tmp_path, BENCHMARK.replace('["speed.py"]', '["lib", "speed.py"]'))
    assert list(loaded.files) == ["lib/b.py", "lib/deep/a.py", "speed.py"]


def test_relative_file_is_below_the_given_directory(tmp_path: Path) -> None:
    """A relative file is looked for in the directory where the command was started."""
    write(tmp_path / "sub" / "mine.toml", RECIPE)
    assert load_recipe("sub/mine.toml", tmp_path).recipe.name == "mine"


@pytest.mark.parametrize(
    "text",
    [
        '[recipe]\nname = "fast"\nkind = "bazel"\n',
        '[recipe.fast]\nkind = "bazel"\n[recipe.slow]\nkind = "bazel"\nenv = {A = "1"}\n',
        '[[recipe]]\nname = "slow"\nkind = "bazel"\n[[recipe]]\nname = "fast"\nkind = "bazel"\n',
    ],
    ids=["table", "named tables", "array"],
)
def test_names_of_the_project_file(tmp_path: Path, text: str) -> None:
    """All three ways to write recipes in perfbisect.toml make them known by name."""
    write(tmp_path / "perfbisect.toml", text)
    loaded = load_recipe("fast", tmp_path)
    assert loaded.recipe.name == "fast"
    assert loaded.source == tmp_path / "perfbisect.toml"
    assert "fast" in [known.recipe.name for known in list_known(tmp_path).recipes]


def test_the_project_file_hides_shipped_names(tmp_path: Path) -> None:
    """A recipe of one's own wins over a shipped one of the same name."""
    write(tmp_path / "perfbisect.toml", '[recipe.pip-wheel]\nkind = "pip-wheel"\nmarch = "x"\n')
    assert load_recipe("pip-wheel", tmp_path).recipe.march == "x"
    assert load_recipe("pip-wheel", tmp_path / "elsewhere").recipe.march == ""


def test_one_of_several_in_a_file(tmp_path: Path) -> None:
    """FILE#NAME chooses one; without a name, or with a wrong one, the message lists them."""
    file = write(tmp_path / "r.toml", '[recipe.a]\nkind = "bazel"\n[recipe.b]\nkind = "bazel"\n')
    assert load_recipe(f"{file}#b").recipe.name == "b"
    with pytest.raises(NotFoundError, match=r"FILE#NAME: a, b"):
        load_recipe(str(file))
    with pytest.raises(NotFoundError, match=r"no recipe 'c'.*known: a, b"):
        load_recipe(f"{file}#c")
    with pytest.raises(NotFoundError, match=r"has no \[benchmark\]"):
        load_benchmark(str(file))


def test_unknown_name(tmp_path: Path) -> None:
    """An unknown name is answered with the nearest, all known ones, and how to name a file."""
    with pytest.raises(NotFoundError) as caught:
        load_recipe("tf2-cuda11", tmp_path)
    assert "did you mean 'tf2-cuda10'?" in caught.value.message
    assert "pip-wheel" in caught.value.message
    assert ".toml" in caught.value.message


def test_missing_file(tmp_path: Path) -> None:
    """A file that isn't there is said to be missing, by its path."""
    with pytest.raises(NotFoundError, match=r"none\.toml: no such file"):
        load_recipe("none.toml", tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[recipe\n", "not TOML"),
        ("[recipes]\n", r"unknown table 'recipes' \(did you mean 'recipe'\?\)"),
        ("recipe = 3\n", r"should be a table: \[recipe\]"),
        ('[recipe]\nname = "a b"\n', "name = 'a b' should be"),
        ('[recipe]\nname = 3\nkind = "bazel"\n', "name = 3 should be"),
        ('[recipe]\nkind = "bazel"\n', "key 'name' is missing"),
        ('[[recipe]]\nname = "a"\n[[recipe]]\nname = "a"\n', "two recipes are named 'a'"),
        ("description = 3\n", "description = 3 should be text"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, says: str) -> None:
    """What is wrong with the file as a whole is said with the file's name."""
    file = write(tmp_path / "r.toml", text)
    with pytest.raises(BadInputError, match=says) as caught:
        load_recipe(str(file))
    assert str(file) in caught.value.message


def test_not_text(tmp_path: Path) -> None:
    """A file that isn't UTF-8, and a directory, are bad input, not a crash."""
    (tmp_path / "r.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInputError, match="not TOML"):
        load_recipe("r.toml", tmp_path)
    (tmp_path / "d.toml").mkdir()
    with pytest.raises(BadInputError, match="can't be read"):
        load_recipe("d.toml", tmp_path)


@pytest.mark.parametrize("name", ["missing.py", "../outside.py", "/etc/hostname", "link.py"])
def test_files_that_are_not_below_the_benchmark(tmp_path: Path, name: str) -> None:
    """A missing file, and one outside of the benchmark's directory, are refused by name."""
    write(tmp_path / "outside.py", "")
    base = tmp_path / "base"
    base.mkdir()
    (base / "link.py").symlink_to(tmp_path / "outside.py")
    with pytest.raises(BadInputError, match="files") as caught:
        benchmark_in(base, BENCHMARK.replace('["speed.py"]', f'["{name}"]'))
    assert name in caught.value.message


def test_all_presets_load() -> None:
    """Every shipped recipe and benchmark is valid, described, and has what it runs."""
    presets = list_presets()
    assert {"tf2-cuda10", "pip-wheel", "tf-cpu-local"} <= {r.recipe.name for r in presets.recipes}
    names = {b.benchmark.name for b in presets.benchmarks}
    assert {"resnet50-train-cpu", "import-time"} <= names
    assert all(recipe.description for recipe in presets.recipes)
    assert all(benchmark.description for benchmark in presets.benchmarks)
    # What a benchmark runs comes with it, or from a repository beside it.
    assert all(known.files or known.benchmark.companions for known in presets.benchmarks)


def test_shipped_recipe_has_the_flags_of_its_time() -> None:
    """The recipe for TensorFlow 2.0 with CUDA 10 asks for everything that its users built with."""
    recipe = load_recipe("tf2-cuda10").recipe
    assert recipe.cuda
    assert recipe.xla
    assert recipe.tensorrt
    assert recipe.numa
    assert recipe.tf_api_version == 2
    assert recipe.march == "broadwell"
    assert recipe.compute_capabilities == ("6.1", "7.0", "7.5")
    assert recipe.copt == ("-Wno-sign-compare",)
