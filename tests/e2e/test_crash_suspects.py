"""Records that kill their worker: found, dead-lettered, and the others of their flight handled."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from ackfloor.runtime.exit_codes import Exit
from tests.e2e.stage import Stage, worker_pids

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(240)]

MakeStage = Callable[..., Stage]

#: The killer waits until others are in flight with it, and dies with them.
KILLS = """
import ctypes

app = App("TOPIC-shop")


def die(how):
    if how == b"segfault":
        ctypes.string_at(0)
    os._exit(1)


@app.handler("TOPIC", concurrency=64, ORDER)
async def bill(value: bytes, delivery: Delivery) -> None:
    note(started, delivery)
    await asyncio.sleep(0.005)
    if value in (b"segfault", b"exit"):
        die(value)
    note(handled, delivery)
"""
IN_THREADS = """
import ctypes

app = App("TOPIC-shop")


@app.handler("TOPIC", concurrency=16)
def bill(value: bytes, delivery: Delivery) -> None:
    note(started, delivery)
    time.sleep(0.005)
    if value == b"segfault":
        ctypes.string_at(0)
    note(handled, delivery)
"""


def dead_letters(stage: Stage) -> list[Message]:
    """Every record of the dead-letter topic."""
    topic = f"{stage.topic}--{stage.topic}-shop--dlq"
    consumer = Consumer({"bootstrap.servers": stage.servers, "group.id": "reader"})
    try:
        found: list[Message] = []
        for partition in consumer.list_topics(topic, 20).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 20)
            consumer.assign([TopicPartition(topic, partition, low)])
            while low < high:
                message = consumer.poll(20)
                assert message is not None
                assert message.error() is None
                found.append(message)
                low = (message.offset() or 0) + 1
        return found
    finally:
        consumer.close()


def headers(message: Message) -> dict[str, str]:
    """Its headers as text."""
    return {name: (value or b"").decode() for name, value in message.headers() or ()}


def downtime_s(lines: list[str]) -> list[float]:
    """The waits before each restart."""
    return [float(found[1]) for line in lines if (found := re.search(r"in ([\d.]+) s$", line))]


@pytest.mark.parametrize("how", [b"segfault", b"exit"])
@pytest.mark.parametrize("static", ["false", "true"])
def test_a_record_that_kills_its_worker_is_dead_lettered_after_three_crashes(
    make_stage: MakeStage, how: bytes, static: str
) -> None:
    """Once, byte for byte; everything else is handled, and the worker was away for seconds."""
    stage = make_stage(KILLS.replace(", ORDER", ""), partitions=2)
    stage.produce(500)
    stage.produce(1, how, key=b"\x00killer\xff")
    stage.produce(500)
    started_s = time.monotonic()
    run = stage.run(**({"ACKFLOOR_APP__STATIC_MEMBERSHIP": "true"} if static == "true" else {}))
    run.until(lambda: stage.records() == 1000 and dead_letters(stage), "all of it")
    took_s = time.monotonic() - started_s
    (dead,) = dead_letters(stage)
    assert (dead.key(), dead.value()) == (b"\x00killer\xff", how)
    told = headers(dead)
    assert told["ackfloor.reason"] == "crash"
    assert told["ackfloor.error.type"] == "WorkerCrash"
    assert ("SIGSEGV" if how == b"segfault" else "code 1") in told["ackfloor.error.message"]
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    pids = worker_pids(run)
    assert len(pids) == 4, "three crashes"
    starts = stage.noted("started")
    origin = f"{told['ackfloor.origin.partition']}/{told['ackfloor.origin.offset']}#1"
    assert starts[origin] == 3
    assert origin not in stage.noted()
    sys.stdout.write(
        f"\n{how.decode()}, static membership {static}: all of it after {took_s:.1f} s, "
        f"restarts after {downtime_s(run.lines)} s\n"
    )
