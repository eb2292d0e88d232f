"""Process handlers in a whole run: kills, crashes, a worker that is killed, and an orderly end."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
import pytest

from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, gone, started
from tests.e2e.test_crash_suspects import dead_letters, headers

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

BODY = """
import ctypes, logging

app = App("GROUP")


@app.handler(
    "TOPIC",
    executor="process",
    concurrency=2,
    ordering="key",
    on_failure="park",
    consume_timeout="2s",
    retry=RetryPolicy.fixed("100ms", 2),
)
def bill(value: bytes, delivery: Delivery) -> None:
    note(started, delivery)
    if value == b"segfault":
        ctypes.string_at(0)
    if value == b"hang":
        logging.getLogger("shop").warning("hanging")
        while True:
            time.sleep(0.001)
            note(beats, delivery)
    time.sleep(0.001)
    note(handled, delivery)


beats = os.open("beats", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
"""


def test_what_hangs_or_crashes_costs_nobody_else(make_stage: Callable[..., Stage]) -> None:
    """Three timeouts and three crashes later both are dead letters, and all others are handled.

    Also when the worker is killed in the middle: its processes go with it, its successor goes on.
    """
    stage = make_stage(BODY, session_s=6)
    for n in range(300):
        stage.produce(1, key=b"%d" % (n % 20))
    stage.produce(1, b"hang", key=b"h")
    stage.produce(1, b"segfault", key=b"s")
    for n in range(300):
        stage.produce(1, key=b"%d" % (n % 20))
    run = stage.run(ACKFLOOR_APP__STATIC_MEMBERSHIP="true")
    run.until(lambda: stage.noted("beats"), "the handler that hangs")
    (worker,) = started(run, 1)
    processes = [child.pid for child in psutil.Process(worker).children()]
    assert processes
    psutil.Process(worker).kill()
    assert all(gone(pid) for pid in processes)
    run.until(lambda: stage.records() == 600, "the others")
    # What was parked just before the kill may come twice.
    run.until(lambda: len({m.value() for m in dead_letters(stage)}) == 2, "the dead letters")
    told = {message.value(): headers(message) for message in dead_letters(stage)}
    assert told[b"segfault"]["ackfloor.reason"] == "crash"
    assert "SIGSEGV" in told[b"segfault"]["ackfloor.error.message"]
    assert told[b"hang"]["ackfloor.error.type"] == "ConsumeTimeout"
    assert told[b"hang"]["ackfloor.timeouts"] == "3"
    hanging = run.logged("hanging")
    assert "worker-0/bill" in hanging
    assert stage.topic in hanging, "the delivery is named"
    processes = [child.pid for child in psutil.Process(started(run, 2)[-1]).children()]
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    assert all(gone(pid) for pid in processes)


BATCHES = """
import ctypes

app = App("GROUP")


@app.handler(
    "TOPIC",
    executor="process",
    concurrency=2,
    batch=25,
    batch_wait="50ms",
    consume_timeout="2s",
    retry=RetryPolicy.fixed("100ms", 2),
)
def bill(values: list[bytes], deliveries: list[Delivery]) -> None:
    for value, delivery in zip(values, deliveries, strict=True):
        note(started, delivery)
        if value == b"segfault":
            ctypes.string_at(0)
        while value == b"hang":
            time.sleep(0.001)
            note(beats, delivery)
        note(handled, delivery)
        if delivery.offset % 2:
            delivery.ack()


beats = os.open("beats", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
"""


def test_a_batch_that_hangs_or_crashes_costs_its_other_records_nothing(
    make_stage: Callable[..., Stage],
) -> None:
    """Both culprits are dead letters by their own doing, and all others are handled.

    Also when the worker is killed while a batch hangs.
    """
    stage = make_stage(BATCHES, session_s=6)
    stage.produce(300)
    stage.produce(1, b"hang")
    stage.produce(300)
    run = stage.run(ACKFLOOR_APP__STATIC_MEMBERSHIP="true")
    run.until(lambda: stage.noted("beats"), "the batch that hangs")
    (worker,) = started(run, 1)
    processes = [child.pid for child in psutil.Process(worker).children()]
    assert processes
    psutil.Process(worker).kill()
    assert all(gone(pid) for pid in processes)
    stage.produce(1, b"segfault")
    run.until(lambda: stage.records() == 600, "the others")
    # What was parked just before the kill may come twice.
    run.until(lambda: len({m.value() for m in dead_letters(stage)}) == 2, "the dead letters")
    told = {message.value(): headers(message) for message in dead_letters(stage)}
    assert told[b"segfault"]["ackfloor.reason"] == "crash"
    assert told[b"segfault"]["ackfloor.attempt"] == "3"
    assert told[b"hang"]["ackfloor.error.type"] == "ConsumeTimeout"
    assert told[b"hang"]["ackfloor.timeouts"] == "3"
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def test_a_handler_that_can_not_run_in_a_process_ends_the_run(
    make_stage: Callable[..., Stage],
) -> None:
    """Before a worker is started, with the piece at fault."""
    run = make_stage(
        """
class Decoder:
    def __init__(self):
        self.lock = threading.Lock()

    def decode(self, data, record):
        return data


app = App("GROUP")


@app.handler("TOPIC", executor="process", decoder=Decoder())
def bill(value: bytes) -> None: ...
"""
    ).run()
    assert run.wait() == Exit.START
    assert "handlers.bill.decoder='Decoder': another process can't import it" in "\n".join(
        run.lines
    )
