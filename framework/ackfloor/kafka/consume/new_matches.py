"""NewMatches: notices topics that a pattern matches and this worker does not read.

The engine's topics are fixed when a worker starts. So a worker that finds a new topic creates what
the topic needs, ends in order and is replaced; the new process subscribes to the topic by its name.
A group may have members with different subscriptions: it gives the partitions of the new topic to
those that know it, until all do. Nothing can be lost on the way: the topic is read by whoever
starts next, and from its start (`start_positions`), also if the worker that found it is killed.

Why not subscribe to the pattern: the client would be given partitions of topics that the engine
does not know, under the classic protocol by the expression rules of librdkafka, under KIP-848 by
those of the broker, in both before their retry topics exist; ours and those of two handlers could
not be excluded. Why not subscribe anew in the same process: routes, limits, tiers and readers would
have to change while records are open. Topics are created rarely; a replaced worker costs two
rebalances.

A thread asks through a client of its own, each worker at its own times: all find the same topic,
and should not restart at the same time. What matches and is not read is a fault, named in
readiness.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from confluent_kafka import KafkaException

from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.declare.topic_patterns import LeftOut, Matches, listed
from ackfloor.errors import KafkaUnreachable, SourceFailed, TopicAppeared
from ackfloor.kafka.client.client_errors import error_text

log = logging.getLogger("ackfloor.kafka")

#: The cause of the fault: a pattern matches the topic, and no handler gets it.
LEFT_OUT: Final = "left_out"


class NewMatches:
    """Looks for topics until it is stopped.

    Args:
        find: what the patterns stand for now.
        known: what they stood for when this worker started.
        every_s: seconds between two looks; each comes after half to one and a half times of it.
    """

    def __init__(self, find: Callable[[], Matches], known: Matches, every_s: float) -> None:
        self._find = find
        self._read: Collection[str] = known.all
        self._every_s = every_s
        self._ending = threading.Event()
        self._found = ""
        self._failure: Exception | None = None
        #: Topic that matches and is not read -> why.
        self.troubles: Mapping[str, Trouble] = _troubles(known.left_out)
        #: How many looks were answered.
        self.looks = 0

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._run, name="ackfloor:patterns", daemon=True).start()

    def stop(self) -> None:
        """Stop looking; does not wait for an outstanding answer."""
        self._ending.set()

    def check(self) -> None:
        """Raise if a new topic was found.

        Raises:
            TopicAppeared: one was found, and can be read.
            SourceFailed: nobody looks any more.
        """
        if self._failure is not None:
            why = error_text(self._failure)
            raise SourceFailed(f"topics that match can't be looked for: {why}") from self._failure
        if self._found:
            raise TopicAppeared(f"{self._found}: this worker is replaced, to read its part")

    def _run(self) -> None:
        while not self._ending.wait(self._every_s * random.uniform(0.5, 1.5)):  # noqa: S311
            try:
                matches = self._find()
            except (KafkaUnreachable, KafkaException) as exc:
                # The broker is away, which the consumer logs.
                log.debug("topics can't be listed: %s", exc)
            except Exception as exc:  # noqa: BLE001 -- it ends the worker, see `check`
                self._failure = exc
                return
            else:
                self._note(matches)

    def _note(self, matches: Matches) -> None:
        troubles = _troubles(matches.left_out)
        # Topics that are too many share one text.
        before = {trouble.text for trouble in self.troubles.values()}
        for text in sorted({trouble.text for trouble in troubles.values()} - before):
            log.warning("%s", text)
        self.troubles = troubles
        if new := matches.all - set(self._read):
            self._found = f"a pattern matches {listed(new)}, new to this worker"
        self.looks += 1


def _troubles(left_out: Mapping[str, LeftOut]) -> dict[str, Trouble]:
    return {topic: Trouble(LEFT_OUT, why.why, why.fix) for topic, why in left_out.items()}
