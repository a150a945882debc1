"""The service: REST under ``/api/v1``, pages beside it, and the conductor in the background."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from http import HTTPStatus
from importlib.metadata import version

from anyio import to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException

from perfbisect.alerting.desk import Desk
from perfbisect.conductor import Conductor
from perfbisect.errors import PerfbisectError
from perfbisect.nightly.schedule import NightlyClock
from perfbisect.problems import (
    documented,
    error_problem,
    problem_response,
    unexpected_problem,
    validation_problem,
)
from perfbisect.routers import (
    alerts,
    answers,
    bisections,
    catalogue,
    estimates,
    events,
    evidence,
    experiments,
    health,
    logs,
    nightly,
    run_artifacts,
    tokens,
)
from perfbisect.routers.access import Gate, admit_caller
from perfbisect.routers.alert_submission import AlertSubmitter
from perfbisect.routers.compression import Compression
from perfbisect.routers.deps import PREFIX
from perfbisect.routers.finite import JSONResponse
from perfbisect.routers.health import StoreCollector
from perfbisect.routers.kept import KeptTexts
from perfbisect.routers.telemetry import Telemetry
from perfbisect.security import Guard, allowed_hosts
from perfbisect.services import Services
from perfbisect.sessions import open_sessions
from perfbisect.settings import Settings
from perfbisect.web import mount_pages
from perfbisect.web.access_pages import to_login
from perfbisect.web.errors import error_page, is_page

_ABOUT = (
    "Given a good and a bad revision, find every commit that changed a benchmark's value, prove "
    "each one, and keep all the evidence."
)


def create_app(
    settings: Settings,
    *,
    conductor: bool = True,
    make: Callable[[Services], Conductor] | None = None,
) -> FastAPI:
    """Return the service.

    Args:
        conductor: conduct bisections in this process; False: only show and accept them.
        make: makes the conductor; None: the one of this machine (``wiring.make_conductor``).
    """
    app = FastAPI(
        title="perfbisect",
        version=version("perfbisect"),
        description=_ABOUT,
        openapi_url=f"{PREFIX}/openapi.json",
        # The interactive pages load scripts from elsewhere, which the pages' policy forbids.
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan(settings, (make or _of_this_machine) if conductor else None),
        dependencies=[Depends(admit_caller)],
        default_response_class=JSONResponse,
    )
    app.state.gate = Gate.of(settings)
    app.state.metrics = CollectorRegistry()
    app.state.kept = KeptTexts()
    app.state.conductor = app.state.desk = app.state.nightly = None
    modules = (
        alerts,
        answers,
        bisections,
        experiments,
        estimates,
        evidence,
        events,
        logs,
        run_artifacts,
        catalogue,
        nightly,
        tokens,
    )
    for module in modules:
        app.include_router(module.router, prefix=PREFIX, responses=documented(401, 403, 429))
    app.include_router(health.router)
    mount_pages(app)
    _handle_errors(app)
    app.add_middleware(Compression, minimum_size=1024, compresslevel=5)
    app.add_middleware(Telemetry, registry=app.state.metrics)
    app.add_middleware(
        Guard,
        hosts=allowed_hosts(settings.bind, settings.allowed_hosts),
        max_body_bytes=settings.max_body_bytes,
        on_error=_unexpected,
    )
    return app


def _lifespan(
    settings: Settings, make: Callable[[Services], Conductor] | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services = await to_thread.run_sync(Services.open, settings)
        collector = StoreCollector(services)
        app.state.services = services
        app.state.sessions = open_sessions(settings)
        app.state.metrics.register(collector)
        try:
            if make is not None:
                app.state.conductor = await to_thread.run_sync(make, services)
                app.state.conductor.start()
                app.state.desk = await to_thread.run_sync(Desk, services, AlertSubmitter(services))
                app.state.desk.start()
                app.state.nightly = await to_thread.run_sync(NightlyClock, services)
                await to_thread.run_sync(app.state.nightly.start)
            with _housekeeping(services) if make is not None else nullcontext():
                yield
        finally:
            if app.state.nightly is not None:
                await to_thread.run_sync(app.state.nightly.stop)
            if app.state.desk is not None:
                await to_thread.run_sync(app.state.desk.stop)
            if app.state.conductor is not None:
                await to_thread.run_sync(app.state.conductor.stop)
            app.state.metrics.unregister(collector)
            services.close()

    return lifespan


def _housekeeping(services: Services) -> AbstractContextManager[None]:
    # Here for the same reason: it knows Docker.
    from perfbisect.collecting import collecting

    return collecting(services)


def _of_this_machine(services: Services) -> Conductor:
    # Here, because a service that only shows and accepts needs no builder and no runner.
    from perfbisect.wiring import make_conductor

    return make_conductor(services)


def _handle_errors(app: FastAPI) -> None:
    """Turn every error into a problem, or into a page where a page was asked for."""

    @app.exception_handler(PerfbisectError)
    def on_purpose(request: Request, error: PerfbisectError) -> Response:
        return _shown(request, error_problem(error), error.message)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        problem = validation_problem(error)
        return _shown(request, problem, "The address holds something that can't be right.")

    @app.exception_handler(HTTPException)
    def http_error(request: Request, error: HTTPException) -> Response:
        problem = problem_response(error.status_code, str(error.detail), headers=error.headers)
        return _shown(request, problem, str(error.detail))


def _unexpected(request: Request) -> Response:
    request_id = request.state.request_id
    detail = f"A mistake of ours. The log has it under request {request_id}."
    return _shown(request, unexpected_problem(request_id), detail)


def _shown(request: Request, problem: Response, detail: str) -> Response:
    """Return the problem, or a page that says the same, or the way to the login."""
    if not is_page(request):
        return problem
    if problem.status_code == HTTPStatus.UNAUTHORIZED and request.url.path != "/login":
        return to_login(request)
    return error_page(request, problem.status_code, detail)
