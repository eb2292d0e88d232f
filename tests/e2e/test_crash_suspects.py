"""Records that kill their worker: found, dead-lettered, and the others of their flight handled."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, worker_pids
from tests.framework.cli.command import Running

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

MakeStage = Callable[..., Stage]

#: The killers wait until others are in flight with them, and die with them.
HEAD = """
import ctypes

app = App("GROUP")


def die(value):
    if value == b"segfault":
        ctypes.string_at(0)
    if value == b"exit":
        os._exit(0)


"""
ASYNC = (
    HEAD
    + """
@app.handler("TOPIC", concurrency=64)
async def bill(value: bytes, delivery: Delivery) -> None:
    note(started, delivery)
    await asyncio.sleep(0.005)
    die(value)
    note(handled, delivery)
"""
)
THREADS_BY_KEY = (
    HEAD
    + """
@app.handler("TOPIC", concurrency=16, ordering="key")
def bill(value: bytes, delivery: Delivery) -> None:
    note(started, delivery)
    time.sleep(0.005)
    die(value)
    note(handled, delivery)
"""
)
BATCHES = (
    HEAD
    + """
@app.handler("TOPIC", batch=20, batch_wait="50ms", concurrency=2)
def bill(values: list[bytes], deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        note(started, delivery)
    time.sleep(0.005)
    for value in values:
        die(value)
    for delivery in deliveries:
        note(handled, delivery)
"""
)
STATIC = {"ACKFLOOR_APP__STATIC_MEMBERSHIP": "true"}
KEY = b"\x00killer\xff"


def dead_letters(stage: Stage) -> list[Message]:
    """Every record of the dead-letter topic."""
    topic = f"{stage.topic}--{stage.group}--dlq"
    consumer = Consumer({"bootstrap.servers": stage.servers, "group.id": "reader"})
    try:
        found: list[Message] = []
        for partition in consumer.list_topics(topic, 60).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 60)
            consumer.assign([TopicPartition(topic, partition, low)])
            while low < high:
                message = consumer.poll(60)
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


def until(run: Running, condition: Callable[[], bool], what: str) -> None:
    """Wait as long as several crashes take, each with a session that times out."""
    end_s = time.monotonic() + 300
    while not condition():
        lines = "\n".join(run.drain()[-40:])
        assert time.monotonic() < end_s, f"{what} did not come about; logged was:\n{lines}"
        assert run.process.poll() is None, lines
        time.sleep(0.3)


def away_s(lines: list[str]) -> list[float]:
    """Seconds from each crash to the next assignment, by the log's own times."""
    found: list[float] = []
    crashed: datetime | None = None
    for line in lines:
        at = re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", line)
        if at is None:
            continue
        when = datetime.strptime(at[0], "%Y-%m-%d %H:%M:%S,%f")  # noqa: DTZ007 -- differences only
        if "; restarting it in" in line:
            crashed = when
        elif " assigned " in line and crashed is not None:
            found.append(max(0.0, (when - crashed).total_seconds()))
            crashed = None
    return found


@pytest.mark.parametrize(
    ("body", "killers", "workers", "given"),
    [
        pytest.param(ASYNC, [b"segfault"], "1", {}, id="async", marks=pytest.mark.soak),
        pytest.param(ASYNC, [b"segfault", b"exit"], "1", STATIC, id="two-killers-static"),
        pytest.param(THREADS_BY_KEY, [b"exit"], "2", {}, id="threads-by-key-two-workers"),
        pytest.param(BATCHES, [b"exit"], "1", {}, id="batches"),
    ],
)
def test_a_record_that_kills_its_worker_is_dead_lettered_after_three_crashes(
    make_stage: MakeStage, body: str, killers: list[bytes], workers: str, given: dict[str, str]
) -> None:
    """Once, byte for byte; everything else is handled, and the worker was away for seconds."""
    stage = make_stage(body, partitions=2, session_s=6)
    for n in range(500):
        stage.produce(1, key=b"%d" % (n % 20))
    for value in killers:
        stage.produce(1, value, key=KEY)
    for n in range(500):
        stage.produce(1, key=KEY if n % 50 == 0 else b"%d" % (n % 20))
    started_s = time.monotonic()
    run = stage.run("--workers", workers, **given)
    until(run, lambda: stage.records() == 1000, "the others")
    until(run, lambda: len(dead_letters(stage)) == len(killers), "the dead letters")
    took_s = time.monotonic() - started_s
    dead = dead_letters(stage)
    assert sorted(message.value() or b"" for message in dead) == sorted(killers)
    starts = stage.noted("started")
    for message in dead:
        told = headers(message)
        assert message.key() == KEY
        assert told["ackfloor.reason"] == "crash"
        assert told["ackfloor.error.type"] == "WorkerCrash"
        how = "SIGSEGV" if message.value() == b"segfault" else "ended with code 0"
        assert how in told["ackfloor.error.message"]
        name = f"{told['ackfloor.origin.partition']}/{told['ackfloor.origin.offset']}#1"
        assert starts[name] == 3, "three crashes each"
        assert name not in stage.noted()
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    assert len(worker_pids(run)) <= int(workers) + 3 * len(killers), "and none more"
    assert len(dead_letters(stage)) == len(killers)
    sys.stdout.write(
        f"\n{took_s:.1f} s in all; away between a crash and the next assignment: "
        f"{', '.join(f'{s:.1f}' for s in away_s(run.lines))} s\n"
    )
