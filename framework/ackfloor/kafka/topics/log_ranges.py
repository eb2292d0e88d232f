"""Log ranges: the start and end of many logs, in two requests for each broker that leads some.

A broker answers the requests of one connection in order. A consumer's own request
(`get_watermark_offsets`) uses the connection of its fetches, so it waits behind a fetch that the
broker holds for up to `fetch.wait.max.ms`; and it is for one partition. The client that reads the
retry topics goes on fetching during a rebalance, so a member that took over a dozen idle ones spent
seconds in its callback. So an admin client asks, which fetches nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from ackfloor.kafka.client.client_errors import error_text

log = logging.getLogger("ackfloor.kafka")

Place = tuple[str, int]
#: The first position of a log and its end before the first open transaction.
Range = tuple[int, int]

TRIES = 2
#: The request's share of a try's time.
BROKERS_SHARE = 0.8
#: Least seconds of a request, however short the wait for it: where its time is over in the moment
#: in which its answer comes, librdkafka 2.16 frees it twice, which ends the process.
LEAST_REQUEST_S = 1.0

FIRST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
END: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def log_ranges(
    admin: AdminClient, places: Collection[Place], timeout_s: float
) -> Mapping[Place, Range]:
    """The ranges of these partitions' logs, without those that are not answered in time.

    Asked twice: the client finds a leader that has moved only after the former one has refused. A
    broker that does not answer delays the answers of the others until the request's time limit, so
    that is shorter than ours.
    """
    found: dict[Place, Range] = {}
    for _ in range(TRIES):
        missing = [place for place in places if place not in found]
        if missing:
            found.update(_asked(admin, missing, timeout_s / TRIES))
    return found


def _asked(admin: AdminClient, places: Collection[Place], timeout_s: float) -> dict[Place, Range]:
    until_s = time.monotonic() + timeout_s
    firsts, ends = [
        admin.list_offsets(
            {TopicPartition(*place): spec for place in places},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=max(LEAST_REQUEST_S, timeout_s * BROKERS_SHARE),
        )
        for spec in (FIRST, END)
    ]
    lows, highs = answered_offsets(firsts, until_s), answered_offsets(ends, until_s)
    return {place: (low, highs[place]) for place, low in lows.items() if place in highs}


def log_ends(admin: AdminClient, places: Collection[Place], timeout_s: float) -> dict[Place, int]:
    """The ends of these logs, what is written in open transactions included.

    Without those that are not answered in time.
    """
    until_s = time.monotonic() + timeout_s
    asked = admin.list_offsets(
        {TopicPartition(*place): END for place in places},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=max(LEAST_REQUEST_S, timeout_s * BROKERS_SHARE),
    )
    return answered_offsets(asked, until_s)


def log_tips(
    admin: AdminClient, places: Collection[Place], timeout_s: float
) -> dict[Place, tuple[int, int]]:
    """The ends of these logs before their first open transactions, and the leader epochs there.

    Without those that are not answered in time.
    """
    until_s = time.monotonic() + timeout_s
    asked = admin.list_offsets(
        {TopicPartition(*place): END for place in places},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=max(LEAST_REQUEST_S, timeout_s * BROKERS_SHARE),
    )
    ends = answered_offsets(asked, until_s)
    tips: dict[Place, tuple[int, int]] = {}
    for partition, future in asked.items():
        place = partition.topic, partition.partition
        if place in ends:
            epoch = future.result(0).leader_epoch
            tips[place] = ends[place], -1 if epoch is None else epoch
    return tips


def answered_offsets(
    futures: Mapping[TopicPartition, Future[Any]], until_s: float
) -> dict[Place, int]:
    """The offsets that an admin client's `list_offsets` has answered by `until_s` (monotonic).

    If one broker does not answer and others do, the client reports no error for it, but a negative
    offset.
    """
    found: dict[Place, int] = {}
    for partition, future in futures.items():
        try:
            offset: int = future.result(max(0.0, until_s - time.monotonic())).offset
        except (KafkaException, TimeoutError) as exc:
            log.debug("an end of %s/%s: %s", partition.topic, partition.partition, error_text(exc))
        else:
            if offset >= 0:
                found[partition.topic, partition.partition] = offset
    return found
