"""Overview: what is wrong, the worst first; figures over time, groups, handlers and runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ackfloor.cli.status.status_line import State
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.pages.console_page import AskedPage, Known, Page
from ackfloor_monitoring.console.pages.dead_letters_page import DEAD_LETTERS
from ackfloor_monitoring.console.pages.handlers_page import HANDLERS
from ackfloor_monitoring.console.pages.in_flight_page import IN_FLIGHT
from ackfloor_monitoring.console.pages.lanes_page import LANES
from ackfloor_monitoring.console.pages.retry_page import RETRY
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

#: What a line is about -> the page that shows more, and where something can be done about it.
CLOSER: Final[Mapping[str, Page | AskedPage]] = {
    **dict.fromkeys(("blocked", "quarantined"), LANES),
    "dlq": DEAD_LETTERS,
    **dict.fromkeys(("retry", "overdue"), RETRY),
    **dict.fromkeys(("breaker", "paused"), HANDLERS),
    **dict.fromkeys(("slots", "keys", "inflight"), IN_FLIGHT),
}


def facts(cluster: Cluster, known: Known) -> Mapping[str, Any]:
    """What the template shows."""
    runs, kafka = known.runs.value, None if known.kafka is None else known.kafka.value
    found, plots = cluster.entries(runs, kafka), cluster.plots()
    if not known.asked.person.may(Right.see_payloads):
        found = [each.without_keys() for each in found]
    return {
        "closer": CLOSER,
        "wrong": [each for each in found if each.line.state is State.wrong],
        "notes": [each for each in found if each.line.state is State.note],
        "groups": list(kafka.groups()) if kafka is not None else [],
        "handlers": list(runs.handlers()) if runs is not None else [],
        "runs": runs.answers if runs is not None else [],
        "plots": plots.plots,
        "plots_since_ms": plots.since_ms,
        "of_prometheus": plots.of_prometheus,
        "plots_late": plots.late,
        "plots_error": cluster.history.error,
        "taken_ms": [each.taken_ms for each in (runs, kafka) if each is not None],
    }


OVERVIEW = Page("overview", "Overview", "o", facts, asks_kafka=True)
