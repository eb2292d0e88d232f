"""Runs whose handler takes its topics by a pattern: topics come while two workers run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, page, ready, reasons, started
from tests.framework.cli.command import Running, ackfloor

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

APP = """
app = App("GROUP", start="latest", pattern_interval="{interval}")


@app.handler("^TOPIC-.*", retry=RetryPolicy.fixed("1s", max_redeliveries=1))
async def bill(order: bytes, delivery: Delivery) -> None:
    origin = delivery.origin
    line = f"{{origin.topic}}/{{origin.partition}}/{{origin.offset}}#{{delivery.attempt}}\\n"
    os.write(handled, line.encode())
    if order == b"bad":
        raise ValueError("bad")
"""
SECOND = """

@app.handler("^TOPIC.*-shared")
async def other(order: bytes) -> None: ...
"""
RECORDS = 40


def handled(stage: Stage, topic: str) -> set[str]:
    """The records of a topic that were handled, first deliveries only."""
    return {line for line in stage.noted() if line.startswith(topic) and line.endswith("#1")}


def readers(run: Running, topic: str) -> list[int]:
    """How many partitions of a topic each worker has."""
    _, state = page(run, "/state")
    workers = [worker for worker in state["workers"].values() if worker]
    return sorted(sum(p["topic"] == topic for p in worker["partitions"]) for worker in workers)


def dead_letters(stage: Stage, topic: str) -> list[int]:
    """The numbers of dead letters of a topic, of the partitions that have any."""
    dlq = f"{topic}--{stage.group}--dlq"
    return [end for number in range(4) if (end := stage.end_of(dlq, number))]


def write(stage: Stage, topic: str) -> None:
    """Write records to a topic, of many keys so that every partition has some."""
    for n in range(RECORDS):
        stage.produce(1, key=b"k%d" % n, topic=topic)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_comes_while_two_workers_run(
    make_stage: Callable[..., Stage], protocol: str
) -> None:
    """Read from its first record although the group starts at `latest`, and shared by both.

    What was in the first topic before the group is not read; what fails ends in the dead-letter
    topic of its own topic.
    """
    stage = make_stage(APP.format(interval="1s"))
    if protocol == "consumer":
        settings = '[kafka.consumer]\n"group.protocol" = "consumer"\n'
        (stage.folder / "ackfloor.toml").write_text(settings)
    old = stage.make_topic("old", "-")
    stage.produce(5, topic=old)
    run = stage.run("--workers", "2")
    run.until(ready(run), "ready")
    new = stage.make_topic("new", "-", partitions=4)
    write(stage, new)
    run.until(lambda: len(handled(stage, new)) == RECORDS, "all of the new topic")
    # How they share the five partitions is the protocol's own.
    run.until(lambda: readers(run, new) in ([1, 3], [2, 2]), "both workers know the topic")
    run.until(ready(run), "ready again")
    assert handled(stage, old) == set()
    stage.produce(1, b"bad", topic=new)
    stage.produce(1, topic=old)
    run.until(lambda: len(handled(stage, old)) == 1, "the first topic goes on")
    run.logged("dead-lettered (exhausted, ValueError)")
    run.until(lambda: dead_letters(stage, new) == [1], "the dead letter")
    assert set(handled(stage, old)) == {f"{old}/0/5#1"}
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def test_a_worker_that_is_killed_before_it_finds_a_topic(make_stage: Callable[..., Stage]) -> None:
    """Its successor reads the topic from its first record; the other worker knows nothing of it."""
    stage = make_stage(APP.format(interval="1h"), session_s=6)
    stage.make_topic("old", "-")
    run = stage.run("--workers", "2")
    run.until(ready(run), "ready")
    first, _ = started(run, 2)
    new = stage.make_topic("new", "-", partitions=4)
    write(stage, new)
    os.kill(first, signal.SIGKILL)
    run.until(lambda: len(handled(stage, new)) == RECORDS, "all of the new topic")
    run.until(lambda: readers(run, new) == [0, 4], "its state tells so")


def test_a_topic_that_two_patterns_match(make_stage: Callable[..., Stage]) -> None:
    """While the run goes on, it is named in readiness and read by neither; a new run is refused."""
    stage = make_stage(APP.format(interval="500ms") + SECOND)
    mine, _ = stage.make_topic("mine", "-"), stage.make_topic("x-shared", ".")
    run = stage.run()
    run.until(ready(run), "ready")
    both = stage.make_topic("shared", "-")
    stage.produce(1, topic=both)
    run.until(lambda: any(both in reason for reason in reasons(run)), "readiness names it")
    [reason] = reasons(run)
    for named in ("'other'", both, "a topic has one handler", "narrow one of the patterns"):
        assert named in reason
    stage.produce(1, topic=mine)
    run.until(lambda: handled(stage, mine), "the others go on")
    assert handled(stage, both) == set()
    refused = ackfloor(
        "run",
        "stage_app:app",
        cwd=stage.folder,
        ACKFLOOR_BOOTSTRAP_SERVERS=stage.servers,
        ACKFLOOR_RUN_LISTEN="127.0.0.1:0",
    )
    assert refused.returncode == Exit.START
    for named in ("handlers.bill.topics", "'other'", both):
        assert named in refused.stderr
    stage.delete_topic(both)
    run.until(ready(run), "ready once it is gone")
