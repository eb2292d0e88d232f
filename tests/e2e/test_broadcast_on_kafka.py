"""Broadcast mode on a real broker: two workers, each sees every record."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.e2e.stage import Stage, page, ready
from tests.written import whole_lines

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

APP = """
app = App("GROUP", mode="broadcast")


@app.handler("TOPIC", retry=RetryPolicy.fixed("50ms", 2))
async def bill(delivery: Delivery) -> None:
    os.write(started, f"{os.getpid()} {delivery.value.decode()} {delivery.attempt}\\n".encode())
    if delivery.value == b"bad":
        raise ConnectionError("away")
    os.write(handled, f"{os.getpid()} {delivery.value.decode()}\\n".encode())
"""


def seen(stage: Stage) -> dict[str, list[str]]:
    """Worker's pid -> what it has handled, in order."""
    found: dict[str, list[str]] = {}
    for line in whole_lines(stage.folder / "handled"):
        pid, value = line.split()
        found.setdefault(pid, []).append(value)
    return found


def dead_letters(stage: Stage) -> list[dict[str, bytes]]:
    """The headers of the dead letters."""
    dlq = f"{stage.topic}--{stage.group}--dlq"
    consumer = Consumer({"bootstrap.servers": stage.servers, "group.id": "reader"})
    found: list[dict[str, bytes]] = []
    for partition in (0, 1):
        _, end = consumer.get_watermark_offsets(TopicPartition(dlq, partition), timeout=60)
        consumer.assign([TopicPartition(dlq, partition, 0)])
        while sum(1 for d in found if d["at"] == b"%d" % partition) < end:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            headers = {name: value or b"" for name, value in message.headers() or []}
            found.append({**headers, "at": b"%d" % partition})
    consumer.close()
    return found


def test_two_workers_each_see_every_record(make_stage: Callable[..., Stage]) -> None:
    """From their start on, new partitions too; a bad record is dead-lettered by each of them."""
    stage = make_stage(APP, partitions=2)
    with (stage.folder / "ackfloor.toml").open("a") as settings:
        settings.write('"topic.metadata.refresh.interval.ms" = 500\n')
    stage.produce(10, b"before")
    # From an earlier life in group mode.
    leftover = stage.make_topic(f"{stage.group}--retry-7s")
    run = stage.run("--workers", "2")
    run.logged(f"topic {leftover}: not consumed in broadcast mode")
    run.until(ready(run), "ready")
    for number in range(200):
        stage.produce(1, b"%d" % number)
    stage.produce(1, b"bad")
    expected = sorted(str(number) for number in range(200))

    def complete(count: int = 200) -> bool:
        return [len(values) for values in seen(stage).values()] == [count, count]

    run.until(complete, "each handled everything")
    assert [sorted(values) for values in seen(stage).values()] == [expected, expected]
    run.until(lambda: len(dead_letters(stage)) == 2, "dead letters of both")
    workers = {headers["ackfloor.worker"].rpartition(b"/")[2] for headers in dead_letters(stage)}
    assert workers == {b"worker-0", b"worker-1"}
    assert {headers["ackfloor.attempt"] for headers in dead_letters(stage)} == {b"3"}
    # A partition that comes while they run is read from its beginning.
    admin = AdminClient({"bootstrap.servers": stage.servers})
    admin.create_partitions([NewPartitions(stage.topic, 6)])[stage.topic].result(60)
    stage.produce_to(range(2, 6), b"new")
    run.until(lambda: complete(204), "the new partitions")
    assert all(values[200:] == ["new"] * 4 for values in seen(stage).values())
    assert stage.committed() == 0
    assert [name for name in stage.topics() if "--retry-" in name] == [leftover]
    _, state = page(run, "/state")
    read = {p["topic"] for w in state["workers"].values() for p in w["partitions"]}
    assert read == {stage.topic}
