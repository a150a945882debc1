"""The client of a package index: project pages and files, over one session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import requests
from packaging.utils import InvalidName, canonicalize_name
from pypi_simple import (
    NoSuchProjectError,
    ProjectPage,
    PyPISimple,
    UnsupportedRepoVersionError,
)
from requests.auth import AuthBase, HTTPBasicAuth
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_exponential

from perfbisect.errors import BadInputError, NotFoundError, TransientError, did_you_mean
from perfbisect.git.values import one_line
from perfbisect.ports import CancelledWork, CancelToken
from perfbisect.publishing.access import IndexAccess

#: Seconds to connect, and between two pieces of an answer.
TIMEOUT = (15.0, 30.0)
#: Tries of one request, or of one download without progress.
TRIES = 4
#: Seconds before the second try; twice as many before each further one.
FIRST_WAIT = 0.5
#: Letters of a foreign error message that are shown.
_SHOWN = 300

#: Statuses that may pass.
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})

#: Projects that people bisect, for suggestions: to ask an index for its list of all is bad manners.
WELL_KNOWN = (
    "jax",
    "jaxlib",
    "keras",
    "keras-nightly",
    "numpy",
    "onnxruntime",
    "pandas",
    "scikit-learn",
    "scipy",
    "tensorflow",
    "tensorflow-cpu",
    "tf-nightly",
    "tf-nightly-cpu",
    "torch",
    "torchvision",
    "transformers",
)


class PackageIndex:
    """One package index; a context manager. Not for several threads at once."""

    def __init__(self, access: IndexAccess, *, first_wait: float = FIRST_WAIT) -> None:
        """Open a session; nothing is sent yet."""
        self._access = access
        self._first_wait = first_wait
        self.session = requests.Session()
        self.session.headers["User-Agent"] = f"perfbisect/{version('perfbisect')}"
        if access.ca_bundle:
            self.session.verify = access.ca_bundle
        if access.username:
            self.session.auth = _OwnHostAuth(access)
        self._client = PyPISimple(access.url, session=self.session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.session.close()

    @property
    def url(self) -> str:
        """Root of the simple API, without credentials."""
        return self._access.url

    def project(self, package: str, cancel: CancelToken | None = None) -> ProjectPage:
        """Return the page of a project: JSON (PEP 691) where the index has it, else HTML (PEP 503).

        Raises:
            BadInputError: no name of a project, or the index is none.
            NotFoundError: the index has no such project.
            TransientError: the index can't be reached.
            CancelledWork: the token asked for the end.
        """
        try:
            name = canonicalize_name(package, validate=True)
        except InvalidName:
            raise BadInputError(
                f"package: '{package}' is no name of a project", field="package", value=package
            ) from None
        for attempt in self.retrying(cancel):
            with attempt:
                return self._project(name)
        raise AssertionError  # the last attempt raises

    def _project(self, name: str) -> ProjectPage:
        with translated(self.url):
            try:
                return self._client.get_project_page(name, timeout=TIMEOUT)
            except NoSuchProjectError:
                raise NotFoundError(
                    f"the package index {self.url} has no project '{name}'"
                    f"{did_you_mean(name, WELL_KNOWN)}",
                    field="package",
                    value=name,
                ) from None
            except (UnsupportedRepoVersionError, ValueError) as error:
                # Other content, no JSON, or JSON of another form; but URLs are wrong in other ways.
                of_transport = isinstance(error, requests.RequestException)
                if of_transport and not isinstance(error, requests.JSONDecodeError):
                    raise
                raise BadInputError(
                    f"{self.url} does not answer as a package index does: "
                    f"{one_line(str(error))[:_SHOWN]}",
                    field="index",
                    value=self.url,
                ) from error

    @contextmanager
    def opened(self, url: str, offset: int = 0) -> Iterator[requests.Response]:
        """Ask for a file from ``offset`` on; a server may begin at its start all the same (200).

        Raises:
            BadInputError: the file is not there, or not for us.
            TransientError: it can't be had now.
        """
        # The bytes as they are: a compressed answer could not be continued in the middle.
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        with translated(url):
            answer = self.session.get(url, headers=headers, stream=True, timeout=TIMEOUT)
        with answer:
            if answer.status_code != 416:
                with translated(url):
                    answer.raise_for_status()
            yield answer

    def retrying(self, cancel: CancelToken | None = None, tries: int = TRIES) -> Retrying:
        """Return attempts that go on after transient errors, with growing pauses.

        Raises:
            CancelledWork: while pausing.
        """

        def pause(seconds: float) -> None:
            if (cancel or CancelToken()).wait(seconds):
                raise CancelledWork

        return Retrying(
            sleep=pause,
            stop=stop_after_attempt(tries),
            wait=wait_exponential(multiplier=self._first_wait, max=30),
            retry=retry_if_exception_type(TransientError),
            before=lambda state: _check(cancel, state),
            reraise=True,
        )


def _check(cancel: CancelToken | None, state: RetryCallState) -> None:
    if cancel is not None and cancel.cancelled:
        raise CancelledWork


class _OwnHostAuth(AuthBase):
    """Sends the index's credentials to the index's host, and to nobody else."""

    def __init__(self, access: IndexAccess) -> None:
        self._access = access
        self._basic = HTTPBasicAuth(access.username, access.password)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._access.is_same_host(request.url or ""):
            self._basic(request)
        return request


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn the HTTP library's errors into ours.

    Raises:
        BadInputError: repeating the request would not help.
        TransientError: it may.
    """
    host = urlsplit(url).netloc.rpartition("@")[2]
    try:
        yield
    except requests.exceptions.SSLError as error:
        if "CERTIFICATE_VERIFY_FAILED" not in str(error):
            raise TransientError(f"the connection to {host} broke: {error}") from error
        raise BadInputError(
            f"the certificate of {host} is not trusted; name the file of your CA in SSL_CERT_FILE",
            field="index",
            value=host,
        ) from error
    except requests.HTTPError as error:
        raise _refused(error, url) from error
    except (requests.exceptions.InvalidSchema, requests.exceptions.InvalidURL) as error:
        raise BadInputError(
            f"'{url}' is no URL of http or https", field="url", value=url
        ) from error
    except requests.exceptions.ChunkedEncodingError as error:
        raise TransientError(f"the connection to {host} broke: {error}") from error
    except requests.RequestException as error:
        why = type(error).__name__
        raise TransientError(f"the package index at {host} can't be reached: {why}") from error


def _refused(error: requests.HTTPError, url: str) -> Exception:
    """Return what an HTTP status means."""
    status = error.response.status_code if error.response is not None else 0
    if status in _TRANSIENT or status >= 500:
        return TransientError(f"{url} answers with status {status}", field="url", value=url)
    if status in (401, 403):
        what = "credentials are missing or wrong (put them into the index's URL, or into netrc)"
        return BadInputError(f"{url} answers {status}: {what}", field="index", value=url)
    return NotFoundError(f"{url} answers with status {status}", field="url", value=url)
