"""NewTiers: notices retry topics of the group that this worker does not know.

A worker with other delays (a new release, a canary that is rolled back) creates retry topics of its
own and parks records in all their partitions. This worker has to read those that belong to its
source partitions (see `copartitioned_retry_topics`). So a worker that finds such a topic ends and
is replaced; the new process knows the topic, as one left over from another policy.

A thread asks through a client of its own, at random intervals: all workers find the same topic, but
should not restart at the same time.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata  # type: ignore[attr-defined]

from ackfloor.core.parking.topic_names import ParsedTopic, parse_topic
from ackfloor.core.state.worker_state import LOW_PRIORITY_S
from ackfloor.errors import TopicAppeared
from ackfloor.kafka.client.client_log import ClientLog
from ackfloor.kafka.client.client_options import KafkaOptions, admin_config, make_client

log = logging.getLogger("ackfloor.kafka")

REQUEST_S = 10.0
#: Seconds between two requests, at least and at most. A wide range, because in a large group each
#: worker that restarts causes two rebalances.
BETWEEN_S = (60.0, 300.0)


class NewTiers:
    """Looks for new retry topics until it is stopped.

    Args:
        options: the client's properties.
        group: whose retry topics it looks for.
        quarantined: the sources whose retry topics are all read by the member that has the
            source's partition; of the others, those of less than `LOW_PRIORITY_S` are not.

    Raises:
        ConfigError: an admin property is refused.
    """

    def __init__(
        self, options: KafkaOptions, group: str, quarantined: Collection[str] = ()
    ) -> None:
        self._config = admin_config(options)
        self._group = group
        self._quarantined = quarantined
        self._ending = threading.Event()
        self._found = ""
        #: How many requests were answered.
        self.looks = 0

    def start(self, sources: Collection[str], known: Collection[str]) -> None:
        """Begin to look for retry topics of these sources other than the known ones."""
        threading.Thread(
            target=self._run, args=(sources, known), name="ackfloor:tiers", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop looking; does not wait for an outstanding answer."""
        self._ending.set()

    def check(self) -> None:
        """Raise if a new topic was found.

        Raises:
            TopicAppeared: one was found.
        """
        if self._found:
            raise TopicAppeared(
                f"retry topic {self._found} is new: this worker is replaced, to read its part"
            )

    def _run(self, sources: Collection[str], known: Collection[str]) -> None:
        logger = ClientLog(log, "client that looks for new retry topics")
        admin = make_client(AdminClient, "admin", self._config, logger=logger)
        while not self._ending.wait(random.uniform(*BETWEEN_S)):  # noqa: S311 - no secret
            try:
                topics = admin.list_topics(timeout=REQUEST_S).topics
            except KafkaException as exc:
                # The broker is away, which the consumer logs.
                log.debug("topics can't be listed: %s", exc)
            else:
                self._found = self._unknown(topics, sources, known)
                self.looks += 1

    def _unknown(
        self,
        topics: Mapping[str, TopicMetadata],
        sources: Collection[str],
        known: Collection[str],
    ) -> str:
        """A retry topic that should be read and is not known; empty if there is none."""
        for name, found in topics.items():
            parsed = parse_topic(name)
            if (
                parsed is not None
                and found.error is None
                and (parsed.group, parsed.kind) == (self._group, "retry")
                and parsed.topic in sources
                and self._is_followed(parsed)
                and name not in known
            ):
                return name
        return ""

    def _is_followed(self, found: ParsedTopic) -> bool:
        """Whether the group does not share out a retry topic: see `copartitioned_retry_topics`."""
        return found.topic in self._quarantined or (found.delay_s or 0.0) >= LOW_PRIORITY_S
