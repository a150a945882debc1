"""What a series is: from ``[series.NAME]`` of ``perfbisect.toml``, or from its first points."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from apscheduler.triggers.cron import CronTrigger
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from sqlalchemy import select
from sqlalchemy.orm import Session

from perfbisect.config import PROJECT_FILE, load_benchmark
from perfbisect.config_values import NAME
from perfbisect.core.series import SeriesSettings
from perfbisect.core.series_bound import FEWEST, MOST
from perfbisect.core.states import Better
from perfbisect.definitions import remember_repository
from perfbisect.errors import BadInputError, NotFoundError, did_you_mean
from perfbisect.git.source import parse_source
from perfbisect.services import Services, known_repository
from perfbisect.store.database import new_id, now
from perfbisect.store.series_tables import SeriesRow
from perfbisect.toml_files import read_toml
from perfbisect.units import parse_percent

#: Runs of a night that is measured here, unless told otherwise.
RUNS = 5
#: Who defined a series.
BY_FILE = "perfbisect.toml"
BY_POINTS = "points"

Short = Annotated[str, Field(max_length=200)]


class SeriesDefinition(BaseModel):
    """A series as written in ``perfbisect.toml`` or sent with its first points."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: Short = Field(
        default="", description="Name of a known benchmark; empty: there is nothing to bisect with."
    )
    unit: Annotated[str, Field(max_length=64)] = Field(
        default="", description="Unit of the values; empty: the benchmark's."
    )
    better: Better | None = Field(
        default=None, description="Direction; null: the benchmark's, else 'higher'."
    )
    repository: Annotated[str, Field(max_length=2000)] | None = Field(
        default=None, description="Name or URL of the repository that the nights are built from."
    )
    branch: Short = Field(
        default="HEAD", description="Branch whose head `perfbisect nightly run` measures."
    )
    package: Short | None = Field(
        default=None, description="Package of the index whose newest wheel is measured instead."
    )
    recipe: Short | None = Field(default=None, description="Name of the recipe that builds it.")
    pool: Short = Field(default="", description="Pool of like machines that measures it.")
    schedule: Annotated[str, Field(max_length=100)] = Field(
        default="",
        description="Cron expression (UTC) by which the server measures nights; empty: never.",
        examples=["30 4 * * *"],
    )
    runs: int = Field(default=RUNS, ge=1, le=100, description="Runs of a night measured here.")
    min_effect: str | float = Field(
        default="2%", description="Smallest relative change worth naming."
    )
    false_alarms: float = Field(
        default=1.0, ge=FEWEST, le=MOST, description="False suspicions accepted in a year."
    )
    confirm_nights: int = Field(
        default=2,
        ge=0,
        le=14,
        description="Further nights that must show a change that can't be measured again here.",
    )
    policy: dict[str, Any] = Field(
        default_factory=dict, description="What its alerts do (see docs/alerts.md)."
    )

    @field_validator("schedule")
    @classmethod
    def _cron(cls, value: str) -> str:
        if value:
            trigger_of(value)
        return value


def trigger_of(schedule: str) -> CronTrigger:
    """Return the trigger of a cron expression, in UTC.

    Raises:
        ValueError: it is none.
    """
    try:
        return CronTrigger.from_crontab(schedule, timezone="UTC")
    except ValueError as error:
        raise ValueError(
            f"{schedule!r} is no cron expression of five fields, like '30 4 * * *'"
        ) from error


def settings_of(row: SeriesRow) -> SeriesSettings:
    """Return what makes a change of this series."""
    told = row.detection
    default = SeriesSettings()
    return SeriesSettings(
        better=row.better,
        min_effect=float(told.get("min_effect", default.min_effect)),
        false_alarms=float(told.get("false_alarms", default.false_alarms)),
        confirm_nights=int(told.get("confirm_nights", default.confirm_nights)),
    )


def runs_of(row: SeriesRow) -> int:
    """Return how many runs a night has that is measured here."""
    return int(row.detection.get("runs", RUNS))


def definition_from_dict(data: Mapping[str, Any], where: str) -> SeriesDefinition:
    """Return the definition that a table or JSON object describes, checked.

    Raises:
        BadInputError: an unknown key, a wrong type or a value that can't work.
    """
    try:
        definition = SeriesDefinition.model_validate_json(json.dumps(dict(data), default=str))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = sorted(SeriesDefinition.model_fields)
            near = did_you_mean(key, known) or f"; known: {', '.join(known)}"
            raise BadInputError(f"{where}: unknown key '{key}'{near}", field=key) from error
        message = f"{where}: {key} = {first['input']!r:.80}: {first['msg']}"
        raise BadInputError(message, field=key, value=first["input"]) from error
    parse_percent(definition.min_effect, f"{where}: min_effect")
    return definition


def read_project(directory: Path | None) -> dict[str, SeriesDefinition]:
    """Return the series of ``perfbisect.toml`` in a directory, by name; none where there is none.

    Raises:
        BadInputError: the file is no TOML, or a series can't be right; the message names the key.
    """
    file = (directory or Path.cwd()) / PROJECT_FILE
    try:
        document = read_toml(file)
    except FileNotFoundError:
        return {}
    tables = document.get("series", {})
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise BadInputError(f"{file}: series are tables: [series.NAME]", field="series")
    return {
        check_name(name, f"{file}: series"): definition_from_dict(table, f"{file}: series '{name}'")
        for name, table in tables.items()
    }


def check_name(name: str, where: str = "series") -> str:
    """Return a series' name if it can be one.

    Raises:
        BadInputError: it can't.
    """
    if not NAME.fullmatch(name):
        raise BadInputError(
            f"{where}: {name!r:.120} should be letters, digits, '.', '_' and '-', 100 at most",
            field="series",
            value=name,
        )
    return name


def sync_project(services: Services) -> list[str]:
    """Store the series of ``perfbisect.toml`` as they stand there now; return their names.

    Raises: as ``read_project``.
    """
    defined = read_project(services.settings.project_dir)
    columns = {name: _columns(services, each) for name, each in defined.items()}
    if not columns:
        return []
    with services.database.write() as session:
        for name, values in columns.items():
            _store(session, name, values, BY_FILE)
    return sorted(columns)


def define(services: Services, name: str, definition: SeriesDefinition) -> None:
    """Define a series by its points' sender, unless ``perfbisect.toml`` defines it.

    Raises:
        BadInputError: the name or what it names can't be right.
        NotFoundError: it names a benchmark that nobody knows.
    """
    values = _columns(services, definition)
    with services.database.write() as session:
        _store(session, check_name(name), values, BY_POINTS)


def _columns(services: Services, definition: SeriesDefinition) -> dict[str, Any]:
    unit, better = definition.unit, definition.better
    if definition.benchmark:
        benchmark = load_benchmark(definition.benchmark, services.settings.project_dir).benchmark
        unit, better = unit or benchmark.unit, better or benchmark.better
    return {
        "benchmark": definition.benchmark,
        "unit": unit,
        "better": better or Better.HIGHER,
        "repository": _canonical(services, definition.repository),
        "branch": definition.branch,
        "package": definition.package,
        "recipe": definition.recipe,
        "pool": definition.pool,
        "schedule": definition.schedule,
        "detection": {
            "min_effect": parse_percent(definition.min_effect, "min_effect"),
            "false_alarms": definition.false_alarms,
            "confirm_nights": definition.confirm_nights,
            "runs": definition.runs,
        },
        "policy": dict(definition.policy),
    }


def _canonical(services: Services, repository: str | None) -> str | None:
    """Return the URL by which a repository is known, or is going to be."""
    if repository is None:
        return None
    known = known_repository(services, repository)
    return known.url if known is not None else parse_source(repository, allow_local=True).url


def _store(session: Session, name: str, values: dict[str, Any], defined_by: str) -> None:
    if values["repository"] is not None and defined_by == BY_FILE:
        # Its alerts may be bisected by themselves: the operator named it.
        remember_repository(session, values["repository"])
    row = session.scalar(select(SeriesRow).where(SeriesRow.name == name))
    if row is None:
        made = {"id": new_id(), "name": name, "created_at": now(), "defined_by": defined_by}
        session.add(SeriesRow(**made, **values))
        return
    if row.defined_by == BY_FILE and defined_by != BY_FILE:
        return
    for key, value in values.items():
        if getattr(row, key) != value:
            setattr(row, key, value)
    row.defined_by = defined_by


def find_series(session: Session, name: str) -> SeriesRow:
    """Return a series by its name.

    Raises:
        NotFoundError: there is none.
    """
    row = session.scalar(select(SeriesRow).where(SeriesRow.name == name))
    if row is None:
        names = sorted(session.scalars(select(SeriesRow.name)))
        raise NotFoundError(
            f"no series '{name}'{did_you_mean(name, names)}; known: {', '.join(names) or 'none'}",
            field="series",
            value=name,
        )
    return row


def repository_name(url: str) -> str:
    """Return what points call the commits of a repository: the last part of its URL or path."""
    return url.rstrip("/").removesuffix("/.git").rsplit("/", 1)[-1].removesuffix(".git")
