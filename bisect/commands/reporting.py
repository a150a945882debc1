"""``perfbisect report``: what a bisection or an experiment found, as a document."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy.orm import Session

from perfbisect.commands import options
from perfbisect.commands.remote import DEFAULT_SERVER, TokenFile, make_client
from perfbisect.commands.search import open_services
from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.reports.formats import render_dossier
from perfbisect.routers import dossiers


class ReportFormat(StrEnum):
    """What a report is written as."""

    MD = "md"
    HTML = "html"
    JSON = "json"
    CSV = "csv"


def report(
    job_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of a bisection or an experiment.")
    ],
    wanted: Annotated[
        ReportFormat,
        typer.Option("--format", help="Markdown for a pull request, a page, JSON, or CSV."),
    ] = ReportFormat.MD,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; else standard output.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            envvar="PERFBISECT_SERVER",
            help="URL of the server to ask; else the local database is read.",
        ),
    ] = None,
    token_file: TokenFile = None,
    data_dir: options.DataDir = None,
    database_url: options.DatabaseUrl = None,
    as_json: options.AsJson = False,
) -> None:
    """Write what was found as a document, with how to see it again.

    Works on the local database, or with --server against a service.
    """
    if as_json:
        wanted = ReportFormat.JSON
    local = data_dir is not None or database_url is not None
    if (server or token_file) and not local:
        with make_client(server or DEFAULT_SERVER, token_file) as client:
            text = client.report(job_id, wanted.value)
    else:
        settings = options.make_settings(data_dir=data_dir, database_url=database_url)
        with open_services(settings) as services, services.database.read() as session:
            text = render_dossier(dossier_of(session, job_id), wanted.value)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(
            f"--output: {output} can't be written: {error.strerror}",
            field="output",
            value=str(output),
        ) from error
    options.say(f"Report in {output}")


def dossier_of(session: Session, job_id: str) -> dict[str, Any]:
    """Return what the report of a bisection or an experiment tells.

    Raises:
        NotFoundError: there is neither with this id.
    """
    try:
        return dossiers.bisection_dossier(session, job_id)
    except NotFoundError:
        pass
    try:
        return dossiers.experiment_dossier(session, job_id)
    except NotFoundError:
        raise NotFoundError(
            f"neither a bisection nor an experiment has the id {job_id!r}; 'perfbisect status' "
            "lists those of a server",
            field="id",
            value=job_id,
        ) from None
