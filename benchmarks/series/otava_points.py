"""Change points by apache-otava, as it is installed: runs in its own environment.

Reads lines of JSON ``{"values": […], "pvalue": 0.001}`` and answers each with a list of indices.
"""

from __future__ import annotations

import json
import sys

from otava.analysis import compute_change_points  # type: ignore[import-not-found]

for line in sys.stdin:
    asked = json.loads(line)
    found = compute_change_points(asked["values"], window_len=50, max_pvalue=asked["pvalue"])[0]
    print(json.dumps([int(point.index) for point in found]), flush=True)
