"""The report of a handler's process: the user's own metrics in it, for its worker.

Each process calls this about once a second. Where the user's code has not imported Prometheus's
library it has no metrics, and the process does not pay for loading it.
"""

from __future__ import annotations

import sys


def process_report() -> str:
    """The metrics of this process as text; empty where there are none."""
    if "prometheus_client" not in sys.modules:
        return ""
    from ackfloor_monitoring.metrics.user_metrics import registry_text

    return registry_text()
