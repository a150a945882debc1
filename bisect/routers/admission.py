"""What may be submitted by API and form. The command line may do more: it acts for its own user."""

from __future__ import annotations

from collections.abc import Callable

from packaging.utils import canonicalize_name
from sqlalchemy.exc import IntegrityError

from perfbisect.errors import BadInputError, NotFoundError
from perfbisect.git.source import parse_source
from perfbisect.request_models import BisectionRequest, ExperimentRequest
from perfbisect.routers.access import check_quota, record
from perfbisect.services import Services, known_repository
from perfbisect.store.access import Caller, own_key
from perfbisect.store.catalogue import find_repository
from perfbisect.submission import submit


def admit(
    services: Services,
    request: BisectionRequest,
    *,
    caller: Caller,
    origin: str,
    idempotency_key: str | None,
    action: str = "bisection.submit",
) -> str:
    """Check and submit a request; return the bisection's id, an older one's if the key is known.

    Raises:
        BadInputError: the request names something that may not be submitted this way.
        ConflictError: the idempotency key was used for another request.
        LimitedError: the caller has too much under way.
    """
    key = own_key(caller, idempotency_key)
    check_quota(services, caller, key)
    check_request(services, request)
    bisection_id = submitted_once(
        lambda: (
            submit(
                services,
                request,
                requested_by=caller.name,
                origin=origin,
                idempotency_key=key,
                base_dir=services.settings.project_dir,
            ).id
        ),
        key,
    )
    record(services, caller, action, bisection_id, origin=origin)
    return bisection_id


def check_request(services: Services, request: BisectionRequest | ExperimentRequest) -> None:
    """Refuse what may not be submitted this way, and see to it that its repository is here.

    Raises:
        BadInputError: naming the field and what would be right.
        TransientError: the repository is being mirrored, or can't be read now.
    """
    check_text(request.model_dump(mode="json"))
    check_names(services, request)
    if request.repository is not None:
        settings = services.settings
        known = known_repository(services, request.repository)
        named = known.url if known is not None else request.repository
        url = parse_source(named, allow_local=True).url
        services.mirrors.require(
            url, settings.mirrors_dir, wait=settings.mirror_wait, fetching=settings.fetching
        )


def submitted_once(submitted: Callable[[], str], idempotency_key: str | None) -> str:
    """Submit and return the id; of two submissions with one key at once, the first one's.

    Raises:
        BadInputError: what the body names can't be right or does not exist.
    """
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


def check_names(services: Services, request: BisectionRequest | ExperimentRequest) -> None:
    """Refuse unknown repositories and, unless settings allow them, inline definitions.

    Raises:
        BadInputError: naming the field and what would be right.
    """
    settings = services.settings
    if isinstance(request, BisectionRequest):
        _check_package(services, request)
    _check_patches(services, request)
    known = request.repository is None
    if request.repository is not None:
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
        elif value is not None and ("/" in value or ".toml" in value):
            raise BadInputError(
                f"{field} {value!r} must be a name, not a file of the server",
                field=field,
                value=value,
            )


def _check_patches(services: Services, request: BisectionRequest | ExperimentRequest) -> None:
    """Refuse patches where inline definitions are off: they are code of the requester's own."""
    if services.settings.allow_inline:
        return
    patched = ["carry"] if request.carry else []
    if isinstance(request, ExperimentRequest):
        patched += [f"arms.{k}.patch" for k, arm in enumerate(request.arms) if arm.patch]
        if request.against is not None and request.against.patch:
            patched.append("against.patch")
    if patched:
        raise BadInputError(
            f"{patched[0]}: patches are code that is not the repository's, and are off "
            "(PERFBISECT_ALLOW_INLINE); name commits of the repository instead (pick, carry_pick)",
            field=patched[0],
        )


def _check_package(services: Services, request: BisectionRequest) -> None:
    """Refuse packages that settings do not name: their wheels would run on this machine."""
    if request.package is None:
        return
    allowed = {canonicalize_name(name) for name in services.settings.allowed_packages}
    if canonicalize_name(request.package) not in allowed:
        raise BadInputError(
            f"package {request.package!r} may not be run here: have it added to "
            "PERFBISECT_ALLOWED_PACKAGES",
            field="package",
            value=request.package,
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
