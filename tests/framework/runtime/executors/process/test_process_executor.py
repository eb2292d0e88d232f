"""Handlers in processes of their own: what dies, what it costs, and nothing runs twice."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackfloor import App, ConfigError, RetryPolicy, StartError, To
from ackfloor.core.messages.events import DeliveryTimedOut, RecordDiscarded
from ackfloor.core.parking.topic_names import dlq_topic
from ackfloor.core.records.envelope import read_envelope
from ackfloor.declare.signature import read_signature
from ackfloor.runtime.executors.process import process_dispatch as work
from ackfloor.runtime.executors.process.process_executor import ProcessExecutor
from ackfloor.runtime.executors.process.start_arguments import plan_of
from ackfloor.testing import Harness
from tests.framework.runtime import process_handlers as handlers
from tests.framework.runtime.live import Live, live, within
from tests.processes import runs
from tests.written import whole_lines

SOON = RetryPolicy.fixed("20ms", 5)
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def app_of(function: Any = handlers.do, **options: Any) -> App:
    """An app with one process handler."""
    app = App("g")
    options = {"name": "handle", "concurrency": 1, "retry": SOON, **options}
    app.handler("orders", executor="process", **options)(function)
    return app


def send(worker: Live, verb: str, folder: Path, *rest: object, **options: Any) -> None:
    """Write a record that says what to do."""
    worker.send("orders", " ".join(map(str, (verb, folder, *rest))).encode(), **options)


def lines(folder: Path, name: str) -> list[list[str]]:
    """What handlers have noted; a line that is being written is none yet."""
    return [line.split() for line in whole_lines(folder / name)]


def warm_up(worker: Live, folder: Path) -> None:
    """Let a process learn that records are quick, so that it gets many at a time."""
    for _ in range(40):
        send(worker, "nothing", folder)
    worker.until(worker.settled)


# What is raised there.


@pytest.mark.parametrize("batch", [None, 10], ids=["single", "batch"])
def test_an_exit_does_not_end_its_process(tmp_path: Path, batch: int | None) -> None:
    """It is the failure of its record: the same process goes on, and takes the record again."""
    # A batch that fails is parked as a whole, and its records come again one by one.
    alone, options = (1, {}) if batch is None else (2, {"batch": batch, "batch_wait": "20ms"})
    with live(app_of(handlers.do if batch is None else handlers.do_all, **options)) as worker:
        for verb in ("nothing", "exit_until", "interrupt_until", "nothing"):
            send(worker, verb, tmp_path, alone)
        again = {("exit_until", str(alone + 1)), ("interrupt_until", str(alone + 1))}
        worker.until(lambda: again <= {(line[3], line[2]) for line in lines(tmp_path, "ended")})
        failed = [(r.error_type, r.attempt) for r in worker.parked("orders")]
        worker.until(worker.settled)
        assert worker.dlq("orders") == []
    assert {("SystemExit", alone), ("KeyboardInterrupt", alone)} <= set(failed)
    assert len({line[0] for line in lines(tmp_path, "begun")}) == 1


def test_processes_that_nobody_looks_after_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ended their keeper: the worker is to be replaced, and they are killed."""
    with live(app_of()) as worker:
        send(worker, "nothing", tmp_path)
        worker.until(worker.settled)
        executor = worker.executor()
        assert isinstance(executor, ProcessExecutor)

        def exit_(_host: object) -> None:
            raise SystemExit(0)

        monkeypatch.setattr(executor._pool, "_read_messages", exit_)
        executor._pool.ring()
        worker.until(lambda: worker.worker.inbox.broken)
        (broken,) = worker.worker.inbox.broken
    assert isinstance(broken, SystemExit)


@pytest.mark.parametrize("batch", [None, 2], ids=["single", "batch"])
def test_a_process_is_given_the_idempotency_keys(tmp_path: Path, batch: int | None) -> None:
    """In the first delivery that of its place, in a retry the same."""
    options: dict[str, Any] = {} if batch is None else {"batch": batch, "batch_wait": "20ms"}
    with live(app_of(handlers.do if batch is None else handlers.do_all, **options)) as worker:
        for _ in range(2):
            send(worker, "name_it", tmp_path)
        worker.until(lambda: len(lines(tmp_path, "ended")) == 2)
        topic_id = worker.broker.topic_id("orders")
    noted = lines(tmp_path, "keys")
    by_attempt = [key for _, key in noted]
    assert set(by_attempt) == {f"{topic_id}/0/0", f"{topic_id}/0/1"}
    assert min(by_attempt.count(key) for key in set(by_attempt)) >= 2


# The deadline.


def test_a_handler_that_is_timed_out_never_runs_beside_its_retry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It writes to a file for ever: not a line of an attempt comes after it was parked.

    Each attempt has its line, which says that the handler was killed.
    """
    app = app_of(consume_timeout="1s", retry=RetryPolicy.fixed("20ms", 2), concurrency=2)
    after: list[int] = []
    with live(app) as worker:
        send(worker, "write_for_ever", tmp_path)
        for attempt in (1, 2):
            worker.until(lambda attempt=attempt: len(worker.parked("orders")) >= attempt)
            written = [int(line[0]) for line in lines(tmp_path, "written")]
            after.append(written.count(attempt))
        worker.until(lambda: worker.dlq("orders"))
        (dead,) = worker.dlq("orders")
        timeouts = worker.watcher.told(DeliveryTimedOut)
    written = [int(line[0]) for line in lines(tmp_path, "written")]
    assert written == sorted(written)
    assert [written.count(attempt) for attempt in (1, 2)] == after
    assert set(written) == {1, 2, 3}
    assert (dead.reason, dead.error_type, dead.attempt) == ("exhausted", "ConsumeTimeout", 3)
    assert [event.attempt for event in timeouts] == [1, 2, 3]
    told = [line for line in caplog.messages if "gave no answer within" in line]
    assert [line.partition(": handler handle gave")[0] for line in told] == [
        "orders/0/0 attempt 1",
        "orders--g--retry-20ms/0/0 attempt 2",
        "orders--g--retry-20ms/0/1 attempt 3",
    ]
    assert all(re.search(r"; its process \d+ is killed$", line) for line in told)


def test_an_extended_deadline_is_kept(tmp_path: Path) -> None:
    """Moved from inside the process, again and again."""
    with live(app_of(consume_timeout="2s")) as worker:
        send(worker, "extend", tmp_path)
        worker.until(worker.settled)
        assert worker.parked("orders") == []
    assert len(lines(tmp_path, "ended")) == 1


def test_what_waits_behind_a_slow_record_goes_to_another_process(tmp_path: Path) -> None:
    """However many were handed over together with it."""
    with live(app_of(concurrency=2)) as worker:
        warm_up(worker, tmp_path)
        send(worker, "wait_for", tmp_path)
        for _ in range(60):
            send(worker, "nothing", tmp_path)
        worker.until(lambda: len(lines(tmp_path, "ended")) == 100)
        (tmp_path / "open").touch()
        worker.until(worker.settled)
        assert worker.parked("orders") == []
    assert Counter(line[1] for line in lines(tmp_path, "begun")).most_common(1)[0][1] == 1


def test_a_timeout_costs_nothing_of_what_waits_behind(tmp_path: Path) -> None:
    """One process: what it was given with the record that hangs is handled by its successor."""
    with live(app_of(consume_timeout="3s", retry=RetryPolicy.fixed("1h", 1))) as worker:
        warm_up(worker, tmp_path)
        send(worker, "write_for_ever", tmp_path)
        for _ in range(30):
            send(worker, "nothing", tmp_path)
        worker.until(worker.settled)
        (parked,) = worker.parked("orders")
    assert (parked.reason, parked.error_type) == ("timeout", "ConsumeTimeout")
    assert {line[2] for line in lines(tmp_path, "begun")} == {"1"}
    assert len(lines(tmp_path, "ended")) == 70


# Crashes.


@pytest.mark.parametrize("verb", ["segfault", "leave"])
def test_a_crash_costs_only_the_record_it_was_at(tmp_path: Path, verb: str) -> None:
    """At the third the record is a dead letter; what it was given together with runs once."""
    with live(app_of()) as worker:
        warm_up(worker, tmp_path)
        for _ in range(10):
            send(worker, "nothing", tmp_path)
        send(worker, verb, tmp_path)
        for _ in range(10):
            send(worker, "nothing", tmp_path)
        worker.until(lambda: worker.settled() and worker.dlq("orders"))
        (dead,) = worker.dlq("orders")
        parked = [(record.reason, record.attempt) for record in worker.parked("orders")]
    assert (dead.reason, dead.error_type, dead.attempt) == ("crash", "ProcessCrash", 3)
    assert parked == [("crash", 1), ("crash", 2)]
    begun = Counter(line[1] for line in lines(tmp_path, "begun") if line[3] == "nothing")
    assert set(begun.values()) == {1}
    assert len(begun) == 60


def test_a_crash_in_a_lane_keeps_its_order(tmp_path: Path) -> None:
    """Retried in place: what follows it in its lane waits for its end."""
    policy = RetryPolicy.fixed("20ms", 1)
    with live(app_of(ordering="key", on_failure="block", retry=policy)) as worker:
        warm_up(worker, tmp_path)
        for number in range(12):
            send(worker, "leave" if number == 5 else "nothing", tmp_path, key=b"k")
        worker.until(worker.settled)
    begun = [int(line[1]) for line in lines(tmp_path, "begun")][40:]
    assert begun == [40, 41, 42, 43, 44, 45, 45, 46, 47, 48, 49, 50, 51]


def test_nothing_is_lost_or_out_of_order_whatever_dies_and_leaves(tmp_path: Path) -> None:
    """Crashes, handlers that hang, pauses and rebalances at once, in key order."""
    noise = random.Random(11)
    app = app_of(
        concurrency=3,
        ordering="key",
        on_failure="block",
        consume_timeout="2s",
        retry=RetryPolicy(max_redeliveries=0),
    )
    keys: dict[int, int] = {}
    with live(app, partitions=1, drain_s=0.3) as worker:
        for number in range(200):
            verb = noise.choices(["nothing", "leave", "write_for_ever", "rest"], [190, 4, 1, 5])[0]
            keys[number] = noise.randrange(8)
            send(worker, verb, tmp_path, key=b"k%d" % keys[number])
        for part in (40, 80, 120):
            worker.until(lambda part=part: len(lines(tmp_path, "begun")) > part)
            worker.broker.rebalance()
        worker.until(worker.settled)
        assert worker.loop.engine.flow.open_count == 0
        dead = {record.origin.offset for record in worker.dlq("orders")}
    begun = [(int(line[1]), line[3]) for line in lines(tmp_path, "begun")]
    ended = {int(line[1]) for line in lines(tmp_path, "ended")}
    assert ended | dead == set(range(200))
    for key in range(8):
        firsts = list(dict.fromkeys(offset for offset, _ in begun if keys[offset] == key))
        assert firsts == sorted(firsts)


# What replaces a process.


@LINUX
def test_a_handler_beyond_the_memory_limit_is_killed(tmp_path: Path) -> None:
    """Its record is charged with a crash, and told why."""
    app = app_of(process_memory_limit="192MiB", retry=RetryPolicy(max_redeliveries=0))
    with live(app) as worker:
        send(worker, "take_memory", tmp_path, 400)
        send(worker, "nothing", tmp_path)
        worker.until(lambda: worker.settled() and worker.dlq("orders"))
        (dead,) = worker.dlq("orders")
    assert dead.error_type == "ProcessCrash"
    assert "above its limit of 201,326,592" in dead.error_message
    assert len(lines(tmp_path, "ended")) == 1


@LINUX
def test_a_process_that_has_grown_is_replaced_between_two_records(tmp_path: Path) -> None:
    """What leaks a little at a time is handled, by one process after the other."""
    with live(app_of(process_memory_limit="256MiB")) as worker:
        for _ in range(12):
            send(worker, "leak", tmp_path, 40)
        # On a slow machine one may be charged all the same, and comes again.
        worker.until(lambda: len(lines(tmp_path, "ended")) >= 12)
    assert len({line[0] for line in lines(tmp_path, "ended")}) > 1


def test_a_process_is_replaced_after_so_many_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none handles more."""
    # One that stands still for a moment gives back what it has not begun, and handles fewer.
    monkeypatch.setattr(work, "STUCK_S", 60.0)
    with live(app_of(process_max_records=5)) as worker:
        for _ in range(17):
            send(worker, "nothing", tmp_path)
        worker.until(worker.settled)
    per_process = Counter(line[0] for line in lines(tmp_path, "ended"))
    assert sorted(per_process.values()) == [2, 5, 5, 5]


# What is known and possible there.


@LINUX
def test_a_process_knows_its_delivery_and_has_no_socket_but_its_own(tmp_path: Path) -> None:
    """Key, headers and attempt arrive; nothing of the worker's is inherited."""
    with live(app_of()) as worker:
        worker.broker.produce(
            "orders", f"look_around {tmp_path}".encode(), key=b"\xff", headers=[("h", None)]
        )
        worker.until(worker.settled)
        assert worker.parked("orders") == []
    (seen,) = (tmp_path / "seen").read_text().splitlines()
    assert seen == repr(("orders", b"\xff", [("h", None)], 1, 1))


def test_signals_are_the_workers_business(tmp_path: Path) -> None:
    """Ctrl-C, SIGTERM and SIGHUP do nothing to a handler."""
    with live(app_of()) as worker:
        send(worker, "ignore_signals", tmp_path)
        worker.until(worker.settled)
        assert worker.parked("orders") == []


def test_outcomes_carry_what_they_carry_in_threads(tmp_path: Path) -> None:
    """Type, text, place in user code and fingerprint; a discard is told."""
    app = app_of(retry=RetryPolicy(max_redeliveries=0))
    app.handler("calls", name="calls", retry=RetryPolicy(max_redeliveries=0))(handlers.do)
    app.handler("counts", name="counts", executor="process", concurrency=1)(handlers.take_order)
    with live(app) as worker:
        for topic in ("orders", "calls"):
            worker.send(topic, f"fail {tmp_path}".encode())
        worker.send("counts", b'{"number": "many"}')
        send(worker, "discard", tmp_path)
        send(worker, "publish", tmp_path)
        send(worker, "publish_async", tmp_path)
        worker.until(worker.settled)
        first, refused, not_awaited = sorted(
            worker.dlq("orders"), key=lambda dead: dead.origin.offset
        )
        (undecodable,) = worker.dlq("counts")
        (discarded,) = worker.watcher.told(RecordDiscarded)
        here, there = (
            read_envelope(worker.broker.records(dlq_topic(topic, "g"))[0].headers())
            for topic in ("calls", "orders")
        )
    assert (there.error_type, there.error_message) == ("LookupError", "no such account")
    assert "in fail" in (there.error_stack or "")
    assert there.error_fingerprint == here.error_fingerprint
    assert first.reason == "exhausted"
    assert (undecodable.reason, undecodable.value) == ("decode", b'{"number": "many"}')
    assert discarded.reason == "a test order"
    assert "can't publish" in refused.error_message
    assert "can't publish" in not_awaited.error_message


def test_the_lifespan_is_entered_and_left_in_each_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler gets the state of its own process; the worker's own is another."""
    monkeypatch.setenv("PROCESS_TEST_FOLDER", str(tmp_path))
    app = App("g", lifespan=handlers.lifespan)
    app.handler("orders", executor="process", concurrency=2)(handlers.use_state)
    with live(app) as worker:
        worker.send("orders", n=20)
        worker.until(worker.settled)
        worker.until(lambda: len(lines(tmp_path, "entered")) == 3)
        assert worker.close() == 0
    used = lines(tmp_path, "used")
    assert len(used) == 20
    assert all(own == state for own, state, _ in used)
    assert str(os.getpid()) not in {own for own, _, _ in used}
    assert {tuple(line) for line in lines(tmp_path, "entered")} == {
        (pid, "g") for (pid,) in lines(tmp_path, "left")
    }


def test_a_process_that_loses_its_lifespan_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What it yielded is closed: no record is handled with that for longer than need be."""
    monkeypatch.setenv("PROCESS_TEST_FOLDER", str(tmp_path))
    app = App("g", lifespan=handlers.fragile)
    app.handler("orders", executor="process", concurrency=1)(handlers.end_state)
    with live(app) as worker:
        worker.send("orders", b"end")
        worker.until(lambda: len(lines(tmp_path, "entered")) == 3, "the next process")
        worker.send("orders", b"next")
        worker.until(worker.settled)
        assert not worker.worker.inbox.broken
        assert worker.close() == 0
    [(first, _), (second, _)] = lines(tmp_path, "used")
    assert first != second
    assert "database away" in capfd.readouterr().err


# The end, and the beginning.

WORKER = """
import sys
from pathlib import Path
from tests.framework.runtime.live import live
from tests.framework.runtime.executors.process.test_process_executor import app_of, send
with live(app_of()) as worker:
    send(worker, "write_for_ever", Path(sys.argv[1]))
    worker.until(lambda: False)
"""


@LINUX
def test_processes_die_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    """In the middle of a handler that never looks up."""
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)])
    try:
        within(lambda: lines(tmp_path, "begun"), "the handler's start")
        ((pid, *_),) = lines(tmp_path, "begun")
        assert runs(int(pid))
    finally:
        worker.kill()
        worker.wait(60)
    within(lambda: not runs(int(pid)), "the end of the handler's process")


def test_what_does_not_end_in_time_is_killed_and_comes_again(tmp_path: Path) -> None:
    """At the end of a worker: no attempt is spent, and no process is left."""
    with live(app_of(), shutdown_s=0.3) as worker:
        send(worker, "wait_for", tmp_path)
        worker.until(lambda: lines(tmp_path, "begun"))
        (delivery,) = worker.executor().running()
        ((pid, *_),) = lines(tmp_path, "begun")
        assert worker.executor().stack(delivery) == (f"process {pid}",)
        assert worker.close() == 1
        broker = worker.broker
    ((pid, *_),) = lines(tmp_path, "begun")
    if sys.platform.startswith("linux"):
        assert not runs(int(pid))
    (tmp_path / "open").touch()
    with live(app_of(), broker=broker) as worker:
        worker.until(worker.settled)
        assert worker.parked("orders") == []
    assert [line[2] for line in lines(tmp_path, "begun")] == ["1", "1"]


def test_a_handler_that_can_not_be_imported_there_ends_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what its process said."""
    monkeypatch.setenv("PROCESS_TEST_BROKEN", "1")
    why = r"handle: .*this module can't be imported today"
    with pytest.raises(StartError, match=why), live(app_of()):
        pass


def test_processes_that_can_not_be_replaced_are_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records stay open and wait; when the trouble is over, work goes on by itself."""
    with live(app_of(retry=SOON)) as worker:
        monkeypatch.setenv("PROCESS_TEST_BROKEN", "1")
        send(worker, "leave", tmp_path)
        send(worker, "nothing", tmp_path)
        faults = worker.loop.engine.faults
        worker.until(lambda: any("no process starts" in fault.message for fault in faults.all()))
        monkeypatch.delenv("PROCESS_TEST_BROKEN")
        worker.until(lambda: lines(tmp_path, "ended"))
        worker.until(lambda: not any("no process" in fault.message for fault in faults.all()))


def test_the_test_kit_runs_it_on_a_thread_of_the_test(tmp_path: Path) -> None:
    """Where what it does can be seen, and time can be moved."""
    app = app_of(process_max_records=1, consume_timeout="30s", retry=RetryPolicy.fixed("5s", 1))
    with Harness(app) as h:
        h.send("orders", f"nothing {tmp_path}")
        h.send("orders", f"wait_for {tmp_path}")
        h.advance("30s")
        assert [record.reason for record in h.parked("orders")] == ["timeout"]
        (tmp_path / "open").touch()
        h.advance("6s")
        assert len(h.handled()) == 2
    assert {line[0] for line in lines(tmp_path, "ended")} == {str(os.getpid())}


# Registration.


def local() -> Iterator[Any]:
    """Functions without a name that another process could import."""

    def inner(value: bytes) -> None: ...

    yield inner
    yield lambda value: None


@pytest.mark.parametrize("function", [*local()], ids=["local", "lambda"])
def test_a_function_without_a_name_of_its_own_is_refused(function: Any) -> None:
    """When it is registered."""
    with pytest.raises(ConfigError, match=r"handlers.handle.executor=.*to import it by name"):
        app_of(function)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"ack": "manual"},
            "handlers.handle.ack='manual': a process handler answers by its return",
        ),
        ({"process_memory_limit": "much"}, "process_memory_limit='much': not a size"),
        ({"process_memory_limit": 0}, "process_memory_limit=0: not a positive whole number"),
        ({"process_max_records": 0}, "process_max_records=0: not a positive whole number"),
        ({"process_max_records": True}, "process_max_records=True: not a positive whole number"),
    ],
)
def test_options_that_can_not_be_meant_are_refused(options: dict[str, Any], told: str) -> None:
    """With field, value and fix."""
    with pytest.raises(ConfigError) as refused:
        app_of(**options)
    assert told in str(refused.value)


def test_options_of_processes_need_processes() -> None:
    """Elsewhere they would mean nothing."""
    with pytest.raises(ConfigError, match="'thread', which has no processes of its own"):
        App("g").handler("orders", process_max_records=5)(handlers.do)


def test_an_async_handler_has_no_processes() -> None:
    """It is the `def` that can block."""

    async def handle(value: bytes) -> None: ...

    with pytest.raises(ConfigError, match="runs on 'async'"):
        App("g").handler("orders", executor="process")(handle)


class Unpicklable:
    """A decoder that holds what can't be sent."""

    def __init__(self) -> None:
        self.held = (line for line in ())

    def decode(self, data: bytes, record: object) -> object:
        return data


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"decoder": Unpicklable()}, "handlers.handle.decoder='Unpicklable'"),
        ({"middleware": [lambda delivery, call_next: call_next()]}, "handlers.handle.middleware="),
        ({"dead_letter_on": (type("Odd", (Exception,), {}),)}, "handlers.handle.dead_letter_on="),
    ],
)
def test_what_another_process_can_not_have_is_refused_at_the_start(
    options: dict[str, Any], field: str
) -> None:
    """By the name of the piece."""
    app = app_of(**options)
    (spec,) = app.handlers
    with pytest.raises(ConfigError) as refused:
        plan_of(app, spec, read_signature(spec.function, handler=spec.name))
    assert field in str(refused.value)
    assert "another process can't import it" in str(refused.value)


@pytest.mark.parametrize("option", ["key", "headers"])
def test_a_function_of_results_that_another_process_can_not_have_is_refused(option: str) -> None:
    """By its name."""
    to: Any = To("bills", **{option: lambda result: result})
    app = app_of(handlers.double, output="exactly_once", to=to)
    (spec,) = app.handlers
    with pytest.raises(ConfigError) as refused:
        plan_of(app, spec, read_signature(spec.function, handler=spec.name, results=True))
    assert f"handlers.handle.to.{option}=" in str(refused.value)
    assert "another process can't import it" in str(refused.value)


def test_the_main_module_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has another one."""
    app = app_of()
    (spec,) = app.handlers
    monkeypatch.setattr(handlers.do, "__module__", "__main__")
    with pytest.raises(ConfigError, match="defined in the main module"):
        plan_of(app, spec, read_signature(spec.function, handler=spec.name))
