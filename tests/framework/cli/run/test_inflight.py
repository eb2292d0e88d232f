"""`ackfloor inflight`: what a run says of its running handlers, and what it does not name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ackfloor.cli.handlers.scarce_slots import full_slot_remarks, noisy_key_remarks
from ackfloor.cli.main import cli
from ackfloor.core.values.setting_error import SettingError
from ackfloor.observe import (
    BlockedLanes,
    HandlerSnapshot,
    LongSlots,
    NoisyKey,
    NoisyKeys,
    RunningDelivery,
)
from ackfloor.operations.run_client import ControlFailed
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from ackfloor_monitoring.serving.http_server import PageServer, Request, Response
from tests.monitoring.samples import NOW_MS, handler, snapshot

OLDEST = (
    RunningDelivery("orders", 0, 100, 1, 31.25, 13.75, ("/shop/orders.py:41 bill",), 19),
    RunningDelivery("orders--billing--retry-5s", 3, 7, 2, 0.5, -0.25),
    RunningDelivery("orders", 1, 9, 1, 0.25),
)


@pytest.fixture
def listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a run of three workers: one works, one is starting, one is missing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    run = RunMetrics("billing", 3, now_ms=lambda: NOW_MS + 1_000)
    works, starts = WorkerMetrics(), WorkerMetrics()
    works.snapshot(snapshot(handlers=(handler(running=5, abandoned=1, oldest=OLDEST),)))
    run.update(0, works.report())
    run.update(1, starts.report())
    yield run.start("127.0.0.1:0")
    run.stop()


def ended(*arguments: str) -> Result:
    """The command, run to its end."""
    return CliRunner().invoke(cli, ["inflight", *arguments])


def test_the_longest_running_come_first(listen: str) -> None:
    """With the time since the run last looked added; what is not named is told."""
    done = ended("--listen", listen, "-o", "json")
    rows = json.loads(done.stdout)
    assert [(row["record"], row["running_s"], row["left_s"]) for row in rows] == [
        ("orders/0/100", 32.2, 12.8),
        ("orders--billing--retry-5s/3/7", 1.5, -1.2),
        ("orders/1/9", 1.2, None),
    ]
    assert [row["behind"] for row in rows] == [19, 0, 0]
    assert "stack" not in rows[0]
    assert {(row["handler"], row["worker"]) for row in rows} == {("bill", 0)}
    for text in (
        "worker 0: 2 more of bill are running",
        "worker 0: 1 abandoned handlers of bill go on",
        "worker 1 is starting",
        "workers without a report: 1",
    ):
        assert text in done.stderr


def told(*handlers: HandlerSnapshot) -> list[str]:
    """What the command says, beside its table, of a run with a worker for each of these."""
    run = RunMetrics("billing", len(handlers), now_ms=lambda: NOW_MS + 1_000)
    for number, each in enumerate(handlers):
        worker = WorkerMetrics()
        worker.snapshot(snapshot(handlers=(each,)))
        run.update(number, worker.report())
    try:
        done = ended("--listen", run.start("127.0.0.1:0"))
    finally:
        run.stop()
    assert done.exit_code == 0
    return done.stderr.splitlines()


#: A handler of which nothing has to be said.
WELL = handler(
    running=0,
    abandoned=0,
    oldest=(),
    blocked=BlockedLanes(),
    quarantined=BlockedLanes(),
    noisy_keys=NoisyKeys(),
    long_slots=LongSlots(),
)


def test_noisy_and_hanging_keys_are_told_of_all_workers_together() -> None:
    """The newest of them by name, in one line whatever is in it."""
    flood = NoisyKey("flood\x1b[2J\n", hanging=False, running=7, behind=4_000)
    sick = NoisyKey("sick", hanging=True, running=1, behind=12)
    hidden = NoisyKey(None, hanging=True, running=0, behind=1)
    first = replace(WELL, noisy_keys=NoisyKeys(1, 1, 4_012, (flood, sick), 12))
    second = replace(WELL, noisy_keys=NoisyKeys(0, 1, 1, (hidden,), 1))
    other = replace(WELL, name="ship", noisy_keys=NoisyKeys(1, 0, 1, (flood,)))
    assert told(first, second, other, WELL) == [
        f"{name}, {behind}; the newest: {newest}"
        for name, behind, newest in (
            (
                "bill: 1 noisy key, 2 hanging keys, 8 records in flight",
                "4013 records behind (13 of hanging keys)",
                "flood\\x1b[2J (noisy), sick (hanging), (not shown) (hanging)",
            ),
            ("ship: 1 noisy key, 7 records in flight", "1 record behind", "flood\\x1b[2J (noisy)"),
        )
    ]


@pytest.mark.parametrize(
    ("left_s", "timeout_s", "end", "now"),
    [
        (13.75, 45.0, "13s before its deadline", "45s"),
        (0.9, 45.0, "beyond its deadline", "45s"),
        (None, None, "without a deadline", "none"),
    ],
)
def test_slots_that_are_all_held_for_long_are_told(
    left_s: float | None, timeout_s: float | None, end: str, now: str
) -> None:
    """With the time since the worker looked added, and with what frees them."""
    oldest = (replace(OLDEST[0], left_s=left_s),)
    full = replace(
        WELL,
        running=1,
        oldest=oldest,
        consume_timeout_s=timeout_s,
        long_slots=LongSlots(64, 1.2, full=True),
    )
    nearly = replace(full, long_slots=LongSlots(63, 1.2))
    (line,) = told(nearly, full)
    assert line == (
        "worker 1: all 64 slots of bill are held by deliveries that run far longer than usual, "
        f"the longest for 32s, {end}; a shorter handlers.bill.consume_timeout ({now} now) frees "
        "them sooner"
    )


def test_an_older_run_tells_nothing_of_its_keys() -> None:
    """Its state has no such fields."""
    old = {"now_ms": NOW_MS, "workers": {"0": {"taken_ms": NOW_MS, "handlers": [{"name": "x"}]}}}
    assert [*noisy_key_remarks(old), *full_slot_remarks(old)] == []


def test_a_trace_says_where(listen: str) -> None:
    """As JSON a list; below a table one line a frame, and the table is as wide as without."""
    rows = json.loads(ended("--listen", listen, "--trace", "-o", "json").stdout)
    assert [row["stack"] for row in rows] == [["/shop/orders.py:41 bill"], [], []]
    table = ended("--listen", listen, "--trace").stdout
    assert "\norders/0/100 (bill)\n  /shop/orders.py:41 bill\n" in table
    assert table.startswith(ended("--listen", listen).stdout)


def test_records_at_one_place_share_its_stack() -> None:
    """The longest-running of them by name; another handler's stack stands apart."""
    frames = ("/shop/bank.py:7 pay", "/lib/socket.py:9 recv")
    hang = [
        replace(OLDEST[0], offset=n, running_s=90.0 - n, left_s=None, stack=frames)
        for n in range(5)
    ]
    elsewhere = replace(hang[0], offset=9, running_s=80.0, stack=frames[:1])
    bill = replace(WELL, running=6, oldest=(*hang, elsewhere))
    ship = replace(WELL, name="ship", running=1, oldest=(replace(hang[0], offset=7),))
    run = RunMetrics("billing", 1, now_ms=lambda: NOW_MS + 1_000)
    worker = WorkerMetrics()
    worker.snapshot(snapshot(handlers=(bill, ship)))
    run.update(0, worker.report())
    try:
        shown = ended("--listen", run.start("127.0.0.1:0"), "--trace").stdout
    finally:
        run.stop()
    below = shown[shown.index("\norders/0/0, ") + 1 :]
    assert below == (
        "orders/0/0, orders/0/1, orders/0/2 and 2 more (bill)\n"
        "  /shop/bank.py:7 pay\n  /lib/socket.py:9 recv\n"
        "orders/0/7 (ship)\n  /shop/bank.py:7 pay\n  /lib/socket.py:9 recv\n"
        "orders/0/9 (bill)\n  /shop/bank.py:7 pay\n"
    )


def test_the_young_can_be_left_out(listen: str) -> None:
    """A bare number is no time."""
    rows = json.loads(ended("--listen", listen, "--older-than", "30s", "-o", "json").stdout)
    assert [row["record"] for row in rows] == ["orders/0/100"]
    assert ended("--listen", listen, "--older-than", "1h", "-o", "csv").stdout.count("\n") == 1
    assert isinstance(ended("--older-than", "30").exception, SettingError)


def test_where_no_run_is_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody there, somebody else there, no address at all."""
    monkeypatch.chdir(tmp_path)
    other = PageServer({"/state": _not_json, "/": _not_json})
    try:
        address = other.start("127.0.0.1:0")
        for listen, why in (
            ("127.0.0.1:1", "no run answers at 127.0.0.1:1"),
            (address, "is no run of ackfloor"),
            ("nowhere", "not an address"),
        ):
            done = ended("--listen", listen)
            assert isinstance(done.exception, ControlFailed)
            assert why in str(done.exception)
    finally:
        other.stop()


def _not_json(_request: Request) -> Response:
    return Response(200, "text/plain", b"hello")


def test_a_key_that_hangs_in_two_workers_is_one_key_with_all_its_records() -> None:
    """Its retry topic is another worker's; records of an unordered handler run side by side."""
    stuck = NoisyKeys(0, 1, 0, (NoisyKey("globex", hanging=True, running=8, behind=0),))
    both = replace(WELL, noisy_keys=stuck)
    assert told(both, both) == [
        "bill: 1 hanging key, 16 records in flight, nothing behind; the newest: globex (hanging)"
    ]
