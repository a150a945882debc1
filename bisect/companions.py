"""The further repositories that a benchmark needs: which of their commits, and what follows.

A benchmark with companions is *resolved* before anything runs: each companion is named by a full
SHA, and the rules (``when``) that hold for these commits have changed command, files and
requirements. What is resolved is a benchmark of its own, with a digest of its own. A companion that
moves has another commit at other dates: then positions of one axis differ in their benchmark.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from perfbisect.benchmark_files import files_of
from perfbisect.core.recipe import Benchmark, Companion, When
from perfbisect.definitions import Measured, repository_source
from perfbisect.errors import BadInputError
from perfbisect.git.process import Progress
from perfbisect.git.source import parse_source
from perfbisect.git.values import CommitInfo
from perfbisect.history import Mirror, open_mirror
from perfbisect.services import Services

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")

M = TypeVar("M", bound=Measured)


@dataclass(frozen=True, slots=True)
class _Line:
    """A branch of a moving companion: its line of first parents, the earliest first."""

    commits: Sequence[CommitInfo]
    #: When each was there: clocks of committers go backwards now and then, time does not.
    there_since: Sequence[datetime]

    @staticmethod
    def of(commits: Sequence[CommitInfo]) -> _Line:
        latest = datetime.min.replace(tzinfo=UTC)
        there_since = []
        for commit in commits:
            latest = max(latest, commit.committed_at)
            there_since.append(latest)
        return _Line(commits, there_since)

    def at(self, moment: datetime) -> CommitInfo | None:
        """Return the last commit that was there at a moment."""
        number = bisect_right(self.there_since, moment)
        return self.commits[number - 1] if number else None


class Companions:
    """The companions of one benchmark, their mirrors up to date."""

    def __init__(
        self,
        services: Services,
        benchmark: Benchmark,
        *,
        allow_local: bool,
        progress: Progress | None = None,
    ) -> None:
        """Mirror the companions and find what the benchmark names of them.

        Args:
            allow_local: accept repositories on this machine's disk, and any URL.
            progress: told what goes on while they are mirrored.

        Raises:
            BadInputError: a revision, a branch or a rule names what is not there.
            NotFoundError: a repository that this server does not know.
            TransientError: a repository can't be reached.
        """
        self._benchmark = benchmark
        self._mirrors: dict[str, Mirror] = {}
        self._urls: dict[str, str] = {}
        self._pinned: dict[str, CommitInfo] = {}
        self._lines: dict[str, _Line] = {}
        self._known: dict[tuple[str, str], bool] = {}
        for companion in benchmark.companions:
            self._open(services, companion, allow_local, progress)
        self._rules = [(rule, self._condition(rule)) for rule in benchmark.when]

    def _open(
        self,
        services: Services,
        companion: Companion,
        allow_local: bool,
        progress: Progress | None,
    ) -> None:
        field = f"benchmark.companions.{companion.name}"
        given = repository_source(services, companion.repository, allow_local, field)
        self._urls[companion.name] = parse_source(given, allow_local=True).url
        mirror = open_mirror(
            given,
            services.settings.mirrors_dir,
            progress=progress,
            fetching=services.settings.fetching,
        )
        self._mirrors[companion.name] = mirror
        if companion.moving:
            line = mirror.first_parents(companion.follow, field)
            self._lines[companion.name] = _Line.of(line)
        else:
            self._pinned[companion.name] = mirror.resolve(companion.revision, field)

    def _condition(self, rule: When) -> datetime | str:
        """Return the moment, or the full SHA, from which on a rule holds."""
        if _DATE.fullmatch(rule.since):
            try:
                return datetime.fromisoformat(rule.since).replace(tzinfo=UTC)
            except ValueError as error:
                message = f"benchmark: when: since = '{rule.since}' is no date: {error}"
                raise BadInputError(message, field="benchmark.when", value=rule.since) from error
        return self._mirrors[self._name_in(rule)].resolve(rule.since, "benchmark.when").sha

    def _name_in(self, rule: When) -> str:
        return rule.companion or self._benchmark.companions[0].name

    @property
    def moving(self) -> bool:
        """Whether a companion's commit depends on what is measured."""
        return bool(self._lines)

    @property
    def moving_names(self) -> tuple[str, ...]:
        """Names of the companions that move."""
        return tuple(self._lines)

    def mirror(self, name: str) -> Mirror:
        """Return the mirror of a companion.

        Raises:
            BadInputError: the benchmark has no companion of this name.
        """
        if name not in self._mirrors:
            names = ", ".join(self._mirrors) or "none"
            own = f"benchmark '{self._benchmark.name}'"
            message = f"{own} has no companion '{name}'; it has {names}"
            raise BadInputError(message, field="bisect_companion", value=name)
        return self._mirrors[name]

    def url(self, name: str) -> str:
        """Return where a companion is mirrored from."""
        return self._urls[name]

    def commits_at(
        self, moment: datetime | None, chosen: Mapping[str, CommitInfo] | None = None
    ) -> dict[str, CommitInfo]:
        """Return name -> commit of each companion.

        Args:
            moment: date of what is measured; None: not known.
            chosen: companions whose commit is given, whatever the benchmark says of them.

        Raises:
            BadInputError: one moves, and the date is not known or before its first commit.
        """
        found = {**self._pinned, **(chosen or {})}
        for name, line in self._lines.items():
            if name not in found:
                found[name] = self._follow(name, line, moment)
        return {companion.name: found[companion.name] for companion in self._benchmark.companions}

    def _follow(self, name: str, line: _Line, moment: datetime | None) -> CommitInfo:
        if moment is None:
            why = "the date of what is measured is not known: pin it by 'revision'"
        else:
            commit = line.at(moment)
            if commit is not None:
                return commit
            why = f"its first commit is of {line.commits[0].committed_at:%Y-%m-%d}, after {moment}"
        message = f"benchmark: companion '{name}' can't follow its branch: {why}"
        raise BadInputError(message, field="benchmark.companions", value=name)

    def resolved(self, measured: M, commits: Mapping[str, CommitInfo]) -> M:
        """Return what is measured with these commits of its companions; see this module."""
        benchmark = measured.benchmark
        pinned = tuple(
            replace(
                companion,
                repository=self._urls[companion.name],
                revision=commits[companion.name].sha,
                follow="",
            )
            for companion in benchmark.companions
        )
        chosen = replace(self._with_rules(benchmark, commits), companions=pinned, when=())
        names = files_of(chosen, measured.files)
        return replace(
            measured,
            benchmark=chosen,
            files={name: measured.files[name] for name in names},
            hashes={name: measured.hashes[name] for name in names},
        )

    def with_urls(self, measured: M) -> M:
        """Return the same with each companion named by its URL: one name for each."""
        named = tuple(
            replace(companion, repository=self._urls[companion.name])
            for companion in measured.benchmark.companions
        )
        return replace(measured, benchmark=replace(measured.benchmark, companions=named))

    def _with_rules(self, benchmark: Benchmark, commits: Mapping[str, CommitInfo]) -> Benchmark:
        for rule, since in self._rules:
            name = self._name_in(rule)
            if not self._holds(name, since, commits[name]):
                continue
            given = {
                "command": rule.command,
                "files": rule.files,
                "requirements": rule.requirements,
            }
            changed = {key: value for key, value in given.items() if value is not None}
            benchmark = replace(benchmark, **changed)  # type: ignore[arg-type]
        return benchmark

    def _holds(self, name: str, since: datetime | str, commit: CommitInfo) -> bool:
        if isinstance(since, datetime):
            return commit.committed_at >= since
        key = (since, commit.sha)
        if key not in self._known:
            self._known[key] = self._mirrors[name].contains(commit.sha, since)
        return self._known[key]


def resolve_at(
    services: Services,
    measured: M,
    moment: datetime | None,
    *,
    allow_local: bool,
    progress: Progress | None = None,
) -> M:
    """Return what is measured with its companions as of one moment; without any, as it is.

    Args:
        moment: for companions that move; None: not known.

    Raises: as `Companions`, and its ``commits_at``.
    """
    if not measured.benchmark.companions:
        return measured
    companions = Companions(
        services, measured.benchmark, allow_local=allow_local, progress=progress
    )
    return companions.resolved(measured, companions.commits_at(moment))
