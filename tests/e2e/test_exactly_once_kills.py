"""Exactly-once output and workers that are killed: a reader of committed records sees each once.

Three kills here in each order; OUTPUT_KILLS=300 for the proof.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.stage import Stage, started
from tests.framework.kafka.wire import until

KILLS = int(os.environ.get("OUTPUT_KILLS", "3"))
pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(1800 + 60 * KILLS)]

#: Of a hundred, eleven fail once, one fails ten times, and two always fail. What is retried waits
#: in its retry topic, or in its lane.
APP = """
app = App("GROUP", commit_interval="50ms")


@app.handler("TOPIC", concurrency=32, output="exactly_once", ordering="ORDERING", breaker=None,
             retry=RetryPolicy.fixed("50ms", 11, jitter=0))
async def bill(delivery: Delivery) -> None:
    note(handled, delivery)
    offset = delivery.origin.offset
    delivery.publish("TOPIC-bills", str(offset), key=delivery.key)
    await asyncio.sleep(0.002)
    delivery.publish("TOPIC-bills", str(offset), key=delivery.key)
    fails = 10 if offset % 100 == 41 else 1 if offset % 9 == 3 else 0
    if offset % 50 == 7 or delivery.attempt <= fails:
        raise ValueError("no")
"""
RECORDS = 600 * (KILLS + 1)
#: They have nothing in common with what fails, or all that fails would be in a few lanes.
KEYS = 21


def write(stage: Stage) -> None:
    """Write all records; the key follows from the offset."""
    producer = Producer({"bootstrap.servers": stage.servers, "enable.idempotence": True})
    for offset in range(RECORDS):
        producer.produce(stage.topic, b"{}", key=b"k%d" % (offset % KEYS))
        producer.poll(0)
    assert producer.flush(60) == 0


def outputs(stage: Stage, topic: str) -> list[int]:
    """The offsets that committed outputs belong to, in their order."""
    config = {"bootstrap.servers": stage.servers, "group.id": "reader"}
    consumer = Consumer({**config, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    end = stage.end_of(topic)
    found: list[int] = []

    def read() -> bool:
        found.extend(int(m.value() or b"") for m in consumer.consume(1000, 0.1) if not m.error())
        # A position passes the marks of transactions, and what was aborted.
        (position,) = consumer.position(consumer.assignment())
        return bool(position.offset >= end)

    try:
        until(read)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_no_kill_loses_or_doubles_an_output(
    make_stage: Callable[..., Stage], record_property: Callable[[str, Any], None], ordering: str
) -> None:
    """Both outputs of each handled record are there, once; those of dead letters are not.

    In key order they come in the order of their lanes.
    """
    stage = make_stage(APP.replace("ORDERING", ordering), partitions=1, session_s=6)
    bills = stage.make_topic("bills", joint="-")
    write(stage)
    run = stage.run()
    for kill in range(1, KILLS + 1):
        least = kill * RECORDS // (KILLS + 1)
        run.until(lambda least=least: stage.records() >= least, f"{least} handled")
        os.kill(started(run, kill)[-1], signal.SIGKILL)
    handled = {offset for offset in range(RECORDS) if offset % 50 != 7}
    run.until(lambda: stage.committed() == RECORDS, "every record settled")
    run.until(lambda: {*outputs(stage, bills)} >= handled, "every record handled")
    found = outputs(stage, bills)
    assert Counter(found) == Counter(dict.fromkeys(handled, 2))
    if ordering == "key":
        lanes = defaultdict(list)
        for offset in found:
            lanes[offset % KEYS].append(offset)
        assert all(lane == sorted(lane) for lane in lanes.values())
    record_property("handled more than once", stage.noted().total() - len(stage.noted()))
