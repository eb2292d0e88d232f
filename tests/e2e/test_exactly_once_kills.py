"""Exactly-once output and workers that are killed: a reader of committed records sees each once.

Three kills here; OUTPUT_KILLS=300 for the proof.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.e2e.stage import Stage, started
from tests.framework.kafka.wire import until

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("OUTPUT_KILLS", "3"))
#: One in ten fails once, and is handled from its retry topic; one in fifty always fails.
APP = """
app = App("GROUP", commit_interval="50ms")


@app.handler("TOPIC", concurrency=32, output="exactly_once", breaker=None,
             retry=RetryPolicy.fixed("200ms", 1))
async def bill(delivery: Delivery) -> None:
    note(handled, delivery)
    offset = delivery.origin.offset
    delivery.publish("TOPIC-bills", str(offset))
    await asyncio.sleep(0.002)
    delivery.publish("TOPIC-bills", str(offset))
    if offset % 50 == 7 or (offset % 10 == 3 and delivery.attempt == 1):
        raise ValueError("no")
"""
RECORDS = 600 * (KILLS + 1)


def outputs(stage: Stage, topic: str) -> Counter[int]:
    """How often the output of each offset is committed."""
    config = {"bootstrap.servers": stage.servers, "group.id": "reader"}
    consumer = Consumer({**config, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    end, found = stage.end_of(topic), Counter[int]()

    def read() -> bool:
        found.update(int(m.value() or b"") for m in consumer.consume(1000, 0.1) if not m.error())
        # A position passes the marks of transactions, and what was aborted.
        (position,) = consumer.position(consumer.assignment())
        return bool(position.offset >= end)

    try:
        until(read)
    finally:
        consumer.close()
    return found


def test_no_kill_loses_or_doubles_an_output(
    make_stage: Callable[..., Stage], record_property: Callable[[str, Any], None]
) -> None:
    """Both outputs of each handled record are there, once; those of dead letters are not."""
    stage = make_stage(APP, partitions=1, session_s=6)
    bills = stage.make_topic("bills", joint="-")
    stage.produce(RECORDS)
    run = stage.run()
    for kill in range(1, KILLS + 1):
        least = kill * RECORDS // (KILLS + 1)
        run.until(lambda least=least: stage.records() >= least, f"{least} handled")
        os.kill(started(run, kill)[-1], signal.SIGKILL)
    handled = {offset for offset in range(RECORDS) if offset % 50 != 7}
    run.until(lambda: stage.committed() == RECORDS, "every record settled")
    run.until(lambda: {*outputs(stage, bills)} >= handled, "every record handled")
    found = outputs(stage, bills)
    assert found == Counter(dict.fromkeys(handled, 2))
    record_property("handled more than once", stage.noted().total() - len(stage.noted()))
