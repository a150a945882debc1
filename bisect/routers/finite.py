"""Answers in JSON, which has no infinity: old rows may hold one, and are shown all the same."""

from __future__ import annotations

from typing import Any

from fastapi import responses

from perfbisect.reports.formats import finite


class JSONResponse(responses.JSONResponse):
    """An answer in which numbers that JSON does not have are null."""

    def render(self, content: Any) -> bytes:
        """Return the bytes of the answer."""
        try:
            return super().render(content)
        except ValueError:
            return super().render(finite(content))
