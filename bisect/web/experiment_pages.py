"""Experiments: arms measured against a reference, and what they prove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from perfbisect.core.states import BisectionState
from perfbisect.reports.experiment_document import KINDS, reference_mean
from perfbisect.reports.experiment_words import only_built_words, pick_set_lines
from perfbisect.reports.reproduction import definitions_text, experiment_command
from perfbisect.routers import dossiers
from perfbisect.routers.access import Asking
from perfbisect.routers.deps import After, NumberAfter, Opened
from perfbisect.routers.events import LastEventId, changes_of, resume_from
from perfbisect.routers.experiments import ExperimentId, end_experiment
from perfbisect.security import CSRF_FIELD, new_csrf_token
from perfbisect.store import experiment_queries, job_queries, queries
from perfbisect.store.jobs import experiment
from perfbisect.store.tables import DecisionRow, RunRow
from perfbisect.web.form_page import CsrfCookie, require_csrf, set_csrf_cookie
from perfbisect.web.list_pages import (
    ROWS,
    chosen_filters,
    filter_choices,
    filter_of,
    next_link,
)
from perfbisect.web.templating import render

router = APIRouter(prefix="/experiments")

#: Conflicting files named in the table of arms; all of them are below it.
_FILES = 5
#: Runs of an arm whose logs are linked from its row, the last ones.
_LOGS = 6

_TONES = {"answered": "good", "failed": "bad", None: "busy"}


@dataclass(frozen=True, slots=True)
class ExperimentView:
    """The page of an experiment."""

    answer: Mapping[str, Any]
    tone: str
    decisions: list[DecisionRow]
    runs: list[RunRow]
    cancellable: bool
    #: Lowest and highest relative change on the drawing; zero is always inside.
    span: tuple[float, float]
    #: What to type to measure the same; empty where that can't be said.
    command: str
    #: Recipe and benchmark as ``perfbisect.toml``.
    definitions: str
    last_event_id: int

    @property
    def kind(self) -> str:
        """What it is for, in words."""
        kind = str(self.answer["kind"])
        return KINDS.get(kind, kind)

    @property
    def references(self) -> int:
        """How many arms are references only."""
        return sum(arm["against"] is None for arm in self.answer["arms"])

    def mean(self, arm: Mapping[str, Any]) -> float | None:
        """Return an arm's mean; a reference's is told by the arms compared with it."""
        if arm["against"] is None:
            return reference_mean(arm, self.answer["arms"])
        mean = arm.get("mean")
        return None if mean is None else float(mean)

    @property
    def pick_sets(self) -> list[str]:
        """What became of picks that applied but did not build at once."""
        return pick_set_lines(self.answer)

    def remark(self, arm: Mapping[str, Any]) -> str:
        """Return why an arm could not be measured; empty if it was, or will be."""
        if arm.get("only_built"):
            return only_built_words(arm)
        problem = arm.get("problem") or {}
        if problem.get("kind") == "empty":
            return f"changes nothing: {problem.get('why', '')}"
        if problem:
            files = [str(file.get("path")) for file in problem.get("files") or ()]
            named = ", ".join(files[:_FILES]) + (" …" if len(files) > _FILES else "")
            return f"conflicts in {named}" if files else str(problem.get("kind", "problem"))
        return str(arm.get("failure") or "")

    def logs(self, arm: Mapping[str, Any]) -> list[RunRow]:
        """Return the last runs of an arm."""
        return [run for run in self.runs if run.position == arm["position"]][-_LOGS:]

    def along(self, change: float) -> float:
        """Return where a relative change stands on a bar of 160 units."""
        low, high = self.span
        return round(6 + 148 * (change - low) / (high - low), 1)


def _view(services: Opened, experiment_id: str) -> ExperimentView:
    queries.known_id(experiment_id, "experiment", "experiment_id")
    with services.database.read() as session:
        # Before the rest: what comes in between is followed, rather than missed.
        last_event_id = job_queries.last_event_id(session, experiment(experiment_id))
        row = experiment_queries.get_experiment(session, experiment_id)
        dossier = dossiers.experiment_dossier(session, experiment_id)
        answer = dossier["answer"]
        decisions = experiment_queries.decisions_of(session, experiment_id)
        runs = experiment_queries.runs_of(session, experiment_id)
    intervals = [arm.get("ci95") or () for arm in answer["arms"] if arm["against"] is not None]
    ends = [end for interval in intervals for end in interval if end is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    unfinished = row.state is not BisectionState.FINISHED
    return ExperimentView(
        answer=answer,
        tone=_TONES.get(answer["outcome"], "unsure"),
        decisions=decisions,
        runs=runs,
        cancellable=unfinished and row.cancel_requested_at is None,
        span=(low, high) if high > low else (-0.01, 0.01),
        command=experiment_command(dossier, answer),
        definitions=definitions_text(dossier),
        last_event_id=last_event_id,
    )


@router.get("", response_class=HTMLResponse)
def list_experiments(request: Request, services: Opened, after: After = None) -> HTMLResponse:
    """Show experiments, newest first."""
    filters = chosen_filters(request)
    with services.database.read() as session:
        rows, more = job_queries.list_experiments(
            session, filter_of(filters), before=after or None, limit=ROWS
        )
        items = [(row, experiment_queries.answer_of(session, row)) for row in rows]
        choices = filter_choices(session)
    context = {
        "kinds": KINDS,
        "items": items,
        "filters": filters,
        "filtered": any(filters.values()) or bool(after),
        **choices,
        "next": next_link("/experiments", filters, items[-1][0].id if more else None),
        "alive": any(row.state is not BisectionState.FINISHED for row in rows),
    }
    return render(request, "experiments.html", context)


@router.get("/{experiment_id}", response_class=HTMLResponse)
def show_experiment(
    request: Request, services: Opened, experiment_id: ExperimentId, csrf: CsrfCookie = None
) -> HTMLResponse:
    """Show an experiment."""
    view = _view(services, experiment_id)
    token = csrf or new_csrf_token()
    context = {"view": view, "csrf_field": CSRF_FIELD, "csrf_token": token}
    response = render(request, "experiment.html", context)
    if view.cancellable:
        set_csrf_cookie(response, request, token)
    return response


@router.get("/{experiment_id}/changes")
async def follow_changes(
    services: Opened,
    caller: Asking,
    experiment_id: ExperimentId,
    after: NumberAfter = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Say when the page is out of date: ``changed``, and once ``finished``."""
    job = experiment(queries.known_id(experiment_id, "experiment", "experiment_id"))
    return await changes_of(services, caller, job, resume_from(last_event_id, after))


@router.post("/{experiment_id}/cancel")
def cancel(
    services: Opened,
    caller: Asking,
    experiment_id: ExperimentId,
    csrf: CsrfCookie = None,
    csrf_token: Annotated[str, Form(alias=CSRF_FIELD, max_length=200)] = "",
) -> RedirectResponse:
    """Ask for the end of an experiment, and show it again."""
    require_csrf(csrf, csrf_token)
    end_experiment(services, caller, experiment_id)
    return RedirectResponse(f"/experiments/{experiment_id}", status_code=HTTPStatus.SEE_OTHER)
