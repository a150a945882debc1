"""The files that runs left: their list, and each of them as a download."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse

from perfbisect.problems import documented
from perfbisect.routers import models
from perfbisect.routers.deps import Opened
from perfbisect.routers.logs import WorkId
from perfbisect.store import queries
from perfbisect.store.run_artifacts import artifacts_of, get_artifact

router = APIRouter(prefix="/runs/{run_id}/artifacts", tags=["logs"])

Number = Annotated[int, PathParameter(ge=0, lt=2**31, description="As in the list.")]

_FILE: dict[int | str, dict[str, object]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}
}


@router.get(
    "",
    operation_id="listRunArtifacts",
    response_model=list[models.RunArtifact],
    responses=documented(404, 422),
)
def list_run_artifacts(services: Opened, run_id: WorkId) -> list[models.RunArtifact]:
    """Return the files that a run left and its benchmark asks to keep."""
    with services.database.read() as session:
        queries.get_run(session, run_id)
        rows = artifacts_of(session, run_id)
    return [models.RunArtifact.model_validate(row) for row in rows]


@router.get(
    "/{position}",
    operation_id="readRunArtifact",
    response_class=FileResponse,
    responses={**_FILE, **documented(404, 422)},
)
def read_run_artifact(services: Opened, run_id: WorkId, position: Number) -> FileResponse:
    """Return one file of a run. It is sent as a download: what a benchmark wrote is never shown."""
    with services.database.read() as session:
        row = get_artifact(session, run_id, position)
    path = services.artifacts.fetch(row.artifact)
    name = PurePosixPath(row.name).name
    headers = {"X-Content-Type-Options": "nosniff"}
    return FileResponse(path, media_type="application/octet-stream", filename=name, headers=headers)
