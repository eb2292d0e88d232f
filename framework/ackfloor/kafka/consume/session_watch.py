"""SessionWatch: notices that the group's coordinator has been silent for a session (KIP-848).

A member that the coordinator does not hear for a session is thrown out, and others get its
partitions. Under the classic protocol the client counts that time as well, and gives its partitions
up at the end of it; not while a rebalance is under way, see below. Under KIP-848 librdkafka
(2.16.0) does not: as long as the coordinator is away from this worker alone, while it can read from
other brokers, it reads and handles on, hours if it must, beside the new owner of each partition.
Nobody's commit is lost by that (the broker refuses those of a member that it has thrown out), but
each record is handled twice, and the order of a key is that of two workers.

So a thread asks the coordinator several times in a session for a commit that does not exist. The
request takes the way of the heartbeats, so its answer says that they get through as well. A member
without answers stops a heartbeat before its session can end, counted from the last request that was
answered; it goes on when answers have come for longer than a heartbeat, because by then a member
that was thrown out has been told so. Where some requests still fail, a heartbeat may be one of
those: then answers have to come for a whole session, in which one heartbeat at least got through.

Time without an attempt is no silence: a process that stood still has not asked, and its client is
told by the first heartbeat afterwards.

Not covered: a cooperative rebalance under the classic protocol. A member reads on meanwhile, and
its client counts no session: it waits for the answer to its JoinGroup (for `max.poll.interval.ms`
and 3 s), and then asks to be let in again. A question on that connection would tell nothing,
because a broker answers a connection's requests in their order: a coordinator that waits for a dead
member for a session is as silent as one that is away, and its questioner, out of patience, would
close the connection on which it waits.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from ackfloor.kafka.client.admin_client import quiet_admin
from ackfloor.kafka.client.client_errors import error_text
from ackfloor.kafka.client.client_options import KafkaOptions, admin_config

log = logging.getLogger("ackfloor.kafka")

#: The longest time limit of a request: a worker that ends waits for one.
REQUEST_S = 5.0
#: A partition that no topic has: a transaction of somebody never delays the answer.
NOBODYS = 2**31 - 1
#: How often in a session the coordinator is asked.
ASKED_IN_A_SESSION = 15
#: The group is asked for its session again after this time, because it may be altered; the first
#: times sooner, while nobody has told it.
LEARN_AGAIN_S = 60.0
LEARN_SOON_S = 2.0


class Session(NamedTuple):
    """How long a member may be silent, and how often it lets itself be heard, in seconds."""

    timeout_s: float
    heartbeat_s: float

    @property
    def ask_every_s(self) -> float:
        """How long to wait between two requests."""
        return self.timeout_s / ASKED_IN_A_SESSION

    @property
    def patience_s(self) -> float:
        """How long a request may take: what is slow is not silent, as for the client itself.

        Nor would the client let a heartbeat end on a connection that a question has given up. One
        that fails is known to have failed before the last answer is too old.
        """
        return min(REQUEST_S, self.limit_s - self.ask_every_s)

    @property
    def learn_s(self) -> float:
        """How long the group may be asked for its session: nobody asks the coordinator meanwhile.

        A silence that begins with it is known before the session can end.
        """
        left_s = self.limit_s - self.ask_every_s - self.patience_s
        return max(self.ask_every_s, min(self.patience_s, left_s))

    @property
    def limit_s(self) -> float:
        """How old the last answer may be: the last heartbeat may have been one earlier.

        Where heartbeats are so rare that one missed ends the session, half of it has to do.
        """
        return max(self.timeout_s - self.heartbeat_s, self.timeout_s / 2)


#: Until the group has told its own: the shortest session and the rarest heartbeats that brokers
#: admit, unless they are set up otherwise.
UNKNOWN = Session(timeout_s=45.0, heartbeat_s=15.0)


class SessionWatch:
    """Whether the coordinator has answered within the session; see the head of this file.

    Args:
        options: the client's properties.
        group: the consumer group, whose session the brokers decide.

    Raises:
        ConfigError: an admin property is refused.
    """

    def __init__(self, options: KafkaOptions, group: str) -> None:
        self._admin_config = admin_config(options)
        self._group = group
        self.session = UNKNOWN
        #: When the group is asked for it again (monotonic seconds), how long after the last time,
        #: and whether the log says that nobody tells it.
        self._learn_at_s, self._learn_wait_s = 0.0, LEARN_SOON_S
        self._said_unknown = False
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        #: When the last request that was answered was sent (monotonic seconds), the first one
        #: since which all were, and the first one that was answered after the last silence.
        self._heard_s = self._unbroken_s = self._back_s = 0.0
        #: Why the last request was not answered; empty if it was.
        self._why = ""

    def start(self, consumer: Consumer, topic: str) -> None:
        """Begin to ask through a member's client; about a topic that it may read.

        Raises:
            ConfigError: the admin client refuses a property.
        """
        admin, _ = quiet_admin(self._admin_config)
        self._heard_s = self._unbroken_s = self._back_s = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, args=(consumer, topic, admin), name="ackfloor:session", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ask no more, and wait for the outstanding answer: the client may be closed then."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(REQUEST_S + 1.0)

    def silence(self) -> str:
        """Why the member may have been thrown out by now; empty if it can't have been."""
        why, silent_s = self._why, time.monotonic() - self._heard_s
        if not why or silent_s < self.session.limit_s:
            return ""
        return f"no answer for {silent_s:.0f} s: {why}"

    def steady(self) -> bool:
        """Whether answers have come for long enough to know that the member is still one.

        Between two requests that were answered: time after the last one says nothing yet.
        """
        if self._heard_s - self._back_s > self.session.timeout_s:
            return not self.silence()
        unbroken_s = self._heard_s - self._unbroken_s
        return not self._why and unbroken_s > self.session.heartbeat_s * 1.5

    def _run(self, consumer: Consumer, topic: str, admin: AdminClient) -> None:
        asked = TopicPartition(topic, NOBODYS)
        while True:
            # Not while nobody answers: it would only delay the next request.
            if not self._why and time.monotonic() >= self._learn_at_s:
                self._learn(admin)
            if self._ending.wait(self.session.ask_every_s):
                return
            self._ask(consumer, asked)

    def _ask(self, consumer: Consumer, asked: TopicPartition) -> None:
        began_s = time.monotonic()
        try:
            consumer.committed([asked], timeout=self.session.patience_s)
        except Exception as exc:  # noqa: BLE001 -- it counts as no answer, which is reported
            self._why = error_text(exc)
        else:
            if self._why:
                self._unbroken_s = began_s
            if time.monotonic() - self._heard_s >= self.session.limit_s:
                self._back_s = began_s
            self._heard_s, self._why = began_s, ""

    def _learn(self, admin: AdminClient) -> None:
        """Ask for the group's session; without an answer what is known of it stays."""
        try:
            self.session = self._read_session(admin)
        except Exception as exc:  # noqa: BLE001 -- the log says it; asking goes on
            self._say_unknown(exc)
            self._learn_wait_s = min(2 * self._learn_wait_s, LEARN_AGAIN_S)
        else:
            self._learn_wait_s = LEARN_AGAIN_S
        self._learn_at_s = time.monotonic() + self._learn_wait_s

    def _read_session(self, admin: AdminClient) -> Session:
        resource = ConfigResource(ResourceType.GROUP, self._group)
        within_s = self.session.learn_s
        asked = admin.describe_configs([resource], request_timeout=within_s)[resource]
        found = asked.result(within_s + 1.0)
        timeout_s, heartbeat_s = (
            int(found[f"consumer.{name}.ms"].value) / 1000
            for name in ("session.timeout", "heartbeat.interval")
        )
        return Session(timeout_s, heartbeat_s)

    def _say_unknown(self, why: Exception) -> None:
        first = self.session is UNKNOWN and not self._said_unknown
        self._said_unknown = True
        log.log(
            logging.INFO if first else logging.DEBUG,
            "group %s does not tell its session (%s): it is taken to last %g s, with a heartbeat "
            "in %g s", self._group, why, *self.session,
        )  # fmt: skip
