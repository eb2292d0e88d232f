"""One dead letter: why it died, its way so far, its headers and its payload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import typer

from ackfloor import AckfloorError
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import Envelope
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dead_letter_views import fields_of
from ackfloor.dead_letters.commands.selection import place_of
from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter
from ackfloor.dead_letters.rules.redrive_edit import read_mark
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import RedriveRefused
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.index.dead_letter_index import NoIndex
from ackfloor_monitoring.console.index.index_rows import source_id, source_place
from ackfloor_monitoring.console.index.index_search import TooSlow
from ackfloor_monitoring.console.index.record_history import RecordHistory
from ackfloor_monitoring.console.pages.console_page import Asked, AskedPage
from ackfloor_monitoring.console.pages.records.way import Step, way_of
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.one_dead_letter import one_dead_letter

#: Characters of a payload that are shown, and of a key or the value of a header.
PAYLOAD: Final = 20_000
VALUE: Final = 500
#: Headers that are shown.
HEADERS: Final = 50
_LATEST_MS: Final = 253_402_300_799_999
#: Reads the record at a place: topic, partition and offset.
Read: TypeAlias = Callable[[KafkaOptions, str, int, int], DeadLetter]


def facts(cluster: Cluster, asked: Asked) -> Mapping[str, Any]:
    """What the template shows; raises Refused."""
    place = "/".join(asked.parts[name] for name in ("topic", "partition", "offset"))
    sees_payloads = asked.person.may(Right.see_payloads)
    shown = facts_of(cluster, opened(cluster, place), cluster.rules, sees_payloads=sees_payloads)
    return {**shown, "reveals": asked.person.may(Right.reveal)}


def place_named(place: str) -> tuple[str, int, int]:
    """Topic, partition and offset of a record; raises Refused for what is no place."""
    try:
        return place_of(place)
    except typer.BadParameter:
        raise Refused(404, f"{place[:VALUE]} is no place of a record") from None


def opened(cluster: Cluster, place: str) -> DeadLetter:
    """The dead letter at a place, from Kafka; raises Refused where there is none."""
    return read_at(cluster, place, one_dead_letter)


def read_at(cluster: Cluster, place: str, read: Read) -> DeadLetter:
    """What is at a place, from Kafka; raises Refused where nothing is.

    Args:
        read: reads it; raises AckfloorError.
    """
    named = place_named(place)
    try:
        return read(cluster.options(), *named)
    except RedriveRefused as exc:
        raise Refused(404, str(exc)) from None
    except AckfloorError as exc:
        raise Refused(503, f"{place} can't be read: {exc}") from None


def facts_of(
    cluster: Cluster, found: DeadLetter, rules: Redaction, *, sees_payloads: bool
) -> dict[str, Any]:
    """What the template shows of a dead letter.

    Args:
        rules: what of it is left out.
        sees_payloads: whether key, headers and payload are shown, as the rules leave them.
    """
    disposed, steps = _of_index(cluster, found)
    source, place = source_place(found.envelope), found.place
    stored = StoredDeadLetter(found, bool(disposed))
    return {
        "place": place,
        "record": "" if source is None else str(source),
        "steps": steps,
        **shown_record(stored, rules, sees_payloads=sees_payloads),
        "way": list(way(found)),
        "edited": _edited(found.envelope, hash_shown=sees_payloads and not rules.active),
        "commands": [
            cluster.commands.asks_kafka("dlq show", place),
            cluster.commands.asks_kafka("dlq replay", place, "--dry-run"),
        ],
    }


def shown_record(
    stored: StoredDeadLetter, rules: Redaction, *, sees_payloads: bool
) -> dict[str, Any]:
    """What the template shows of a record itself, and how much of it; as for `facts_of`."""
    found = fields_of(stored, rules)
    if not sees_payloads:
        # Not even given to the template.
        found |= dict.fromkeys(("key", "payload", "headers", "edited"))
    return {
        "found": found,
        "hides": rules.active,
        "sees_payloads": sees_payloads,
        "most_payload": PAYLOAD,
        "most_value": VALUE,
        "most_headers": HEADERS,
    }


def _of_index(cluster: Cluster, found: DeadLetter) -> tuple[bool | None, Sequence[Step]]:
    """Whether it is replayed, discarded or archived, and all that became of its record.

    None and nothing where the index does not know.
    """
    if cluster.index is None:
        return None, ()
    source, group = source_place(found.envelope), _group_of(found.topic)
    try:
        with cluster.index.searching() as search:
            disposed = search.is_disposed(found.topic, found.partition, found.offset)
            topic_id = source_id(found.envelope)
            stages = () if source is None else RecordHistory(search).of(source, topic_id)
    except (NoIndex, TooSlow):
        return None, ()
    of_group = [each for each in stages if each.group == group]
    return disposed, way_of(of_group) if of_group else ()


def _group_of(topic: str) -> str:
    """The consumer group of a dead-letter topic of ours; "" of another one."""
    parsed = parse_topic(topic)
    return "" if parsed is None else parsed.group


def way(found: DeadLetter) -> Iterator[tuple[int | None, str]]:
    """What happened to it, in order, as its headers say: when in wall-clock ms, and what."""
    envelope = found.envelope
    if found.origin:
        yield _time(envelope.origin_timestamp_ms), f"written as {found.origin}"
    if envelope.first_failed_at_ms is not None:
        yield _time(envelope.first_failed_at_ms), f"failed for the first time{_on(envelope)}"
    if envelope.edited and (mark := read_mark(envelope.edited)).at_ms is not None:
        yield _time(mark.at_ms), f"corrected by {mark.by}, and redriven"
    if envelope.attempt > 1:
        yield None, f"delivered {envelope.attempt} times in all, through its retry topics"
    if envelope.failed_at_ms is not None:
        yield _time(envelope.failed_at_ms), f"failed for the last time: {_why(envelope)}"
    place = f"{found.topic}/{found.partition}/{found.offset}"
    yield _time(found.timestamp_ms), f"written as {place}"
    if envelope.replays:
        times = "once" if envelope.replays == 1 else f"{envelope.replays} times"
        yield None, f"it was redriven {times} before it came here"


def _edited(envelope: Envelope, *, hash_shown: bool) -> str:
    """What it says of corrections; "" where there was none.

    Args:
        hash_shown: whether the hash of the first payload is, by which a guess can be checked.
    """
    if not envelope.edited:
        return ""
    mark = read_mark(envelope.edited)
    by = f"by {mark.by}" if mark.by else "by somebody whom it does not name"
    return f"{by}; at first its payload had the SHA-256 {mark.was}" if hash_shown else by


def _on(envelope: Envelope) -> str:
    return f", on handler {envelope.handler}" if envelope.handler else ""


def _why(envelope: Envelope) -> str:
    parts = [part for part in (envelope.reason, envelope.error_type) if part]
    return ", ".join(parts) or "no header says why"


def _time(at_ms: int | None) -> int | None:
    """A time that a calendar has; a header may hold any number."""
    return at_ms if at_ms is not None and 0 <= at_ms <= _LATEST_MS else None


DEAD_LETTER = AskedPage(
    "dead-letters",
    "Dead letter",
    "",
    "dead-letter.html",
    facts,
    below="/{topic}/{partition}/{offset}",
)
