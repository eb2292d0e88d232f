"""Batches in processes of their own: what a kill or a crash costs, and which answers count."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ackfloor import App, RetryPolicy
from ackfloor.core.messages.events import DeliveryFailed, LateAnswers
from ackfloor.testing import Harness
from tests.framework.runtime import process_handlers as handlers
from tests.framework.runtime.executors.process.test_process_executor import SOON, lines, send
from tests.framework.runtime.live import live
from tests.processes import runs

SIZE = 10


def app_of(function: Any = handlers.do_all, **options: Any) -> App:
    """An app with one process handler that takes batches, which wait until they are full."""
    app = App("g")
    given = {"name": "handle", "concurrency": 1, "retry": SOON, "batch": SIZE, "batch_wait": "1h"}
    app.handler("orders", executor="process", **(given | options))(function)
    return app


def begun(folder: Path) -> list[tuple[int, int, str]]:
    """Offset, attempt and verb of what was begun, in order."""
    return [
        (int(offset), int(attempt), verb) for _, offset, attempt, verb in lines(folder, "begun")
    ]


def calls(folder: Path) -> list[list[int]]:
    """The offsets of each call."""
    return [list(map(int, line)) for line in lines(folder, "calls")]


def test_the_deadline_kills_and_only_then_parks(tmp_path: Path) -> None:
    """Not a line of the handler comes after the park; what was answered before counts."""
    app = app_of(consume_timeout="2s", retry=RetryPolicy.fixed("1h", 1))
    with live(app) as worker:
        for verb in ("answer", "nothing", "write_for_ever", *["nothing"] * 7):
            send(worker, verb, tmp_path)
        worker.until(lambda: len(worker.parked("orders")) == 9)
        written = len(lines(tmp_path, "written"))
        send(worker, "nothing", tmp_path)
        flow = worker.loop.engine.flow
        # What waits for company, and what waits in the tier.
        worker.until(lambda: flow.open_count == 1 + 9)
        worker.turn_for(0.1)
        parked = worker.parked("orders")
    assert len(lines(tmp_path, "written")) == written
    assert sorted(record.origin.offset for record in parked) == list(range(1, 10))
    assert {(record.reason, record.error_type) for record in parked} == {
        ("timeout", "ConsumeTimeout")
    }


@pytest.mark.parametrize("verb", ["segfault", "leave"])
def test_a_crash_costs_only_the_record_that_crashes_alone(tmp_path: Path, verb: str) -> None:
    """The others of its batch come again with nothing spent, and what was answered does not."""
    with live(app_of()) as worker:
        for one in ("answer", "nothing", verb, *["nothing"] * 7):
            send(worker, one, tmp_path)
        worker.until(lambda: worker.settled() and worker.dlq("orders"))
        (dead,) = worker.dlq("orders")
        parked = [(r.origin.offset, r.reason, r.attempt) for r in worker.parked("orders")]
        failed = worker.watcher.told(DeliveryFailed)
    assert (dead.origin.offset, dead.reason, dead.error_type, dead.attempt) == (
        2, "crash", "ProcessCrash", 3,
    )  # fmt: skip
    assert parked == [(2, "crash", 1), (2, "crash", 2)]
    assert [(event.offset, event.attempt) for event in failed if event.attempt == 1] == [(2, 1)]
    first, *alone = calls(tmp_path)
    assert first == list(range(SIZE))
    assert {len(call) for call in alone} == {1}
    assert [n for n, attempt, _ in begun(tmp_path) if attempt == 1] == [0, 1, 2, *range(1, SIZE)]
    ended = [(int(offset), attempt) for _, offset, attempt, _ in lines(tmp_path, "ended")]
    assert sorted(ended) == [(n, "1") for n in (0, 1, 1, *range(3, SIZE))]


def test_an_answer_that_was_recorded_outlives_its_process(tmp_path: Path) -> None:
    """Each True is kept, however soon the process died after it."""
    with live(app_of(batch=100, retry=RetryPolicy(max_redeliveries=0))) as worker:
        for _ in range(99):
            send(worker, "answer", tmp_path)
        send(worker, "leave", tmp_path)
        worker.until(lambda: worker.settled() and worker.dlq("orders"))
        (dead,) = worker.dlq("orders")
    assert lines(tmp_path, "answered") == [[str(n), "True"] for n in range(99)]
    assert dead.origin.offset == 99


def test_an_answer_after_the_call_is_late(tmp_path: Path) -> None:
    """It returns False, is counted, and changes nothing."""
    with live(app_of(batch=3)) as worker:
        for verb in ("answer_later", "nothing", "nothing"):
            send(worker, verb, tmp_path)
        worker.until(worker.settled)
        (tmp_path / "open").touch()
        worker.until(lambda: worker.watcher.told(LateAnswers))
        assert worker.parked("orders") == []
    assert lines(tmp_path, "answered") == [["0", "False"]]


def test_a_crash_in_lanes_keeps_their_order(tmp_path: Path) -> None:
    """What was in the batch is handled record by record, what follows waits for its lane."""
    app = app_of(ordering="key", on_failure="block", batch_wait="50ms")
    with live(app) as worker:
        for number in range(14):
            send(worker, "leave" if number == 5 else "nothing", tmp_path, key=b"%d" % (number % 2))
        worker.until(worker.settled)
        (dead,) = worker.dlq("orders")
    assert (dead.origin.offset, dead.attempt) == (5, 3)
    first = [n for n, _, _ in begun(tmp_path)].index(5)
    after = [(offset, attempt) for offset, attempt, _ in begun(tmp_path)][first + 1 :]
    for lane in (0, 1):
        offsets = [offset for offset, _ in after if offset % 2 == lane]
        assert offsets == sorted(offsets)
    assert [attempt for offset, attempt in after if offset == 5] == [1, 2, 3]


def test_what_does_not_end_in_time_is_killed_and_comes_again(tmp_path: Path) -> None:
    """At the end of a worker: no attempt is spent, but what was answered has ended."""
    with live(app_of(batch=3), shutdown_s=0.3) as worker:
        for verb in ("answer", "wait_for", "nothing"):
            send(worker, verb, tmp_path)
        worker.until(lambda: len(begun(tmp_path)) == 2)
        engine = worker.loop.engine
        worker.until(lambda: engine.flow.open_count == 2)
        assert {d.offset for d in worker.executor().running()} == {0, 1, 2}
        ((pid, *_), *_) = lines(tmp_path, "begun")
        running = next(iter(worker.executor().running()))
        assert worker.executor().stack(running) == (f"process {pid}",)
        assert worker.close() == 2
        broker = worker.broker
    if sys.platform.startswith("linux"):
        assert not runs(int(pid))
    (tmp_path / "open").touch()
    with live(app_of(batch_wait="20ms"), broker=broker) as worker:
        worker.until(worker.settled)
        assert worker.parked("orders") == []
    assert [(n, attempt) for n, attempt, _ in begun(tmp_path)[2:]] == [(1, 1), (2, 1)]


def test_nothing_is_lost_or_out_of_order_whatever_dies_and_leaves(tmp_path: Path) -> None:
    """Crashes, handlers that hang, answers, pauses and rebalances at once, in key order."""
    noise = random.Random(7)
    app = app_of(
        concurrency=2,
        ordering="key",
        on_failure="block",
        consume_timeout="2s",
        batch_wait="20ms",
        retry=RetryPolicy(max_redeliveries=0),
    )
    verbs = ["nothing", "answer", "leave", "write_for_ever", "rest"]
    keys: dict[int, int] = {}
    with live(app, partitions=1, drain_s=0.3) as worker:
        for number in range(120):
            verb = noise.choices(verbs, [80, 30, 3, 1, 5])[0]
            keys[number] = noise.randrange(8)
            send(worker, verb, tmp_path, key=b"k%d" % keys[number])
        for part in (30, 60):
            worker.until(lambda part=part: len(lines(tmp_path, "begun")) > part)
            worker.broker.rebalance()
        worker.until(worker.settled)
        assert worker.loop.engine.flow.open_count == 0
        dead = {record.origin.offset for record in worker.dlq("orders")}
    ended = {int(line[1]) for line in lines(tmp_path, "ended")}
    assert ended | dead == set(range(120))
    for key in range(8):
        offsets = [offset for offset, _, _ in begun(tmp_path) if keys[offset] == key]
        firsts = list(dict.fromkeys(offsets))
        assert firsts == sorted(firsts)


def test_a_process_is_replaced_after_the_batch_that_is_enough(tmp_path: Path) -> None:
    """A batch is not cut for it."""
    with live(app_of(process_max_records=15)) as worker:
        for _ in range(4 * SIZE):
            send(worker, "nothing", tmp_path)
        worker.until(worker.settled)
    per_process = Counter(line[0] for line in lines(tmp_path, "ended"))
    assert sorted(per_process.values()) == [20, 20]


def test_what_does_not_decode_is_dead_lettered_alone() -> None:
    """The others of its batch are handled."""
    with live(app_of(handlers.take_orders, batch=4)) as worker:
        for value in (b'{"number": 0}', b"?", b'{"number": 2}', b'{"number": 3}'):
            worker.send("orders", value)
        worker.until(lambda: worker.settled() and worker.dlq("orders"))
        (dead,) = worker.dlq("orders")
        assert worker.parked("orders") == []
    assert (dead.reason, dead.value) == ("decode", b"?")


def test_the_test_kit_runs_it_on_a_thread_of_the_test(tmp_path: Path) -> None:
    """As it does with handlers of single records."""
    with Harness(app_of(batch=3, consume_timeout="30s", batch_wait="1s")) as h:
        for verb in ("answer", "wait_for"):
            h.send("orders", f"{verb} {tmp_path}")
        h.advance("1s")
        h.advance("30s")
        assert [record.reason for record in h.parked("orders")] == ["timeout"]
        (tmp_path / "open").touch()
        h.advance("6s")
        assert len(h.handled()) == 2
