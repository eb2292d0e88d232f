"""One record of a retry topic: why it failed, its way so far, its headers and its payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ackfloor.dead_letters.rules.waiting import due_at_ms
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.pages.console_page import Asked, AskedPage
from ackfloor_monitoring.console.pages.dead_letter_page import facts_of, read_at
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.one_dead_letter import one_waiting_record


def facts(cluster: Cluster, asked: Asked) -> Mapping[str, Any]:
    """What the template shows; raises Refused."""
    place = "/".join(asked.parts[name] for name in ("topic", "partition", "offset"))
    found = read_at(cluster, place, one_waiting_record)
    sees_payloads = asked.person.may(Right.see_payloads)
    return {
        **facts_of(cluster, found, cluster.rules, sees_payloads=sees_payloads),
        "due_ms": due_at_ms(found),
        "commands": [cluster.commands.asks_kafka("retry show", found.place)],
        # What is dead can be revealed: what is to be tried again may mend itself.
        "reveals": False,
    }


WAITING_RECORD = AskedPage(
    "retry",
    "Waiting record",
    "",
    "waiting-record.html",
    facts,
    below="/{topic}/{partition}/{offset}",
)
