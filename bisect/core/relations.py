"""What commit messages say of other commits: reverts, rollbacks, relands, cherry-picks.

Messages name a commit by its SHA, its changelist, its pull request or its subject::

    Automated rollback of commit d8563bdb14efca2f1eaafec3ea80bf6f2d086ed8
    Reverts changelist 668370165
    Rollback of PR #29796
    Revert "Turn on the new executor"
    (cherry picked from commit 96a407a3b2a3b5a4b6b9ff7c8b9a25f3b2a1f3a9)

Whoever reverts a revert relands: chains of any length are followed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class RelationKind(StrEnum):
    """What another commit is to this one."""

    #: The other one takes this one back.
    REVERTED_BY = "reverted_by"
    #: This one takes the other one back.
    ROLLBACK_OF = "rollback_of"
    #: The other one brings this one back after it was reverted.
    RELANDED_AS = "relanded_as"
    #: This one brings the other one back after it was reverted.
    RELAND_OF = "reland_of"
    #: This one repeats the other one on another branch.
    CHERRY_PICKED_FROM = "cherry_picked_from"
    #: The other one repeats this one on another branch.
    CHERRY_PICKED_AS = "cherry_picked_as"


class Deed(StrEnum):
    """What a message says its commit does to another."""

    UNDO = "undo"
    REDO = "redo"
    PICK = "pick"


class Naming(StrEnum):
    """How a message names the other commit."""

    SHA = "sha"
    CHANGELIST = "changelist"
    PULL_REQUEST = "pull_request"
    SUBJECT = "subject"


@dataclass(frozen=True, slots=True)
class Mention:
    """One claim of a message."""

    deed: Deed
    naming: Naming
    #: A SHA or its beginning, a number, or a subject.
    name: str
    #: Only a part of the other commit is meant.
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """What another commit is to the one that has this relation."""

    kind: RelationKind
    #: Full SHA of the other commit.
    commit: str
    #: Only a part was reverted or relanded.
    partial: bool = False
    #: Told from a subject or the number of a pull request, which may mislead.
    likely: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """A commit and its message."""

    sha: str
    message: str


#: Finds, case-insensitively and as an extended regular expression, messages worth reading.
TELLING = r"revert|roll(s|ed|ing)?[ -]?(back|forward)|re-?(land|appl)|back(s|ed)? out|cherry"

_MOST_LINES = 200
_LONGEST_LINE = 400

_REVISION_ID = re.compile(r"^PiperOrigin-RevId: (\d+)\s*$", re.MULTILINE)
_PULL_REQUESTS = (
    re.compile(r"^Merge pull request #(\d+)\b"),
    re.compile(r"^PR #(\d+)\b"),
    re.compile(r"\(#(\d+)\)\s*$"),
)

_VERB = re.compile(
    r"""^[\W_]*
    (?:this\ (?:(?:pr|cl|change|commit|is|an?)\ )*)?
    (?:(?P<part>partial(?:ly)?)\ |(?:temporar(?:y|ily)|automated|automatic|g4)\ )*
    (?:
      (?P<undo>reverts?|reverting|roll(?:s|ing)?[ -]?backs?|back(?:s|ing)?\ out)
    | (?P<redo>re-?(?:lands?|landing|appl(?:y|ies|ying))|roll(?:s|ing)?[ -]?forwards?)
    | (?P<pick>cherry[ -]?pick(?:s|ed)?)
    )\b[\]:]*\s*(?:(?:of|from)\b:?\s*)?""",
    re.VERBOSE | re.IGNORECASE,
)
_TARGET = re.compile(
    r"""(?:(?:the|commits?|change|changelists?|pr|pull\ request)\s+)*
    (?:
      "(?P<subject>.+)"
    | (?:https?://\S+/commit/)?(?P<sha>[0-9a-f]{7,64})\b(?![-/\w])
    | (?:https?://\S+/pull/|\#)(?P<pull>\d+)\b
    | cl/(?P<cl>\d{6,})\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_CHANGELIST = re.compile(r"(?:the\s+)?changelists?\s+(\d{6,})\b", re.IGNORECASE)
_AND = re.compile(r"\s*(?:,\s*and\b|,|\band\b|&)\s*", re.IGNORECASE)


def read_mentions(message: str) -> tuple[Mention, ...]:
    """Return what a message says its commit does to others, each claim once, in order."""
    found: dict[Mention, None] = {}
    for line in message.split("\n")[:_MOST_LINES]:
        for mention in _of_line(line[:_LONGEST_LINE].rstrip()):
            found.setdefault(mention)
    return tuple(found)


def _of_line(line: str) -> Iterator[Mention]:
    verb = _VERB.match(line)
    if verb is None:
        return
    deed = Deed.UNDO if verb["undo"] else Deed.REDO if verb["redo"] else Deed.PICK
    place = verb.end()
    while True:
        named = _name_at(line, place)
        if named is None:
            return
        naming, name, end = named
        yield Mention(deed, naming, name, partial=bool(verb["part"]))
        joint = _AND.match(line, end)
        if joint is None:
            return
        place = joint.end()


def _name_at(line: str, place: int) -> tuple[Naming, str, int] | None:
    changelist = _CHANGELIST.match(line, place)
    if changelist is not None:
        return Naming.CHANGELIST, changelist[1], changelist.end()
    target = _TARGET.match(line, place)
    if target is None:
        return None
    if target["subject"]:
        return Naming.SUBJECT, target["subject"], target.end()
    if target["sha"]:
        return Naming.SHA, target["sha"].lower(), target.end()
    if target["pull"]:
        return Naming.PULL_REQUEST, target["pull"], target.end()
    return Naming.CHANGELIST, target["cl"], target.end()


def changelist_of(message: str) -> str:
    """Return the number of the changelist that a commit was exported from; empty if none."""
    found = _REVISION_ID.findall(message)
    return found[-1] if found else ""


def pull_request_of(message: str) -> str:
    """Return the number of the pull request that a commit brought in; empty if none."""
    subject = message.split("\n", 1)[0]
    for pattern in _PULL_REQUESTS:
        if found := pattern.search(subject):
            return str(found[1])
    return ""


@dataclass
class _Index:
    """The commits so far, by every name that messages use."""

    shas: list[str] = field(default_factory=list)
    names: dict[tuple[Naming, str], str] = field(default_factory=dict)
    #: First seven digits -> SHAs.
    prefixes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, said: Said) -> None:
        self.names[Naming.SUBJECT, said.message.split("\n", 1)[0].strip()] = said.sha
        if number := changelist_of(said.message):
            self.names[Naming.CHANGELIST, number] = said.sha
        if number := pull_request_of(said.message):
            self.names[Naming.PULL_REQUEST, number] = said.sha

    def find(self, mention: Mention) -> str | None:
        if mention.naming is not Naming.SHA:
            return self.names.get((mention.naming, mention.name))
        near = self.prefixes.get(mention.name[:7], ())
        found = [sha for sha in near if sha.startswith(mention.name)]
        return found[0] if len(found) == 1 else None


_KINDS: Mapping[Deed, tuple[RelationKind, RelationKind]] = {
    Deed.UNDO: (RelationKind.ROLLBACK_OF, RelationKind.REVERTED_BY),
    Deed.REDO: (RelationKind.RELAND_OF, RelationKind.RELANDED_AS),
    Deed.PICK: (RelationKind.CHERRY_PICKED_FROM, RelationKind.CHERRY_PICKED_AS),
}


@dataclass(frozen=True, slots=True)
class _Effect:
    """What a commit does to another, directly or by way of a third."""

    deed: Deed
    sha: str
    partial: bool
    likely: bool


def relate(commits: Sequence[Said]) -> dict[str, tuple[Relation, ...]]:
    """Return the relations among ``commits``, which come oldest first.

    A subject or the number of a pull request means the last commit before that bears it.

    Returns:
        SHA -> its relations, in the order of the commits that said so; commits without any are
        left out.
    """
    index = _Index()
    for said in commits:
        index.prefixes[said.sha[:7]].append(said.sha)
    effects: dict[str, list[_Effect]] = {}
    relations: defaultdict[str, dict[Relation, None]] = defaultdict(dict)
    for said in commits:
        effects[said.sha] = _effects(said, index, effects)
        for effect in effects[said.sha]:
            of_this, of_other = _KINDS[effect.deed]
            here = Relation(of_this, effect.sha, effect.partial, effect.likely)
            there = Relation(of_other, said.sha, effect.partial, effect.likely)
            relations[said.sha].setdefault(here)
            relations[effect.sha].setdefault(there)
        index.add(said)
    return {sha: tuple(found) for sha, found in relations.items()}


def _effects(said: Said, index: _Index, before: Mapping[str, list[_Effect]]) -> list[_Effect]:
    """Return what one commit does, the surest word for each deed on each commit."""
    found: dict[tuple[Deed, str], _Effect] = {}
    for mention in read_mentions(said.message):
        target = index.find(mention)
        if target is None or target == said.sha:
            continue
        likely = mention.naming in (Naming.SUBJECT, Naming.PULL_REQUEST)
        direct = _Effect(mention.deed, target, mention.partial, likely)
        chain = [direct]
        if mention.deed is Deed.UNDO:
            chain += [
                _undone(effect, direct)
                for effect in before.get(target, ())
                if effect.deed is not Deed.PICK
            ]
        for effect in chain:
            known = found.get((effect.deed, effect.sha))
            if known is None or (known.likely and not effect.likely):
                found[effect.deed, effect.sha] = effect
    return list(found.values())


def _undone(effect: _Effect, by: _Effect) -> _Effect:
    """Return what it means to the root of a chain that its last link is undone."""
    deed = Deed.REDO if effect.deed is Deed.UNDO else Deed.UNDO
    return _Effect(deed, effect.sha, effect.partial or by.partial, effect.likely or by.likely)
