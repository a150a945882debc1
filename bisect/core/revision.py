"""Revisions: a base commit plus an ordered list of changes, as text, as values and as an identity.

A revision is written as words, quoted as in a shell where they hold spaces::

    r2.0 revert ef9f0e8 pick 96a407a pick 0a1b2c3 parent 1 patch 'my fix.diff'

What a revision *is*, once resolved, is the git tree that it gives: ``perfbisect.history``.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from perfbisect.core.recipe import digest_of

_PARENT = "parent"


class Action(StrEnum):
    """What a change does to the tree so far."""

    #: Take back what a commit did.
    REVERT = "revert"
    #: Do again what a commit did elsewhere.
    PICK = "pick"
    #: Apply the text of a patch.
    PATCH = "patch"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a revision."""

    kind: Action
    #: A commit, or for a patch its name (a file's path, say); never its text.
    ref: str
    #: For merges: the parent, from 1, against which the merge is seen. None for other commits.
    parent: int | None = None

    def __str__(self) -> str:
        words = [self.kind.value, self.ref]
        if self.parent is not None:
            words += [_PARENT, str(self.parent)]
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class Revision:
    """What gets built: a base commit, and changes applied to it in order."""

    base: str
    changes: tuple[Change, ...] = ()

    def __str__(self) -> str:
        return " ".join([shlex.quote(self.base), *map(str, self.changes)])

    @property
    def digest(self) -> str:
        """SHA-256 of the revision as written; equal trees may have different digests."""
        changes = [[change.kind.value, change.ref, change.parent] for change in self.changes]
        return digest_of({"base": self.base, "changes": changes})

    def then(self, *changes: Change) -> Revision:
        """Return the revision with further changes."""
        return replace(self, changes=(*self.changes, *changes))

    def renamed(self, name: Callable[[str], str]) -> Revision:
        """Return the revision with its commits renamed, e.g. to full SHAs; patches keep theirs."""
        changes = tuple(
            change if change.kind is Action.PATCH else replace(change, ref=name(change.ref))
            for change in self.changes
        )
        return Revision(name(self.base), changes)


class RevisionSyntaxError(ValueError):
    """A text is no revision; the message names the word and says what would be right."""


def patch_name(text: str) -> str:
    """Return what a patch without a file is called: by its content, so the same is the same."""
    return f"carry-{hashlib.sha256(text.encode()).hexdigest()[:8]}.diff"


def reverting(base: str, *refs: str) -> Revision:
    """Return ``base`` with commits reverted, in the order given."""
    return Revision(base, tuple(Change(Action.REVERT, ref) for ref in refs))


def picking(base: str, *refs: str) -> Revision:
    """Return ``base`` with commits picked, in the order given."""
    return Revision(base, tuple(Change(Action.PICK, ref) for ref in refs))


#: Characters of a revision's text at most.
LONGEST = 50_000


def parse_revision(text: str) -> Revision:
    """Read a revision; ``parse_revision(str(revision)) == revision``.

    Raises:
        RevisionSyntaxError: the text is no revision.
    """
    if len(text) > LONGEST:
        raise RevisionSyntaxError(f"a revision has at most {LONGEST} characters, not {len(text)}")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RevisionSyntaxError(f"{text!r}: {str(error).lower()}") from error
    if not words:
        raise RevisionSyntaxError("a revision begins with its base commit; this is empty")
    changes: list[Change] = []
    rest = iter(words[1:])
    for word in rest:
        if word == _PARENT and changes:
            changes[-1] = _with_parent(changes[-1], next(rest, ""))
            continue
        if word not in tuple(Action):
            known = ", ".join(f"'{action}'" for action in Action)
            raise RevisionSyntaxError(f"'{word}' where one of {known} and '{_PARENT}' may stand")
        ref = next(rest, "")
        if not ref:
            raise RevisionSyntaxError(f"'{word}' needs a commit or a file after it")
        changes.append(Change(Action(word), ref))
    return Revision(words[0], tuple(changes))


def _with_parent(change: Change, number: str) -> Change:
    if change.kind is Action.PATCH:
        raise RevisionSyntaxError(f"'{change}': a patch has no parent")
    if change.parent is not None:
        raise RevisionSyntaxError(f"'{change}' has its parent twice")
    if not (number.isascii() and number.isdigit()) or int(number) < 1:
        raise RevisionSyntaxError(f"'{_PARENT}' needs a number from 1, got '{number}'")
    return replace(change, parent=int(number))
