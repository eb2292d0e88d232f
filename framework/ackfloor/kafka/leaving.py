"""Leaving a group so that it knows.

A member that is gone without a word keeps its place until its session times out, and whatever
rebalance comes meanwhile waits for it: for 45 seconds by default nobody is given anything, and
commits of the others wait with it, because the broker answers a connection's requests in their
order and theirs stand behind the request to join.

Where partitions come and go one by one, librdkafka's `close` says nothing of leaving if the member
has no partitions, or the group is just telling it which: it asks to leave only once partitions were
taken back (seen with 2.16.0). Unsubscribing asks by itself, but not while the member waits for the
others to join. The client forgets its member id when it asks, so it is asked until that is gone.
"""

from __future__ import annotations

import time
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

#: Between two attempts, in which callbacks are served.
AGAIN_S = 0.05
#: How long a first request to join, which has no member id yet, has to be answered.
ADMISSION_S = 1.0


def leave(consumer: Consumer, topic: str, until_s: float) -> None:
    """Leave the group of a consumer whose partitions come and go one by one.

    Callbacks run on this thread; records that come meanwhile belong to nobody.

    Args:
        topic: any that it is subscribed to.
        until_s: when to give up (monotonic seconds).
    """
    if not consumer.memberid():
        # The requests of a connection are answered in order: behind this one it is known.
        left_s = max(0.0, until_s - time.monotonic())
        with suppress(KafkaException):
            consumer.committed([TopicPartition(topic, 0)], timeout=min(ADMISSION_S, left_s))
    while consumer.memberid() and time.monotonic() < until_s:
        consumer.unsubscribe()
        consumer.poll(AGAIN_S)
