"""Leaving a group with a leave request, which librdkafka's `close` does not always send.

A member that disappears without one keeps its place until its session times out, 45 seconds by
default. Until then each rebalance waits for it, and commits of the other members wait, too,
because the broker answers the requests of a connection in order and theirs stand behind the join
request; or the member is assigned partitions that nobody reads. `close` sends no leave request
(seen with 2.16.0)

* while the first join request is not answered;
* under cooperative rebalancing, if the member has no partitions, or is just being assigned some:
  it sends the request only after partitions were revoked. Unsubscribing sends one by itself, but
  not while the member waits for the others to join. The client drops its member id when it sends
  the request, so `leave` unsubscribes until the id is gone. Not under KIP-848, where `close` sends
  the request and the id stays.

A member that ends while the group waits for one that was killed is gone when that wait is over,
also if its process is: the broker reads its leave request after it has answered its join request. A
member that is killed while it waits so has sent none. The classic protocol lets it in, gives it
partitions, and waits for it for a session more; the client has no request that would remove another
member.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer

from ackfloor.kafka.groups.generation import admitted

#: Seconds of one poll, which serves callbacks.
AGAIN_S = 0.05
#: How long a first request to join may take to be answered.
ADMISSION_S = 1.0


def leave(consumer: Consumer, until_s: float, *, silent: bool) -> None:
    """Do the part of leaving that `close` does not do; `close` has to follow.

    Callbacks run on this thread; records that come meanwhile are dropped.

    Args:
        until_s: when to give up (monotonic seconds).
        silent: whether the group rebalances cooperatively under the classic protocol.
    """
    admission_s = min(until_s, time.monotonic() + ADMISSION_S)
    while not admitted(consumer.consumer_group_metadata()) and time.monotonic() < admission_s:
        consumer.poll(AGAIN_S)
    while silent and consumer.memberid() and time.monotonic() < until_s:
        consumer.unsubscribe()
        consumer.poll(AGAIN_S)
