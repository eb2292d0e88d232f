"""The demo's topics on a broker, with their ends and committed positions.

The demo finds its topics by name: the source, the receipts, and the group's retry and dead-letter
topics of the source.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)

# The last two are documented, and missing from its `__all__`.
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from ackfloor import KafkaUnreachable
from ackfloor.core.parking.topic_names import dlq_topic, parse_topic
from ackfloor_handlers.demo.account.facts import Place
from ackfloor_handlers.demo.demo_errors import DemoFailed, DemoRefused
from ackfloor_handlers.orders import RECEIPTS, TOPIC, app

PARTITIONS: Final = 8
GROUP: Final = app.group
SOURCE: Final = TOPIC
DLQ: Final = dlq_topic(SOURCE, GROUP)
_ANSWER_S = 10.0
_GONE_S = 20.0
#: The client library's log: a screen of its lines does not help while a broker is away.
CLIENT_LOG: Final = logging.getLogger("ackfloor_handlers.demo.kafka")
CLIENT_LOG.addHandler(logging.NullHandler())
CLIENT_LOG.propagate = False


def client_settings(bootstrap_servers: str) -> dict[str, Any]:
    """The settings of every client of the demo."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "ackfloor-demo",
        "logger": CLIENT_LOG,
        "allow.auto.create.topics": False,
        "reconnect.backoff.max.ms": 500,
    }


class Topics:
    """The demo's topics on one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._admin = AdminClient(client_settings(bootstrap_servers))
        # Reads positions and never joins the group. The admin client could as well, but once its
        # coordinator has gone away it never gets an answer again.
        self._reader = Consumer(
            {**client_settings(bootstrap_servers), "group.id": GROUP, "enable.auto.commit": False}
        )

    def make_room(self, *, replace: bool) -> None:
        """Make sure that no topics with the demo's names exist.

        Raises:
            DemoRefused: such topics exist, and `replace` does not allow to delete them.
            KafkaUnreachable: no broker answers.
        """
        there = self.existing()
        if there and not replace:
            raise DemoRefused(
                f"{self._servers} has topics of the demo's names already: {', '.join(there)}; "
                "--replace deletes them with everything in them"
            )
        if there:
            self.remove()

    def create(self) -> None:
        """Create the source and the receipts; the workers create the rest."""
        new = [NewTopic(name, PARTITIONS) for name in (SOURCE, RECEIPTS)]
        _each_done(self._admin.create_topics(new, request_timeout=_ANSWER_S), "create")
        self._wait(lambda: {SOURCE, RECEIPTS} <= set(self.existing()), "its new topics appear")

    def existing(self) -> list[str]:
        """The demo's topics that exist, by name."""
        return sorted(name for name in self._listed() if _is_ours(name))

    def places(self) -> list[Place]:
        """Every partition of the source and of the group's own topics."""
        return [
            (name, partition)
            for name, count in sorted(self._listed().items())
            if _is_ours(name)
            for partition in range(count)
        ]

    def consumed(self) -> list[Place]:
        """Those of them that the group consumes: the source and the retry topics."""
        return [place for place in self.places() if place[0] not in (RECEIPTS, DLQ)]

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The position after the last record of each partition."""
        latest: Any = OffsetSpec.latest  # it has no types
        asked = {TopicPartition(*place): latest() for place in places}
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_ANSWER_S
        )
        found = {(tp.topic, tp.partition): done.result().offset for tp, done in answers.items()}
        if any(end < 0 for end in found.values()):
            # This is how the client reports that one of several brokers has not answered.
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 -- its name
        return found

    def committed(self) -> dict[Place, int]:
        """The group's committed positions; partitions without one are left out."""
        asked = [TopicPartition(*place) for place in self.consumed()]
        found = self._reader.committed(asked, timeout=_ANSWER_S)
        return {(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}

    def unsettled(self) -> int:
        """Records that the group has not settled; 0 means that all are settled.

        The commits are read first: where they equal ends that were read later, nothing was
        written in between, and settled records write nothing more.
        """
        committed = self.committed()
        ends = self.ends(self.consumed())
        return sum(max(0, end - committed.get(place, 0)) for place, end in ends.items())

    def remove(self) -> None:
        """Delete the demo's topics and its group, and wait until they are gone."""
        names = self.existing()
        if names:
            _each_done(self._admin.delete_topics(names, request_timeout=_ANSWER_S), "delete")
        gone = (KafkaError.GROUP_ID_NOT_FOUND,)
        groups = self._admin.delete_consumer_groups([GROUP], request_timeout=_ANSWER_S)
        _each_done(groups, "delete", gone)
        self._wait(lambda: not self.existing(), f"{', '.join(names)} are deleted")

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()

    def _listed(self) -> dict[str, int]:
        try:
            listed = self._admin.list_topics(timeout=_ANSWER_S).topics
        except KafkaException as exc:
            raise KafkaUnreachable(f"no broker answers at {self._servers}: {exc}") from exc
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + _GONE_S
        while not done():
            if time.monotonic() > give_up:
                raise DemoFailed(f"{self._servers}: waited {_GONE_S:g} s in vain until {what}")
            time.sleep(0.05)


def _is_ours(name: str) -> bool:
    if name in (SOURCE, RECEIPTS):
        return True
    parsed = parse_topic(name)
    return parsed is not None and (parsed.topic, parsed.group) == (SOURCE, GROUP)


def _each_done(answers: dict[str, Any], what: str, fine: tuple[int, ...] = ()) -> None:
    for name, answer in answers.items():
        try:
            answer.result()
        except KafkaException as exc:
            error = exc.args[0]
            if error.code() not in fine:
                raise DemoFailed(f"the broker did not {what} {name}: {error.str()}") from exc
