"""Retry topics: what is due when, by topic, by cause, and one by one, the earliest due first."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from ackfloor import AckfloorError
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dead_letter_views import text_of
from ackfloor.dead_letters.rules.cause_groups import CauseGroup
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.dead_letters.rules.waiting import due_at_ms
from ackfloor.errors import RedriveRefused
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.pages.console_page import Asked, AskedPage
from ackfloor_monitoring.console.pages.waiting_query import waiting_query
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.waiting_records import Tier, Waiting, look

#: Causes that are shown: more than a person reads.
CAUSES: Final = 20


def facts(cluster: Cluster, asked: Asked) -> Mapping[str, Any]:
    """What the template shows; raises Refused."""
    query = waiting_query(asked.query, asked.person, cluster.rules)
    topic, now_ms, error = query.given["topic"], time.time_ns() // 1_000_000, ""
    try:
        found = look(cluster.options(), topic, query.given["group"], query.wanted)
    except RedriveRefused as exc:
        raise Refused(404, str(exc)) from None
    except AckfloorError as exc:
        found, error = Waiting(), str(exc)
    # There is none but this: nobody has to choose it.
    target = topic or (found.tiers[0].topic if len(found.tiers) == 1 else "")
    sees_keys = asked.person.may(Right.see_payloads)
    return {
        "query": query,
        "reasons": list(Reason),
        "sees_keys": sees_keys,
        "error": error,
        "taken_ms": now_ms,
        "tiers": [_tier(each, now_ms) for each in found.tiers],
        "unread": [each.topic for each in found.tiers if not each.whole and not each.error],
        "target": target,
        "target_id": found.topic_id,
        "count": found.count,
        "causes": [_cause(each, cluster.rules) for each in found.causes[:CAUSES]],
        "more_causes": max(0, len(found.causes) - CAUSES),
        "rows": [_row(each, cluster.rules, sees_keys=sees_keys) for each in found.soonest],
        "command": query.command(cluster.commands, target) if target else "",
    }


def _tier(tier: Tier, now_ms: int) -> Mapping[str, Any]:
    count = tier.count
    return {
        "tier": tier,
        "count": count,
        "late_s": None if count.oldest_due_ms is None else (now_ms - count.oldest_due_ms) / 1000,
    }


def _cause(group: CauseGroup, rules: Redaction) -> Mapping[str, Any]:
    return {
        "group": group,
        "error": group.error_type or group.cause,
        "message": rules.of_text(group.message),
    }


def _row(record: DeadLetter, rules: Redaction, *, sees_keys: bool) -> Mapping[str, Any]:
    envelope, due_ms = record.envelope, due_at_ms(record)
    return {
        "place": f"{record.topic}/{record.partition}/{record.offset}",
        "origin": record.origin,
        "handler": envelope.handler or "",
        "reason": envelope.reason or "",
        "error": envelope.error_type or "",
        "message": rules.of_text(envelope.error_message) or "",
        "attempt": envelope.attempt,
        "due_ms": due_ms,
        # Of who may not see it, the template does not get it.
        "key": text_of(rules.of_key(record.key)) if sees_keys else None,
    }


RETRY = AskedPage("retry", "Retry topics", "r", "retry.html", facts)
