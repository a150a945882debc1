"""What alerts may submit: the same as the API, in the name of the alerts."""

from __future__ import annotations

from perfbisect.experiments import submit_experiment
from perfbisect.request_models import BisectionRequest, ExperimentRequest
from perfbisect.routers.admission import check_request, submitted_once
from perfbisect.services import Services
from perfbisect.submission import submit

#: Who asks, and how ``origin`` of such bisections reads.
REQUESTER, ORIGIN = "alerts", "alert"


class AlertSubmitter:
    """Implements ``alerting.starting.Submitter``: known repositories and names only."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def bisection(self, request: BisectionRequest, key: str, priority: int) -> str:
        """Check and submit a bisection; return its id."""
        check_request(self._services, request)
        return submitted_once(
            lambda: (
                submit(
                    self._services,
                    request,
                    requested_by=REQUESTER,
                    origin=ORIGIN,
                    idempotency_key=key,
                    base_dir=self._services.settings.project_dir,
                    priority=priority,
                ).id
            ),
            key,
        )

    def experiment(self, request: ExperimentRequest, key: str, priority: int) -> str:
        """Check and submit an experiment; return its id."""
        check_request(self._services, request)
        return submitted_once(
            lambda: (
                submit_experiment(
                    self._services,
                    request,
                    requested_by=REQUESTER,
                    origin=ORIGIN,
                    idempotency_key=key,
                    base_dir=self._services.settings.project_dir,
                    priority=priority,
                ).id
            ),
            key,
        )
