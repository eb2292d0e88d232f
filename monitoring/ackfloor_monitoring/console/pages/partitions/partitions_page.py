"""Partitions: how far each is, and what is wrong with it, the worst first."""

from __future__ import annotations

from typing import Any, Final

from ackfloor_monitoring.console.pages.console_page import Known, Page
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.partition_facts import (
    PartitionFacts,
    Row,
    Trouble,
    partitions_of,
)

#: Rows of a page: as many as a large topic has partitions.
MOST: Final = 300
#: Cells of the map of a row.
WIDTH: Final = 16


def facts(cluster: Cluster, known: Known) -> Row:  # noqa: ARG001 -- pages are alike
    """What the template shows."""
    runs, kafka = known.runs.value, None if known.kafka is None else known.kafka.value
    group = known.asked.query.get("group") or None
    found = [(each, each.troubles()) for each in partitions_of(runs, kafka, group)]
    found.sort(key=lambda each: _order(*each))
    return {
        "group": group,
        "rows": [_row(*each) for each in found[:MOST]],
        "count": len(found),
        "wrong": sum(bool(troubles) for _, troubles in found),
        "taken_ms": [each.taken_ms for each in (runs, kafka) if each is not None],
    }


def _order(each: PartitionFacts, troubles: list[Trouble]) -> tuple[Any, ...]:
    """What is wrong first; then what has been open for longest; then what is farthest behind."""
    return (
        not troubles,
        troubles[0].rank if troubles else 0,
        -(each.open_for_s or 0),
        -(each.lag or 0),
        (each.seen.group, each.seen.topic, each.seen.partition, each.run),
    )


def _row(each: PartitionFacts, troubles: list[Trouble]) -> Row:
    live = each.live
    return {
        **each.row(WIDTH),
        "topic": each.seen.topic,
        "number": each.seen.partition,
        "lag": each.lag,
        "open": each.open,
        "in_flight": None if live is None else len(each.running),
        "more_running": each.more_running,
        "blocked": None if live is None else live.part.get("blocked"),
        "run": each.run,
        "worker": None if live is None else live.worker,
        "troubles": troubles,
    }


PARTITIONS = Page("partitions", "Partitions", "p", facts, asks_kafka=True)
