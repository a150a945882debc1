"""The commits of the demo repository as values: read from ``history.toml`` and ``source/``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfbisect.core.states import ChangeKind
from perfbisect.errors import InternalError

#: Where the demo's own files are: this package.
DEMO_DIR = Path(__file__).resolve().parent
#: Files below source/ carry this ending, so that no tool takes them for files of this project.
TEMPLATE_SUFFIX = ".in"

#: Path -> text of every file of a tree.
Tree = dict[str, str]


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one file: ``old``, which occurs once, becomes ``new``; or text is appended."""

    path: str
    old: str = ""
    new: str = ""
    append: str = ""

    def apply(self, tree: Tree) -> None:
        """Change ``tree`` in place.

        Raises:
            InternalError: ``old`` does not occur exactly once.
        """
        if self.append:
            tree[self.path] = tree.get(self.path, "") + self.append
            return
        found = tree.get(self.path, "").count(self.old)
        if found != 1:
            message = f"demo: {self.old!r:.60} occurs {found} times in {self.path}, not once"
            raise InternalError(message, field=self.path)
        tree[self.path] = tree[self.path].replace(self.old, self.new)

    @property
    def inverse(self) -> Edit:
        """The edit that takes this one back."""
        if self.append:
            raise InternalError(f"demo: an append to {self.path} can't be rolled back")
        return Edit(self.path, old=self.new, new=self.old)


@dataclass(frozen=True, slots=True)
class DemoCommit:
    """One commit, not written yet."""

    subject: str
    body: str = ""
    edits: tuple[Edit, ...] = ()
    #: How later commits refer to it; empty where none does.
    name: str = ""
    #: Annotated tag; empty for none.
    tag: str = ""
    #: What it does to the benchmark; None: nothing.
    step: ChangeKind | None = None
    #: Size of ``step`` as a share of the value before, roughly: it depends on the processor.
    change: float = 0.0
    builds: bool = True
    #: Name of the commit that this one takes back; ``{sha}`` in the message stands for its id.
    rolls_back: str = ""


def load_history(path: Path = DEMO_DIR / "history.toml") -> tuple[DemoCommit, ...]:
    """Return the commits, oldest first; what a rollback edits is filled in.

    Raises:
        InternalError: the file does not make sense.
    """
    commits: list[DemoCommit] = []
    with path.open("rb") as file:
        tables = tomllib.load(file)["commit"]
    for table in tables:
        commits.append(_commit(table, {c.name: c for c in commits if c.name}))
    if sum(bool(commit.tag) for commit in commits) < 2:
        raise InternalError(f"{path.name}: the good and the bad end need a tag")
    return tuple(commits)


def load_source(directory: Path = DEMO_DIR / "source") -> Tree:
    """Return the first commit's tree. ``dot_x.in`` is the file ``.x``."""
    tree: Tree = {}
    for file in sorted(directory.rglob(f"*{TEMPLATE_SUFFIX}")):
        name = file.relative_to(directory).as_posix().removesuffix(TEMPLATE_SUFFIX)
        head, _, last = name.rpartition("/")
        if last.startswith("dot_"):
            last = "." + last.removeprefix("dot_")
        tree[f"{head}/{last}" if head else last] = file.read_text(encoding="utf-8")
    return tree


def _commit(table: Mapping[str, Any], earlier: Mapping[str, DemoCommit]) -> DemoCommit:
    values = dict(table)
    edits = tuple(Edit(**edit) for edit in values.pop("edit", ()))
    step = values.pop("step", None)
    rolls_back = values.get("rolls_back", "")
    if rolls_back:
        if rolls_back not in earlier:
            raise InternalError(f"demo: no earlier commit is named '{rolls_back}'")
        edits = tuple(edit.inverse for edit in reversed(earlier[rolls_back].edits))
    return DemoCommit(edits=edits, step=ChangeKind(step) if step else None, **values)
