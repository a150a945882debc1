"""Cookies of those who logged in: signed, and good only as long as the token behind them is."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from itsdangerous import BadSignature, URLSafeTimedSerializer

from perfbisect.settings import Settings

SESSION_COOKIE = "perfbisect_session"


class Sessions:
    """Makes and reads the cookie. It names a token; what the token may do is read each time."""

    def __init__(self, secret: str, hours: float) -> None:
        self._signer = URLSafeTimedSerializer(secret, salt="perfbisect session")
        #: Seconds that a cookie is good for.
        self.seconds = int(hours * 3600)

    def cookie_of(self, token_id: str) -> str:
        """Return the cookie of somebody who logged in with this token just now."""
        return str(self._signer.dumps(token_id))

    def token_of(self, cookie: str | None) -> str | None:
        """Return the token's id; None if the cookie is none of ours, or too old."""
        if not cookie:
            return None
        try:
            return str(self._signer.loads(cookie, max_age=self.seconds))
        except BadSignature:
            return None


def open_sessions(settings: Settings) -> Sessions:
    """Return a service's sessions, by the secret of its settings or of its data directory."""
    given = settings.session_secret.get_secret_value()
    secret = given or _kept_secret(settings.data_dir / "session.key")
    return Sessions(secret, settings.session_hours)


def _kept_secret(path: Path) -> str:
    """Return the secret of a file that only its owner can read; make it first if need be."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    if not path.exists():
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
        # Whole or not at all; of two processes that start at once, the first one's counts.
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
        partial.unlink()
    return path.read_text(encoding="ascii")
