"""TopicIds: notices topics that were deleted, or deleted and created anew, by their ids.

A topic that is deleted and created anew under its name has another id, and its offsets begin
again: a position in the old topic means nothing in the new one, and once the new one has grown
past it, there is no error. So the ids are requested at each assignment and every few seconds after,
including those of the topics that records are parked in.

A client can't switch to the new topic. librdkafka assumes that a partition's leader epoch only
grows, so it ignores the leaders of the new topic and neither reads nor writes there (its issue
4898). New clients can, so the worker ends and is replaced; the id in the commit's metadata then
makes it read the new topic from its start.

The same request shows which topics are missing, which permissions on a topic were revoked, and
whether a broker refuses connections (`troubles`). The consumer reports these once and never when
they are over, and for topics that are only written it reports nothing before a write is due.

If a broker does not tell the id (it is away, or an ACL forbids it), the id stays unknown and
nothing is checked.

A client sends these requests to the controller that it knows. Where that broker is gone, it waits
for it and looks for no other. So after a request without an answer a new client asks.

It has a client of its own because requests are made inside rebalance callbacks: there, the
consumer's own `list_topics` breaks the client, which aborts the process at the next callback.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from math import inf
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]

from ackfloor.core.messages.fault_causes import DENIED as NOT_ALLOWED
from ackfloor.core.messages.fault_causes import MISSING, UNCONFIRMED, Trouble, mend_writing
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.errors import TopicReplaced
from ackfloor.kafka.client.admin_client import quiet_admin
from ackfloor.kafka.client.client_errors import DENIED, NO_ANSWER, error_text, kafka_error
from ackfloor.kafka.client.client_options import KafkaOptions, admin_config
from ackfloor.kafka.client.login_failures import refusal
from ackfloor.kafka.topics.log_ranges import (
    END,
    Place,
    Range,
    answered_offsets,
    log_ends,
    log_ranges,
    log_tips,
)
from ackfloor.kafka.topics.permissions import DISPENSABLE, missing, named, needed

log = logging.getLogger("ackfloor.kafka")

REQUEST_S = 5.0
#: Seconds between two checks of the topics of assigned partitions.
LOOK_EVERY_S = 5.0
#: The same after a write has failed or hangs.
LOOK_SOON_S = 1.0
#: The least age of a client that a new one takes the place of, in seconds.
RENEW_S = 10.0


class Described(NamedTuple):
    """A topic as the broker describes it; empty if it does not answer, which is `silent`.

    `absent` if it says that there is no such topic.
    """

    topic_id: str = ""
    partitions: tuple[int, ...] = ()
    absent: bool = False
    silent: bool = False


#: What a broker without topic ids tells: nothing, or zeros.
_NO_ID = frozenset({"", "None", "A" * 22})


def printed(topic_id: object) -> str:
    """A topic id as Kafka prints it: librdkafka uses base64's first alphabet, Kafka the other.

    Empty where the broker has none.
    """
    text = str(topic_id)
    return "" if text in _NO_ID else text.replace("+", "-").replace("/", "_")


class TopicIds:
    """The ids of the topics that are read or written.

    Args:
        options: the client's properties.
        watched: topics to check whether or not they are read.
        spare: topics that may be deleted, because nothing is written to them any more.

    Raises:
        ConfigError: an admin property is refused.
    """

    def __init__(
        self, options: KafkaOptions, watched: Collection[str] = (), spare: Collection[str] = ()
    ) -> None:
        self._watched = frozenset(watched)
        self._spare = frozenset(spare)
        self._config = admin_config(options)
        self._admin: AdminClient | None
        #: The errors are those since the last check.
        self._admin, self._errors = quiet_admin(self._config)
        #: When the client was made (monotonic seconds).
        self._made_s = time.monotonic()
        #: The faults found at the last check: topic, or "brokers" -> cause and fix.
        self.troubles: Mapping[str, Trouble] = {}
        self._unanswered = ""
        #: Topic -> its id in the first answer.
        self._known: dict[str, str] = {}
        self._asked: Mapping[str, Future[Any]] = {}
        #: The log ends of paused partitions, from earlier checks.
        self.ends: dict[Place, int] = {}
        self._asked_ends: Mapping[TopicPartition, Future[Any]] = {}
        #: Topics that a broker did not know at the last check.
        self._absent: set[str] = set()
        #: Topics that were deleted and created anew.
        self._replaced: set[str] = set()
        #: When the last check was (monotonic seconds), and whether the next one is to come soon.
        self._looked_s = -inf
        self._hurried = False

    def hurry(self) -> None:
        """Check soon, because a write failed or hangs."""
        self._hurried = True

    def gone(self, topic: str) -> bool:
        """Whether a topic that existed was missing at the last check, or was replaced."""
        return topic in self._replaced or (topic in self._absent and topic in self._known)

    def learn(
        self, topics: Collection[str], within_s: float = REQUEST_S
    ) -> Mapping[str, Described]:
        """Ask about topics, and wait for the answer.

        Raises:
            TopicReplaced: one was deleted and created anew.
        """
        asked, until_s = self._ask(topics, within_s), time.monotonic() + within_s
        return {
            topic: self._noted(topic, asked[topic], max(0.0, until_s - time.monotonic()))
            if topic in asked
            else Described()
            for topic in topics
        }

    def look(
        self,
        read: Collection[Place],
        resting: Collection[Place] = (),
        unknown: Collection[str] = (),
    ) -> Mapping[str, Described]:
        """Ask every few seconds about the topics that are read and the watched ones; never waits.

        The answers come with a later call.

        Args:
            read: the partitions that are read now.
            resting: paused partitions, whose log ends no fetch tells; they are asked for as well.
            unknown: topics that something waits for; they are asked about at shorter intervals.

        Returns:
            The answers that have come since the last call.

        Raises:
            TopicReplaced: one was deleted and created anew.
        """
        self._note_ends()
        if self._asked:
            if not all(future.done() for future in self._asked.values()):
                return {}
            asked, self._asked = self._asked, {}
            self.troubles = self._found_troubles(asked)
            if self._unanswered:
                self._renew()
            return {topic: self._noted(topic, future, 0.0) for topic, future in asked.items()}
        since_s = time.monotonic() - self._looked_s
        soon = self._hurried or bool(unknown)
        if since_s >= LOOK_EVERY_S or (soon and since_s >= LOOK_SOON_S):
            self._looked_s, self._hurried = time.monotonic(), False
            self._asked = self._ask(self._watched.union((topic for topic, _ in read), unknown))
            self._ask_ends(resting)
        return {}

    def _renew(self) -> None:
        """Let a new client ask, which finds the present controller."""
        now_s = time.monotonic()
        if self._admin is not None and now_s - self._made_s >= RENEW_S:
            self._drop()
            self._admin, self._errors = quiet_admin(self._config)
            self._made_s = now_s

    def _ask_ends(self, places: Collection[Place]) -> None:
        if self._admin is not None and places and not self._asked_ends:
            asked = {TopicPartition(*place): END for place in places}
            self._asked_ends = self._admin.list_offsets(asked, request_timeout=REQUEST_S)

    def _note_ends(self) -> None:
        if self._asked_ends and all(future.done() for future in self._asked_ends.values()):
            self.ends.update(answered_offsets(self._asked_ends, time.monotonic()))
            self._asked_ends = {}

    def _found_troubles(self, asked: Mapping[str, Future[Any]]) -> Mapping[str, Trouble]:
        """The faults of topics in the answers; brokers that do not answer are one fault."""
        found: dict[str, Trouble] = {}
        unanswered, absent = "", set[str]()
        for topic, future in asked.items():
            exc = future.exception(0)
            error = None if exc is None else kafka_error(exc)
            if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                absent.add(topic)
            elif error is not None and error.code() in NO_ANSWER:
                unanswered = error_text(exc or error)
            elif lacking := _lacking(topic, future):
                found[topic] = _denied(topic, lacking)
        for topic in absent - self._spare:
            # A broker may not know a new topic yet: one never seen counts the second time.
            if topic in self._known or topic in self._absent:
                found[topic] = _gone(topic)
        self._absent = absent
        if trouble := self._of_brokers(unanswered):
            found["brokers"] = trouble
        return found

    def _of_brokers(self, unanswered: str) -> Trouble | None:
        """The fault for a broker that has not answered; None if there is none."""
        before, self._unanswered = self._unanswered, unanswered
        away, refused = unanswered != "", refusal(self._errors)
        self._errors.clear()
        if away and refused is not None:
            return Trouble(UNCONFIRMED, refused.why, refused.fix)
        # Only the second time in a row: a single late answer is no fault.
        return Trouble(UNCONFIRMED, unanswered) if away and before else None

    def _noted(self, topic: str, future: Future[Any], timeout_s: float) -> Described:
        found = answer(topic, future, timeout_s)
        if not found.topic_id and topic in self._known:
            # This worker's clients read no other topic of this name, whatever the answer was.
            return found._replace(topic_id=self._known[topic])
        if found.topic_id and self._known.setdefault(topic, found.topic_id) != found.topic_id:
            self._replaced.add(topic)
            raise TopicReplaced(
                f"topic {topic} was deleted and created anew: this worker is replaced, because only"
                " new clients can read the new topic; it is read from its start"
            )
        return found

    def log_ranges(self, places: Collection[Place], timeout_s: float) -> Mapping[Place, Range]:
        """The start and end of partitions' logs; see `log_ranges`."""
        return {} if self._admin is None else log_ranges(self._admin, places, timeout_s)

    def log_ends(self, places: Collection[Place], timeout_s: float) -> Mapping[Place, int]:
        """The ends of partitions' logs, open transactions included; see `log_ranges`."""
        return {} if self._admin is None else log_ends(self._admin, places, timeout_s)

    def log_tips(
        self, places: Collection[Place], timeout_s: float
    ) -> Mapping[Place, tuple[int, int]]:
        """The ends of partitions' logs and the leader epochs there; see `log_ranges`."""
        return {} if self._admin is None else log_tips(self._admin, places, timeout_s)

    def close(self) -> None:
        """Drop the client now: one that is garbage-collected inside a callback aborts the process.

        On a thread: if a broker went away in the middle of an answer, closing may never return.
        """
        self._drop()

    def _drop(self) -> None:
        going: list[object] = [self._admin, self._asked, self._asked_ends]
        self._admin, self._asked, self._asked_ends = None, {}, {}
        threading.Thread(target=going.clear, name="ackfloor:forget", daemon=True).start()

    def _ask(
        self, topics: Collection[str], within_s: float = REQUEST_S
    ) -> Mapping[str, Future[Any]]:
        if self._admin is None or not topics:
            return {}
        futures: Mapping[str, Future[Any]] = self._admin.describe_topics(
            TopicCollection(sorted(set(topics))),
            include_authorized_operations=True,
            request_timeout=within_s,
        )
        return futures


def _lacking(topic: str, future: Future[Any]) -> Collection[AclOperation]:
    """The permissions on an existing topic that a worker needs and its user lacks."""
    exc = future.exception(0)
    if exc is None:
        allowed = future.result(0).authorized_operations
        lacking = [] if allowed is None else missing(topic, allowed)
        return () if DISPENSABLE.issuperset(lacking) else lacking
    error = kafka_error(exc)
    return needed(topic) if error is not None and error.code() in DENIED else ()


def _denied(topic: str, lacking: Collection[AclOperation]) -> Trouble:
    fix = f"grant {named(lacking)} on topic {topic}"
    unwritable = AclOperation.WRITE in lacking
    return Trouble(NOT_ALLOWED, "not allowed", fix, unwritable=unwritable)


def _gone(topic: str) -> Trouble:
    ours = parse_topic(topic) is not None
    fix = mend_writing(topic, MISSING) if ours else "create it"
    return Trouble(MISSING, "the topic does not exist", fix, unwritable=ours)


def answer(topic: str, future: Future[Any], timeout_s: float) -> Described:
    """The broker's description of a topic that an admin client has asked about."""
    try:
        found = future.result(timeout_s + 1.0)
        return Described(printed(found.topic_id), tuple(sorted(p.id for p in found.partitions)))
    except (KafkaException, TimeoutError) as exc:
        log.debug("the id of topic %s is not known: %s", topic, error_text(exc))
        error = kafka_error(exc)
        if error is None:
            return Described(silent=True)
        unknown = error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        return Described(absent=unknown, silent=error.code() in NO_ANSWER)
