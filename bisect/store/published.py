"""Rows of published wheels: there from the start, fetched when they are run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.store.database import new_id, now
from perfbisect.store.tables import WheelRow

#: Values in one query: databases bound their number.
_BATCH = 500


class File(Protocol):
    """A published wheel, as far as its row goes."""

    @property
    def filename(self) -> str:
        """Name of the file."""
        ...

    @property
    def sha256(self) -> str:
        """Hexadecimal."""
        ...

    @property
    def size(self) -> int | None:
        """Bytes; None where the index does not tell."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return what it takes to fetch it."""
        ...


def store_published(
    session: Session,
    origin: str,
    wheels: Mapping[int, File],
    candidates: Mapping[int, Mapping[str, Any]],
) -> None:
    """Store the wheels of an axis; of those known, only where they are fetched from is renewed.

    Args:
        origin: digest of where the axis' wheels come from.
        wheels: position -> wheel.
        candidates: position -> columns, of which ``tree`` and ``sha`` are used.
    """
    trees = [candidates[position]["tree"] for position in wheels]
    known = {row.tree: row for row in _rows(session, origin, trees)}
    for position, wheel in wheels.items():
        tree = candidates[position]["tree"]
        row = known.get(tree)
        if row is None:
            row = WheelRow(
                id=new_id(),
                tree=tree,
                recipe_digest=origin,
                commit_sha=candidates[position]["sha"],
                filename=wheel.filename,
                sha256=wheel.sha256,
                size=wheel.size or 0,
                artifact="",
                created_at=now(),
            )
            session.add(row)
            known[tree] = row
        elif row.sha256 != wheel.sha256:
            # Another file, or a wheel of our own, stands for this tree already, and has points.
            continue
        row.published = wheel.to_dict()
    session.flush()


def store_pinned(
    session: Session, origin: str, built: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]]
) -> None:
    """Let one wheel that was built here stand for every position of an axis.

    Args:
        origin: digest of where the axis' wheels come from.
        built: the wheel's columns.
        candidates: by position: columns, of which ``tree`` and ``sha`` are used.
    """
    by_tree = {each["tree"]: each["sha"] for each in candidates}
    known = {row.tree for row in _rows(session, origin, by_tree)}
    for tree, sha in by_tree.items():
        if tree not in known:
            columns = {"tree": tree, "recipe_digest": origin, "commit_sha": sha, **built}
            session.add(WheelRow(id=new_id(), created_at=now(), **columns))
    session.flush()


def share_built(session: Session, origin: str, recipe: str, trees: Collection[str]) -> None:
    """Let wheels that a recipe has built already stand on an axis with nightlies too.

    Args:
        origin: digest of where the axis' wheels come from.
        recipe: digest of the recipe that builds the others.
        trees: of the axis.
    """
    if origin == recipe:
        return
    taken = {row.tree for row in _rows(session, origin, trees)}
    for row in _rows(session, recipe, trees):
        if row.tree not in taken:
            session.add(
                WheelRow(
                    id=new_id(),
                    tree=row.tree,
                    recipe_digest=origin,
                    commit_sha=row.commit_sha,
                    build_id=row.build_id,
                    filename=row.filename,
                    sha256=row.sha256,
                    size=row.size,
                    artifact=row.artifact,
                    created_at=now(),
                )
            )
    session.flush()


def _rows(session: Session, origin: str, trees: Collection[str]) -> list[WheelRow]:
    wanted = sorted(set(trees))
    found: list[WheelRow] = []
    for start in range(0, len(wanted), _BATCH):
        some = wanted[start : start + _BATCH]
        query = select(WheelRow).where(WheelRow.recipe_digest == origin, WheelRow.tree.in_(some))
        found += session.scalars(query)
    return found
