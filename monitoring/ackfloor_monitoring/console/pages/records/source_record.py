"""The record itself, where it is in flight: its headers, its key and its payload.

Who may see those of dead letters may not see all that the console's user can read. So they are read
from the source topic for what a run has in flight, or has others wait for: what was parked has a
page for each of its copies, and what is settled is nobody's concern any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ackfloor import AckfloorError
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.index.index_rows import SourcePlace
from ackfloor_monitoring.console.pages.console_page import Known
from ackfloor_monitoring.console.pages.dead_letter_page import shown_record
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.one_dead_letter import one_source_record
from ackfloor_monitoring.console.reads.runs.run_facts import OfRuns


def content(cluster: Cluster, known: Known, place: SourcePlace) -> Mapping[str, Any]:
    """What the template shows; nothing where the record is not in flight."""
    if parse_topic(place.topic) is not None or not holders_of(known.runs.value, str(place)):
        return {}
    if not known.asked.person.may(Right.see_payloads):
        return {"sees_payloads": False}
    try:
        found = one_source_record(cluster.options(), *place)
    except AckfloorError as exc:
        return {"why": str(exc)}
    stored = StoredDeadLetter(found, disposed=False)
    return shown_record(stored, cluster.rules, sees_payloads=True)


def holders_of(runs: OfRuns | None, place: str) -> set[str]:
    """The groups whose runs have a record in flight, or have others wait for it."""
    if runs is None:
        return set()
    return {
        str(row["group"])
        for rows in (runs.running(), runs.lanes())
        for row in rows
        if row["record"] == place
    }
