"""Culprits that alerts led to: the same one found twice is one finding."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.store.alert_tables import FindingRow
from perfbisect.store.database import new_id, now
from perfbisect.store.tables import BisectionRow, RepositoryRow


def remember(session: Session, bisection: BisectionRow, culprit: Mapping[str, Any]) -> FindingRow:
    """Return the finding of a culprit, a new one unless it is known."""
    origin = origin_of(session, bisection)
    commits = [str(each) for each in culprit["commits"]]
    digest = hashlib.sha256(json.dumps(commits).encode()).hexdigest()
    known = session.scalar(
        select(FindingRow).where(FindingRow.origin == origin, FindingRow.commits_digest == digest)
    )
    if known is not None:
        return known
    row = FindingRow(
        id=new_id(),
        origin=origin,
        commits_digest=digest,
        commits=commits,
        subject=str(culprit.get("subject") or ""),
        bisection_id=bisection.id,
        found_at=now(),
    )
    session.add(row)
    session.flush()
    return row


def origin_of(session: Session, bisection: BisectionRow) -> str:
    """Return what a bisection's commits are of: URL of the repository, or the package."""
    if bisection.repository_id is not None:
        return session.get_one(RepositoryRow, bisection.repository_id).url
    return f"package {(bisection.published or {}).get('package', '')}"
