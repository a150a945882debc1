"""Prometheus and Alertmanager as Debian has them, watching a number and posting to the service."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.helpers.alerting import Scene, scene
from tests.helpers.serving import listening, shown_app
from tests.helpers.waiting import stopped

from perfbisect.core.access import Anonymous, Scope
from perfbisect.core.alert_states import AlertState
from perfbisect.store.access import NewToken, create_token
from perfbisect.store.alert_tables import AlertRow

_MISSING = [name for name in ("prometheus", "prometheus-alertmanager") if not shutil.which(name)]

pytestmark = pytest.mark.skipif(
    bool(_MISSING), reason=f"not installed here: {', '.join(_MISSING)} (scripts/prepare-machine)"
)

PROMETHEUS = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: benchmarks
    static_configs: [{{targets: ["127.0.0.1:{exporter}"]}}]
alerting:
  alertmanagers: [{{static_configs: [{{targets: ["127.0.0.1:{alertmanager}"]}}]}}]
"""
RULES = """
groups:
  - name: benchmarks
    rules:
      - alert: ThroughputDropped
        expr: last_over_time(throughput[5m]) < 8000
        labels: {{pool: default}}
        annotations:
          summary: throughput of {{{{ $labels.benchmark }}}} dropped
          repository: "{repository}"
          recipe: scripted
          good: "{good}"
          bad: "{bad}"
          before: "9000"
          after: "{{{{ $value }}}}"
"""
ALERTMANAGER = """
route: {{receiver: perfbisect, group_by: [alertname], group_wait: 0s, group_interval: 1s,
         repeat_interval: 1s}}
receivers:
  - name: perfbisect
    webhook_configs:
      - url: {url}/api/v1/alerts/alertmanager
        send_resolved: true
        http_config: {{authorization: {{credentials_file: token}}}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Exporter:
    """A benchmark's number, as Prometheus reads it."""

    def __init__(self) -> None:
        self.value = 6200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = f'throughput{{benchmark="strong"}} {outer.value}\n'
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def running(*commands: list[str], directory: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run programs in a directory; end them afterwards."""
    processes: list[subprocess.Popen[bytes]] = []
    with (directory / "programs.log").open("wb") as log:
        try:
            processes += [
                subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)
                for command in commands
            ]
            yield processes
        finally:
            for process in processes:
                stopped(process)


@contextmanager
def watched(
    directory: Path, here: Scene, url: str, exporter: Exporter
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run Prometheus and Alertmanager over the exporter, posting to the service."""
    manager, prometheus = free_port(), free_port()
    _, secret = create_token(
        here.services.database, NewToken("alertmanager", [Scope.SUBMIT]), created_by="tester"
    )
    (directory / "token").write_text(secret)
    shas = here.repository.shas
    (directory / "prometheus.yml").write_text(
        PROMETHEUS.format(exporter=exporter.port, alertmanager=manager)
    )
    (directory / "rules.yml").write_text(
        RULES.format(repository=here.repository.path, good=shas[0], bad=shas[-1])
    )
    (directory / "alertmanager.yml").write_text(ALERTMANAGER.format(url=url))
    with running(
        [
            "prometheus-alertmanager", "--config.file=alertmanager.yml",
            "--storage.path=alertmanager-data", f"--web.listen-address=127.0.0.1:{manager}",
            "--cluster.listen-address=",
        ],
        [
            "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus-data",
            f"--web.listen-address=127.0.0.1:{prometheus}", "--rules.alert.resend-delay=1s",
        ],
        directory=directory,
    ) as processes:  # fmt: skip
        yield processes


def ended(processes: list[subprocess.Popen[bytes]]) -> bool:
    return any(process.poll() is not None for process in processes)


def test_a_number_that_prometheus_watches(tmp_path: Path) -> None:
    """A drop is bisected once however often Alertmanager repeats it, and noted as over once the
    number is back; who posts needs a token."""
    programs = tmp_path / "programs"
    programs.mkdir()
    exporter = Exporter()
    with scene(tmp_path, {"strong": {5: 0.69}}, working=False, anonymous=Anonymous.NONE) as here:

        def alerts() -> list[AlertRow]:
            with here.services.database.read() as session:
                return list(session.scalars(select(AlertRow)))

        def repeated() -> bool:
            return any(row.state is AlertState.BISECTING and row.notices > 1 for row in alerts())

        try:
            with (
                listening(shown_app(here.services.settings)) as url,
                watched(programs, here, url, exporter) as processes,
            ):
                here.until(lambda: ended(processes) or repeated(), "bisected and told again")
                assert not ended(processes)
                exporter.value = 9000
                here.until(lambda: all(row.resolved_at for row in alerts()), "over")
        except BaseException:
            print((programs / "programs.log").read_text(errors="replace")[-4000:])
            raise
        finally:
            exporter.close()
        (row,) = alerts()
        assert (row.source, row.benchmark, row.after) == ("alertmanager", "strong", 6200.0)
        assert row.title == "throughput of strong dropped"
        assert row.labels["pool"] == "default"
        assert row.bisection_id is not None
