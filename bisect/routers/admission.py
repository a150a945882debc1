"""What may be submitted by API and form. The command line may do more: it acts for its own user."""

from __future__ import annotations

from sqlalchemy.exc import IntegrityError

from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.requests import BisectionRequest
from perfbisect.services import Services
from perfbisect.store.catalogue import find_repository
from perfbisect.submission import submit


def admit(
    services: Services,
    request: BisectionRequest,
    *,
    requested_by: str,
    origin: str,
    idempotency_key: str | None,
) -> str:
    """Check and submit a request; return the bisection's id, an older one's if the key is known.

    Raises:
        BadInputError: the request names something that may not be submitted this way.
        ConflictError: the idempotency key was used for another request.
    """
    check_text(request.model_dump(mode="json"))
    check_names(services, request)

    def submitted() -> str:
        return submit(
            services,
            request,
            requested_by=requested_by,
            origin=origin,
            idempotency_key=idempotency_key,
            base_dir=services.settings.project_dir,
        ).id

    try:
        return submitted()
    except NotFoundError as error:
        # What the body names does not exist; the resource that was posted to does.
        raise BadInputError(error.message, field=error.field, value=error.value) from error
    except IntegrityError:
        if idempotency_key is None:
            raise
        # The same key came twice at once: the other one was first, and is found now.
        return submitted()


def check_names(services: Services, request: BisectionRequest) -> None:
    """Refuse unknown repositories and, unless settings allow them, inline definitions.

    Raises:
        BadInputError: naming the field and what would be right.
    """
    settings = services.settings
    with services.database.read() as session:
        known = find_repository(session, request.repository) is not None
    if not known and request.repository not in settings.allowed_repositories:
        raise BadInputError(
            f"repository {request.repository!r} is not known here: name one of "
            "/api/v1/repositories, or have it added to PERFBISECT_ALLOWED_REPOSITORIES",
            field="repository",
            value=request.repository,
        )
    for field in ("recipe", "benchmark"):
        value = getattr(request, field)
        if isinstance(value, dict):
            if not settings.allow_inline:
                raise BadInputError(
                    f"{field} must be a name of /api/v1/{field}s: inline definitions run any "
                    "command and are off (PERFBISECT_ALLOW_INLINE)",
                    field=field,
                )
        elif "/" in value or ".toml" in value:
            raise BadInputError(
                f"{field} {value!r} must be a name, not a file of the server",
                field=field,
                value=value,
            )


def check_text(value: object, field: str = "") -> None:
    """Refuse text that neither git nor a database can hold: NUL and lone surrogates.

    Raises:
        BadInputError: naming the field.
    """
    if isinstance(value, str):
        if "\x00" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise BadInputError(
                f"{field} holds a character that is no text (NUL or a lone surrogate)", field=field
            )
    elif isinstance(value, dict):
        for key, item in value.items():
            check_text(str(key), field or str(key))
            check_text(item, f"{field}.{key}" if field else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            check_text(item, field)
