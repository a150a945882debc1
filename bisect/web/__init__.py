"""Pages: server-rendered, useful without JavaScript, live where there is some."""

from __future__ import annotations

from fastapi import FastAPI

from perfbisect.web import (
    access_pages,
    alert_pages,
    bisection_page,
    experiment_pages,
    form_page,
    list_pages,
    log_pages,
    relatives_page,
    series_pages,
)
from perfbisect.web.templating import STATIC_DIR, CachedStaticFiles


def mount_pages(app: FastAPI) -> None:
    """Add the pages and their static files to an application."""
    modules = (
        list_pages,
        form_page,
        bisection_page,
        relatives_page,
        series_pages,
        experiment_pages,
        log_pages,
        access_pages,
        alert_pages,
    )
    for module in modules:
        app.include_router(module.router, include_in_schema=False)
    app.mount("/static", CachedStaticFiles(directory=STATIC_DIR), name="static")
