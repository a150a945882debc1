from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from perfbisect.config import load_benchmark, load_recipe
from perfbisect.core.recipe import RecipeKind
from perfbisect.demo.repository import (
    BENCHMARK,
    RECIPE_BAZEL,
    RECIPE_LOCAL,
    DemoRepository,
    generate,
)
from perfbisect.errors import BadInputError


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoRepository:
    return generate(tmp_path_factory.mktemp("demo") / "repository")


def test_two_places_give_the_same_commits(demo: DemoRepository, tmp_path: Path) -> None:
    """The commit ids depend on nothing but the demo's own files."""
    other = generate(tmp_path / "elsewhere" / "repository")
    assert other.commits == demo.commits
    assert other.truth == demo.truth


def test_the_users_git_settings_change_nothing(
    demo: DemoRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's name, hooks, signing and directories in the environment leave the ids alone."""
    config = tmp_path / "gitconfig"
    config.write_text(
        "[user]\nname = x\nemail = x@example.invalid\n[commit]\ngpgsign = true\n"
        "[core]\nautocrlf = true\nhooksPath = /nowhere\n[init]\ndefaultBranch = trunk\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "wrong"))
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")
    assert generate(tmp_path / "repository").commits == demo.commits


def test_the_history_is_a_line_of_the_commits_told(demo: DemoRepository) -> None:
    """git lists the same commits, oldest first, each with one parent, and a clean checkout."""
    listed = git(demo.path, "rev-list", "--reverse", "HEAD").split()
    assert tuple(listed) == demo.commits
    assert git(demo.path, "rev-list", "--merges", "--count", "HEAD") == "0"
    assert git(demo.path, "status", "--porcelain") == ""
    assert git(demo.path, "fsck", "--strict") == ""


def test_the_ends_are_tagged(demo: DemoRepository) -> None:
    """The good and the bad end have tags that `git describe` finds, as version stamps need."""
    assert git(demo.path, "rev-parse", "v0.1.0^{commit}") == demo.good
    assert git(demo.path, "describe", "--tags", "--long", demo.bad).startswith("v0.2.0-rc0-0-g")
    assert demo.bad == demo.commits[-1]


def test_truth_lies_between_the_ends_with_its_parents(demo: DemoRepository) -> None:
    """Each known step is after good, up to bad, and names the commit before it."""
    within = git(demo.path, "rev-list", f"{demo.good}..{demo.bad}").split()
    for step in demo.truth:
        assert step.commit in within
        assert git(demo.path, "rev-parse", f"{step.commit}^") == step.parent
        assert git(demo.path, "log", "-1", "--format=%s", step.commit) == step.subject
    assert set(demo.unbuildable) <= set(within)


def test_the_rollback_names_its_commit_and_restores_the_kernels(demo: DemoRepository) -> None:
    """The rollback has the id of the regression in its subject, and takes back what it did."""
    regression, rollback = demo.truth[1], demo.truth[2]
    assert rollback.subject == f"Automated rollback of commit {regression.commit}"
    path = "tensorflow/core/kernels/sums.h"
    before = git(demo.path, "rev-parse", f"{regression.parent}:{path}")
    assert git(demo.path, "rev-parse", f"{rollback.commit}:{path}") == before


def test_author_and_dates_are_fixed(demo: DemoRepository) -> None:
    """Every commit has the demo's author, and dates grow along the line."""
    lines = git(demo.path, "log", "--reverse", "--format=%at %ct %an <%ae>|%cn <%ce>").splitlines()
    assert {line.split(" ", 2)[2] for line in lines} == {
        "perfbisect demo <demo@example.invalid>|perfbisect demo <demo@example.invalid>"
    }
    dates = [int(line.split()[0]) for line in lines]
    assert dates == sorted(set(dates))


def test_scripts_can_be_executed(demo: DemoRepository) -> None:
    """Shell scripts carry the executable bit, in git and in the checkout."""
    listed = git(demo.path, "ls-tree", "-r", "HEAD", "--", "tensorflow/tools").splitlines()
    modes = {line.split("\t")[1]: line.split()[0] for line in listed}
    assert {mode for path, mode in modes.items() if path.endswith(".sh")} == {"100755"}
    assert (demo.path / "tensorflow/tools/pip_package/build_local.sh").stat().st_mode & 0o100


def test_a_second_call_leaves_the_repository_alone(tmp_path: Path) -> None:
    """Generating where the same demo is already gives its description and touches nothing."""
    first = generate(tmp_path / "repository")
    mine = first.path / "mine.txt"
    mine.write_text("kept")
    assert generate(tmp_path / "repository") == first
    assert mine.read_text() == "kept"


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    """An empty directory is as good as none."""
    assert generate(tmp_path).path == tmp_path
    assert (tmp_path / "WORKSPACE").is_file()


@pytest.mark.parametrize("name", ["file", "directory"])
def test_something_else_is_never_overwritten(tmp_path: Path, name: str) -> None:
    """A file, or a directory that holds something, is refused and stays as it was."""
    dest = tmp_path / "here"
    if name == "file":
        dest.write_text("precious")
    else:
        dest.mkdir()
        (dest / "precious").write_text("precious")
    with pytest.raises(BadInputError, match="is there already") as caught:
        generate(dest)
    assert caught.value.field == "dest"
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_without_git_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without git gets a sentence, and no half-written directory."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInputError, match="git is not installed"):
        generate(tmp_path / "repository")
    assert list(tmp_path.iterdir()) == []


def test_recipes_and_benchmark_are_valid() -> None:
    """The shipped files load by the same path as a user's, scripts included."""
    assert load_recipe(str(RECIPE_LOCAL)).recipe.kind is RecipeKind.COMMAND
    assert not load_recipe(str(RECIPE_LOCAL)).recipe.docker
    bazel = load_recipe(str(RECIPE_BAZEL)).recipe
    assert bazel.kind is RecipeKind.BAZEL
    assert bazel.docker
    assert "resnet_demo.py" in load_benchmark(str(BENCHMARK)).files
