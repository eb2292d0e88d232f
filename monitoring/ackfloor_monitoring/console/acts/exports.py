"""Exports: dead letters in full, as the lines of JSON that `ackfloor dlq export` writes.

It only reads, so it has no note; what `[redaction]` takes away is not in it. A file of a browser is
bounded: for more there is the command.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ackfloor import AckfloorError, SettingError
from ackfloor.dead_letters.commands.json_lines import dead_letter_line
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person, Right
from ackfloor_monitoring.console.acts.redrive_forms import Choice, read_choice
from ackfloor_monitoring.console.acts.redrives import chosen_of
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.index.index_search import Chosen
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

if TYPE_CHECKING:
    from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter

#: Dead letters of one file, its bytes, and the seconds that it may take.
MOST: Final = 10_000
MOST_BYTES: Final = 32 * 1024 * 1024
LONGEST_S: Final = 10.0


class Export(NamedTuple):
    """A file.

    Attributes:
        name: of the file, without anything that a header could not hold.
    """

    name: str
    body: bytes


def exported(cluster: Cluster, form: Fields, person: Person) -> Export:
    """The dead letters that a form means.

    Raises:
        Refused: the form is not understood, too many or too large ones are meant, Kafka does not
            answer, or this person may not see payloads.
    """
    if not person.may(Right.see_payloads):
        raise Refused(403, f"a {person.role} may not see payloads: a reader may")
    if cluster.index is None:
        raise Refused(404, "this console keeps no index of dead letters")
    try:
        choice = read_choice(form, person, cluster.index)
    except SettingError as exc:
        raise Refused(400, str(exc)) from None
    chosen, _ = chosen_of(cluster.index, choice)
    if len(chosen) > MOST:
        raise _too_much(cluster, choice, f"{len(chosen):,} are meant, and a file has {MOST:,}")
    try:
        return Export(f"{choice.topic}.jsonl", b"".join(_lines(cluster, choice, chosen)))
    except AckfloorError as exc:
        raise Refused(503, f"{choice.topic} can't be read: {exc}") from None


def _lines(cluster: Cluster, choice: Choice, chosen: Chosen) -> Iterator[bytes]:
    """A line for each that is still there; raises Refused, AckfloorError."""
    size, until_s = 0, time.monotonic() + LONGEST_S
    for found in _dead_letters(cluster, choice.topic, chosen):
        line = dead_letter_line(found, cluster.rules).encode()
        size += len(line)
        if size > MOST_BYTES:
            raise _too_much(cluster, choice, f"they have more than {MOST_BYTES // 1024**2} MiB")
        if time.monotonic() > until_s:
            raise _too_much(cluster, choice, f"they can't be read within {LONGEST_S:g} s")
        yield line


def _dead_letters(cluster: Cluster, topic: str, chosen: Chosen) -> Iterator[StoredDeadLetter]:
    """Those that are there and open; raises Refused where the topic is not that of the search."""
    # The Kafka client is loaded when it is first needed.
    from ackfloor.dead_letters.kafka.dead_letter_topic import DeadLetterTopics, StoredDeadLetter

    topics = DeadLetterTopics(cluster.options())
    if topics.id_of(topic) != chosen.topic_id:
        raise Refused(409, f"{topic} was deleted and created anew: search again")
    for each in topics.at(topic, chosen.wanted):
        if isinstance(each, StoredDeadLetter) and not each.disposed:
            yield each


def _too_much(cluster: Cluster, choice: Choice, why: str) -> Refused:
    flags = choice.query.flags()
    command = cluster.commands.asks_kafka("dlq export", choice.topic, *flags)
    fix = "narrow the search"
    if not choice.query.given["text"]:
        fix += f", or use {command}"
    return Refused(413, f"{why}: {fix}")
