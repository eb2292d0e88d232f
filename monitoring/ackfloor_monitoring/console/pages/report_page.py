"""Report: what Spark has counted of all failures, as the last run of its command wrote it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.pages.console_page import Asked, AskedPage
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.spark_report import NoReport

#: Of the report itself. `sandbox` takes its origin from it: its script draws charts, and reaches
#: neither the console nor anybody else.
POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)


def facts(cluster: Cluster, asked: Asked) -> Mapping[str, Any]:
    """What the template shows."""
    found: dict[str, Any] = {
        "report": cluster.report,
        "made_ms": None,
        "age_s": 0.0,
        "error": "",
        "may_see": asked.person.may(Right.see_payloads),
    }
    if cluster.report is not None:
        try:
            found["made_ms"] = made_ms = cluster.report.made_ms()
            if made_ms is not None:
                found["age_s"] = max(0.0, time.time() - made_ms / 1000)
        except NoReport as exc:
            found["error"] = str(exc)
    return found


def report_file(cluster: Cluster, asked: Asked) -> bytes:
    """The report itself; raises Refused."""
    if not asked.person.may(Right.see_payloads):
        why = f"a {asked.person.role} sees no keys, and the report has them: a reader may"
        raise Refused(403, why)
    if cluster.report is None:
        raise Refused(404, "this console has no report: start it with --report FILE")
    try:
        return cluster.report.read()
    except NoReport as exc:
        raise Refused(404, f"the report can't be shown: {exc}") from None


REPORT = AskedPage("report", "Report", "f", "report.html", facts)
