"""Wheel + benchmark -> one value, in a clean environment.

A run: get an environment with the wheel and the benchmark's requirements (kept and shared), copy
the benchmark's files into an empty directory, start its command once, watch the host meanwhile,
read the value. Who is to blame for a failure:

- *permanent*: the wheel can't be installed or imported, the benchmark fails or crashes with it, or
  it hangs for the second time;
- *transient*: no way to the package index, no room on the disk, killed from outside, a first hang;
- *ours*: the command, the requirements or the metric of the benchmark can't be right, whatever the
  wheel.
"""

from __future__ import annotations

from perfbisect.ports import CancelToken, Failure, RunRequest, RunSuccess
from perfbisect.running.flow import Shelves, carry_out, with_absolute_paths
from perfbisect.running.host import host_facts
from perfbisect.running.local_site import LocalSite

__all__ = ["LocalRunner", "Shelves", "host_facts"]


class LocalRunner:
    """Runs benchmarks as processes of this machine. Implements ``ports.Runner``."""

    def __init__(self, shelves: Shelves | None = None) -> None:
        """Make a runner; ``shelves`` says how many environments and archives are kept."""
        self._shelves = shelves or Shelves()

    def run(self, request: RunRequest, cancel: CancelToken) -> RunSuccess | Failure:
        """Run the benchmark once, whatever its ``docker`` says.

        Raises:
            CancelledWork: the token asked for the end, and nothing is left running.
        """
        request = with_absolute_paths(request)
        return carry_out(LocalSite(request, cancel), request, cancel, self._shelves)
