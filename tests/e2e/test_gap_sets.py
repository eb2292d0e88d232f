"""One stuck record and a crash, on a real broker: what the last commit says decides how much of
what was settled above it is handled again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackfloor.core.acks.gap_set import decode
from tests.e2e.stage import Stage, started
from tests.framework.kafka.wire import until

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

MakeStage = Callable[..., Stage]

#: Record 0 runs until its gate opens; the others are handled at once.
ONE_STUCK = """
app = App("GROUP", commit_interval="200ms")


@app.handler("TOPIC", concurrency=8, consume_timeout="10m")
async def bill(delivery: Delivery) -> None:
    note(started, delivery)
    while delivery.offset == 0 and not opened("gate"):
        await asyncio.sleep(0.01)
    note(handled, delivery)
"""
SETTLED = 10_000


def last_commit(stage: Stage) -> TopicPartition:
    """What the group has committed of the only partition."""
    consumer = Consumer({"bootstrap.servers": stage.servers, "group.id": stage.group})
    try:
        (found,) = consumer.committed([TopicPartition(stage.topic, 0)], timeout=60)
    finally:
        consumer.close()
    return found


def settled_above_the_floor(stage: Stage) -> int:
    """How many offsets the last commit holds as settled above its position."""
    metadata = last_commit(stage).metadata
    runs = decode(metadata, stage.topic, 0).runs if metadata else ()
    return sum(end - start for start, end in runs)


def without_metadata(stage: Stage) -> bool:
    """Commit the floor alone; False as long as the group still has a member."""
    consumer = Consumer({"bootstrap.servers": stage.servers, "group.id": stage.group})
    try:
        consumer.commit(offsets=[TopicPartition(stage.topic, 0, 0)], asynchronous=False)
    except KafkaException:
        return False
    finally:
        consumer.close()
    return True


@pytest.mark.parametrize("floor_only", [False, True], ids=["gap set", "floor only"])
def test_a_crash_with_one_stuck_record_repeats_only_what_no_commit_held(
    make_stage: MakeStage, floor_only: bool, record_property: Callable[[str, Any], None]
) -> None:
    """Invariant 5: ten thousand are settled above the stuck one. The same crash is survived with
    the commit as it is, and with its metadata taken away: what a floor alone would remember."""
    stage = make_stage(ONE_STUCK, partitions=1, session_s=6)
    stage.produce(SETTLED + 1)
    run = stage.run()
    run.until(lambda: stage.records() == SETTLED, "all but one handled")
    run.until(lambda: settled_above_the_floor(stage) == SETTLED, "a commit that says so")
    (worker,) = started(run, 1)
    # It stands still first, so that it starts no other worker in between.
    run.signal(signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    run.signal(signal.SIGKILL)
    run.wait()
    found = last_commit(stage)
    assert found.offset == 0
    if floor_only:
        until(lambda: without_metadata(stage))
    stage.open_gate()
    again = stage.run()
    again.until(lambda: stage.records() == SETTLED + 1, "the stuck one handled")
    again.until(lambda: last_commit(stage).offset == SETTLED + 1, "the floor at the end")
    repeated = sum(count - 1 for count in stage.noted().values())
    record_property("handled again", repeated)
    print(f"\nhandled again after the crash: {repeated} of {SETTLED}")  # noqa: T201
    assert repeated == (SETTLED if floor_only else 0)
    assert sum(stage.noted("started").values()) == len(stage.noted()) + repeated + 1
