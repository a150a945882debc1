"""What submission looks at before anything is built: facts of the range's trees, and carried fixes.

Facts are read from the mirror, without a checkout; trees with carried changes are merged there too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from perfbisect.arms import change_for
from perfbisect.core.bazel_flags import option_problems
from perfbisect.core.eras import crossings, unified, ways
from perfbisect.core.recipe import Recipe, RecipeKind
from perfbisect.core.revision import Action, Change, Revision, parse_revision, patch_name
from perfbisect.core.toolchain import TOOLCHAIN_FILES, ToolchainFacts, toolchain_facts
from perfbisect.errors import BadInputError
from perfbisect.git.axis import is_ancestor
from perfbisect.git.process import Git
from perfbisect.git.values import Candidate
from perfbisect.history import Conflict, Mirror, Resolved

#: Positions whose facts are read at most because their commit touches a file that decides them.
_MOST_TOUCHED = 200
#: Positions between two words about progress.
_TELL_EVERY = 200


@dataclass(frozen=True, slots=True)
class Carry:
    """Changes that are carried along a range."""

    changes: tuple[Change, ...] = ()
    #: Name -> text of each patch.
    patches: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def identity(self) -> list[str]:
        """What makes two requests carry the same."""
        return [str(change) for change in self.changes]


@dataclass(frozen=True, slots=True)
class CarriedAlong:
    """What an axis carries where."""

    #: Position -> changes as text; positions that carry nothing are missing.
    changes: Mapping[int, Sequence[str]] = field(default_factory=dict)
    patches: Mapping[str, bytes] = field(default_factory=dict)

    def at(self, position: int, sha: str) -> Revision:
        """Return the revision that is built at a position, whose commit is ``sha``."""
        return parse_revision(" ".join([sha, *self.changes.get(position, ())]))


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A recipe that fits a range, and what people should know of its builds."""

    recipe: Recipe
    notes: tuple[dict[str, Any], ...] = ()


def make_carry(mirror: Mirror, picks: Sequence[str], patches: Sequence[str]) -> Carry:
    """Return what is to be carried: commits first, in the order given, then patches.

    Raises:
        BadInputError: no such commit.
    """
    named = named_patches(patches)
    changes = [
        change_for(mirror, Action.PICK, mirror.resolve(ref, "carry_pick").sha) for ref in picks
    ]
    changes += [Change(Action.PATCH, name) for name in named]
    return Carry(tuple(changes), named)


def named_patches(patches: Sequence[str]) -> dict[str, bytes]:
    """Return name -> text of patches."""
    return {patch_name(text): text.encode() for text in patches}


def carry_along(
    mirror: Mirror,
    columns: Sequence[Mapping[str, Any]],
    carry: Carry,
    progress: Callable[[str], None] | None = None,
    among: str = "range",
) -> tuple[list[dict[str, Any]], tuple[dict[str, Any], ...]]:
    """Apply changes along an axis wherever they are needed and apply.

    A change is needed where the tree does not hold it already. Where it does not apply, the commit
    stays as it is.

    Args:
        mirror: of the repository.
        columns: of the axis' commits, by position.
        carry: what to carry.
        progress: told now and then how far it is.
        among: what the commits are of, for messages.

    Returns:
        the columns with the trees that are to be built, and a note for each change.

    Raises:
        BadInputError: a patch can't be read, or a change applies nowhere.
    """
    if not carry.changes:
        return [dict(each) for each in columns], ()
    counts = {str(change): _Count() for change in carry.changes}
    carried = []
    for position, column in enumerate(columns):
        if progress is not None and position and position % _TELL_EVERY == 0:
            progress(f"carried along {position} of {len(columns)} commits")
        tree, names = _carried(mirror, column, carry, counts)
        carried.append({**column, "tree": tree, "carried": names or None})
    for change in carry.changes:
        _refuse_useless(change, counts[str(change)], len(columns), among)
    return carried, tuple(_carry_note(each, counts[each], len(columns)) for each in counts)


@dataclass(slots=True)
class _Count:
    applied: int = 0
    conflicts: int = 0
    there: int = 0
    #: First file with which it conflicts.
    file: str = ""


def _carried(
    mirror: Mirror, column: Mapping[str, Any], carry: Carry, counts: Mapping[str, _Count]
) -> tuple[str, list[str]]:
    """Return the tree of a commit with what applies to it, and what that is."""
    revision, tree = Revision(column["sha"]), str(column["tree"])
    for change in carry.changes:
        count = counts[str(change)]
        found = mirror.resolve_revision(revision.then(change), carry.patches)
        if isinstance(found, Resolved):
            revision, tree = revision.then(change), found.tree
            count.applied += 1
        elif isinstance(found, Conflict) and not _is_inside(mirror, change, revision.base):
            count.conflicts += 1
            count.file = count.file or next((file.path for file in found.files), "")
        else:
            count.there += 1
    return tree, [str(change) for change in revision.changes]


def _is_inside(mirror: Mirror, change: Change, base: str) -> bool:
    """Whether a commit has a change in its history: what conflicts then is what came after it."""
    if change.kind is Action.PATCH:
        return False
    return is_ancestor(Git(mirror.path), change.ref, base)


def _refuse_useless(change: Change, count: _Count, of: int, among: str) -> None:
    if count.applied:
        return
    name = "carry" if change.kind is Action.PATCH else "carry_pick"
    why = (
        f"all {of} commits of the {among} have it already"
        if not count.conflicts
        else f"it applies to none of the {among}'s commits; it conflicts in '{count.file}'"
    )
    raise BadInputError(f"{name}: {change}: {why}", field=name, value=change.ref)


def _carry_note(change: str, count: _Count, of: int) -> dict[str, Any]:
    parts = [f"carried at {count.applied} of {of} commits"]
    parts += [f"{count.there} have it already"] if count.there else []
    parts += [f"it does not apply to {count.conflicts}, which are as they were"] * bool(
        count.conflicts
    )
    return {"kind": "carry", "position": None, "note": f"{change}: {'; '.join(parts)}"}


def survey(
    mirror: Mirror, recipe: Recipe, candidates: Sequence[Candidate], trees: Sequence[str]
) -> Surveyed:
    """Look at how the trees of a range are built; make it one way where one serves them all.

    Args:
        mirror: of the repository.
        recipe: what was asked for.
        candidates: the axis.
        trees: by position, what is built.

    Raises:
        BadInputError: an option can't be had from a tree of the range.
    """
    if recipe.kind is not RecipeKind.BAZEL:
        return Surveyed(recipe)
    facts = _facts_along(mirror.path, recipe, candidates, trees)
    for position, each in sorted(facts.items()):
        for problem in option_problems(recipe, each):
            at = f" (commit {candidates[position].sha[:10]}, TensorFlow {each.tensorflow or '?'})"
            raise BadInputError(problem.message + at, field=problem.field, value=problem.value)
    one = unified(recipe, facts.values())
    notes = [_one_note(recipe, one, name) for name in ("toolchain", "bazel")]
    return Surveyed(
        one,
        (
            *(note for note in notes if note is not None),
            *(
                {
                    "kind": each.what,
                    "position": each.position,
                    "note": each.note(candidates[each.position].sha[:10]),
                }
                for each in crossings(one, facts)
            ),
        ),
    )


def _one_note(asked: Recipe, one: Recipe, name: str) -> dict[str, Any] | None:
    chosen = getattr(one, name)
    if chosen == getattr(asked, name):
        return None
    why = f"the range crosses an era: all of it is built with {name} {chosen}, which serves both"
    return {"kind": "one_way", "position": None, "note": why}


def _facts_along(
    mirror: Path, recipe: Recipe, candidates: Sequence[Candidate], trees: Sequence[str]
) -> dict[int, ToolchainFacts]:
    """Return facts at both ends and on both sides of each change between them."""
    last = len(candidates) - 1
    files = frozenset(TOOLCHAIN_FILES)
    touched = [
        position
        for position, each in enumerate(candidates)
        if each.paths_cut or not files.isdisjoint(each.paths)
    ][:_MOST_TOUCHED]
    reader = _Facts(mirror, trees)
    looked = sorted({0, last, *touched, *(each - 1 for each in touched if each)})
    for lower, upper in pairwise(looked):
        reader.refine(recipe, lower, upper)
    return {position: reader.at(position) for position in sorted(reader.positions | {0, last})}


class _Facts:
    """Facts by position; equal trees are read once."""

    def __init__(self, mirror: Path, trees: Sequence[str]) -> None:
        self._mirror = mirror
        self._trees = trees
        self._known: dict[str, ToolchainFacts] = {}
        #: On both sides of each change.
        self.positions: set[int] = set()

    def at(self, position: int) -> ToolchainFacts:
        """Return the facts of a position's tree."""
        tree = self._trees[position]
        if tree not in self._known:
            self._known[tree] = tree_facts(self._mirror, tree)
        return self._known[tree]

    def refine(self, recipe: Recipe, lower: int, upper: int) -> None:
        """Find a change between two positions, if they differ."""
        while ways(recipe, self.at(lower)) != ways(recipe, self.at(upper)):
            if upper - lower == 1:
                self.positions |= {lower, upper}
                return
            middle = (lower + upper) // 2
            if ways(recipe, self.at(middle)) == ways(recipe, self.at(lower)):
                lower = middle
            else:
                upper = middle


def tree_facts(mirror: Path, tree: str) -> ToolchainFacts:
    """Return the facts of a tree in a mirror."""
    asked = "".join(f"{tree}:{path}\n" for path in TOOLCHAIN_FILES).encode()
    output = Git(mirror).run("cat-file", "--batch", stdin=asked).stdout
    files, place = {}, 0
    for path in TOOLCHAIN_FILES:
        end = output.index(b"\n", place)
        # "<object> blob <bytes>", or the name as asked and "missing".
        words = output[place:end].split()
        place = end + 1
        if len(words) == 3 and words[1] in (b"blob", b"tree") and words[2].isdigit():
            content = output[place : place + int(words[2])]
            place += len(content) + 1
            if words[1] == b"blob":
                files[path] = content.decode("utf-8", "replace")
    return toolchain_facts(files)
