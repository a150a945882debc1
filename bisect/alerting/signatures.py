"""Grafana's signature of what its contact point sends."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime

from perfbisect.errors import NotAuthorisedError

#: Header that holds the signature.
SIGNATURE_HEADER = "X-Grafana-Alerting-Signature"
#: Seconds that the time of signing may differ from ours.
WINDOW = 300


def sign(secret: str, body: bytes, timestamp: str) -> str:
    """Return the signature: HMAC-SHA256 of ``timestamp:body`` in hexadecimal digits."""
    return hmac.new(secret.encode(), timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()


def check(secret: str, body: bytes, signature: str, timestamp: str, moment: datetime) -> None:
    """Refuse a body that was not signed with this secret, or not lately.

    Args:
        timestamp: seconds since 1970, as they were sent.

    Raises:
        NotAuthorisedError: says what is wrong.
    """
    if not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > 15:
        raise NotAuthorisedError(
            "the signature has no time: set 'Timestamp header' in the contact point",
            field="timestamp",
        )
    if abs(moment.timestamp() - int(timestamp)) > WINDOW:
        raise NotAuthorisedError(
            f"the signature is older or newer than {WINDOW // 60} minutes: compare the clocks",
            field="timestamp",
        )
    expected = sign(secret, body, timestamp)
    if not hmac.compare_digest(expected.encode(), signature.strip().lower().encode()):
        raise NotAuthorisedError("the signature is not of this body and secret", field="signature")
