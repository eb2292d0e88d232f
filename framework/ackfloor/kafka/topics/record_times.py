"""When records were written: the timestamp of the first record at or after a position.

Only the timestamp is kept. A partition that does not answer in time, or whose next record is in an
open transaction, is left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from ackfloor.kafka.client.client_options import A_FEW_RECORDS, KafkaOptions, quiet_consumer

#: Seconds for all partitions together.
PATIENCE_S = 5.0
BATCH = 100


def written_ms(
    options: KafkaOptions, group: str, positions: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """Wall-clock milliseconds by partition; the group is not joined.

    Raises:
        ConfigError: a client property is refused.
    """
    if not positions:
        return {}
    more = {"enable.partition.eof": True, **A_FEW_RECORDS}
    with closing(quiet_consumer(options, group, more)) as consumer:
        return _first_times(consumer, positions)


def _first_times(
    consumer: Consumer, positions: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    consumer.assign([TopicPartition(*place, position) for place, position in positions.items()])
    found: dict[tuple[str, int], int] = {}
    waiting = set(positions)
    until_s = time.monotonic() + PATIENCE_S
    while waiting and time.monotonic() < until_s:
        for message in consumer.consume(BATCH, 0.1):
            place = message.topic() or "", message.partition() or 0
            if place not in waiting:
                continue
            # A message without a timestamp is the end of the partition, or an error.
            waiting.discard(place)
            consumer.pause([TopicPartition(*place)])
            if message.error() is None and message.timestamp()[1] >= 0:
                found[place] = message.timestamp()[1]
    return found
