"""Results and workers that are killed: no record is settled whose result is not there."""

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

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

#: Each result waits in the client for longer than from one commit to the next: a record that was
#: settled before its result is confirmed would be committed without it, and lost by the kill.
APP = """
slow = {"linger.ms": 100, "batch.num.messages": 1_000_000}
app = App("GROUP", commit_interval="20ms", kafka={"producer": slow})


@app.handler("TOPIC", concurrency=64, to="TOPIC-bills")
async def bill(delivery: Delivery) -> str:
    note(handled, delivery)
    return str(delivery.origin.offset)
"""
RECORDS = 2_000


def results(stage: Stage, topic: str) -> Counter[int]:
    """How often the result of each offset is there."""
    consumer = Consumer({"bootstrap.servers": stage.servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    end, found = stage.end_of(topic), Counter[int]()

    def read() -> bool:
        found.update(int(m.value() or b"") for m in consumer.consume(1000, 0.1) if not m.error())
        return found.total() >= end

    try:
        until(read)
    finally:
        consumer.close()
    return found


def test_no_kill_loses_a_result(
    make_stage: Callable[..., Stage], record_property: Callable[[str, Any], None]
) -> None:
    """At least once: some are there twice, and none is missing."""
    stage = make_stage(APP, partitions=1, session_s=6)
    bills = stage.make_topic("bills", joint="-")
    stage.produce(RECORDS)
    run = stage.run()
    for kill, handled in enumerate((200, 800, 1_400), 1):
        run.until(lambda least=handled: stage.records() >= least, f"{handled} handled")
        os.kill(started(run, kill)[-1], signal.SIGKILL)
    run.until(lambda: stage.committed() == RECORDS, "every record settled")
    found = results(stage, bills)
    assert {*found} == {*range(RECORDS)}
    record_property("results that are there twice", found.total() - RECORDS)
