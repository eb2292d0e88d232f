"""Leaving a group so that it knows.

A member that is gone without a word keeps its place until its session times out. Until then
whatever rebalance comes waits for it, and commits of the others wait with it, because the broker
answers a connection's requests in their order and theirs stand behind the request to join; or it
is given partitions that nobody reads. That is 45 seconds by default. librdkafka's `close` leaves
in silence (seen with 2.16.0)

* while its first request to join is not answered;
* where partitions come and go one by one, if the member has none, or the group is just telling it
  which: it asks to leave only once partitions were taken back. Unsubscribing asks by itself, but
  not while the member waits for the others to join. The client forgets its member id when it
  asks, so it is asked until that is gone. Not under KIP-848, where `close` asks and the id stays.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer

from ackfloor.kafka.groups.generation import admitted

#: Between two looks, in which callbacks are served.
AGAIN_S = 0.05
#: How long a first request to join may take to be answered.
ADMISSION_S = 1.0


def leave(consumer: Consumer, until_s: float, *, silent: bool) -> None:
    """Leave the group as far as `close` does not, which has to follow.

    Callbacks run on this thread; records that come meanwhile belong to nobody.

    Args:
        until_s: when to give up (monotonic seconds).
        silent: whether partitions come and go one by one, under the classic protocol.
    """
    admission_s = min(until_s, time.monotonic() + ADMISSION_S)
    while not admitted(consumer.consumer_group_metadata()) and time.monotonic() < admission_s:
        consumer.poll(AGAIN_S)
    while silent and consumer.memberid() and time.monotonic() < until_s:
        consumer.unsubscribe()
        consumer.poll(AGAIN_S)
