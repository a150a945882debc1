"""Who may do what: scopes, and the rules that follow from them. Pure values."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class Scope(StrEnum):
    """What a token may do. Each one includes those before it."""

    #: See everything that is stored.
    READ = "read"
    #: Submit and cancel, which runs code on the machines of the service.
    SUBMIT = "submit"
    #: See and revoke tokens, see who did what.
    ADMIN = "admin"


#: Scope -> everything it allows.
INCLUDES: dict[Scope, frozenset[Scope]] = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.SUBMIT: frozenset({Scope.READ, Scope.SUBMIT}),
    Scope.ADMIN: frozenset(Scope),
}


class Anonymous(StrEnum):
    """What somebody without a token may do."""

    #: Submit where only this machine can reach the service, nothing elsewhere.
    AUTO = "auto"
    NONE = "none"
    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"


def allowed(scopes: Collection[Scope]) -> frozenset[Scope]:
    """Return everything that these scopes allow."""
    return frozenset(each for scope in scopes for each in INCLUDES[scope])


def anonymous_scopes(rule: Anonymous, *, only_this_machine: bool) -> frozenset[Scope]:
    """Return what somebody without a token may do.

    Args:
        only_this_machine: nobody else can reach the service.
    """
    if rule is Anonymous.AUTO:
        return INCLUDES[Scope.SUBMIT] if only_this_machine else frozenset()
    return frozenset() if rule is Anonymous.NONE else INCLUDES[Scope(rule.value)]
