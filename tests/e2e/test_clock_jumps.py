"""The wall clock of a run jumps by an hour: nobody waits for it, and the run still ends when told.

Nothing here would come within the tests' patience if it waited for the clock to catch up. The clock
is that of the run's processes alone: a preloaded library moves it, and with it every wait that goes
by it, as the kernel does (`clock_jump.c`).
"""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, page, ready, reasons, started
from tests.framework.cli.command import Running

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="the library is for glibc"),
]

HOUR_S = 3_600
#: What is written with a time beyond an hour ahead of its own, a broker refuses.
AHEAD_S = HOUR_S - 60
#: Seconds between two snapshots of a quiet worker, and some more.
LOOKED_AT_S = 4.0
#: Seconds: of the worker that is killed, the partitions move on after it.
SESSION_S = 6

#: Hangs at its first delivery for longer than the test, and would be timed out.
QUIET = """
app = App("GROUP")


@app.handler("TOPIC", consume_timeout="4s", retry=RetryPolicy.fixed("1s"))
async def bill(delivery: Delivery, order: dict[str, int]) -> None:
    note(started, delivery)
    if order.get("hangs") and not opened("gate"):
        await asyncio.sleep(1_000)
    note(handled, delivery)
"""

#: A few records fail once, and are retried after three seconds.
BUSY = """
app = App("GROUP")


@app.handler("TOPIC", consume_timeout="8s", retry=RetryPolicy.fixed("3s"))
async def bill(delivery: Delivery) -> None:
    if delivery.attempt == 1 and delivery.origin.offset % 5 == 0:
        raise RuntimeError("not yet")
    note(handled, delivery)
"""


class Clock:
    """The wall clock of what runs with its environment."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._file.write_bytes(bytes(8))
        library = folder / "clock_jump.so"
        source = Path(__file__).with_name("clock_jump.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_JUMP_FILE": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Set the clock, from one moment to the next."""
        # In place: it is the memory of those who have it.
        with self._file.open("r+b") as memory:
            memory.write(struct.pack("q", seconds * 1_000_000_000))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    """A clock that is right so far."""
    return Clock(tmp_path)


@pytest.fixture
def start(make_stage: Callable[..., Stage], clock: Clock) -> Callable[..., tuple[Stage, Running]]:
    """Starts a run of one worker by the clock."""

    def start_one(body: str, **given: str) -> tuple[Stage, Running]:
        stage = make_stage(body, partitions=1, session_s=SESSION_S)
        run = stage.run(**clock.environment, **given)
        run.until(ready(run), "ready")
        return stage, run

    return start_one


def retried(stage: Stage, beyond: int = 0) -> Callable[[], bool]:
    """Whether more than so many retries were handled."""
    return lambda: sum(name.endswith("#2") for name in stage.noted()) > beyond


def replaced(run: Running) -> Callable[[], bool]:
    """Whether there has been a second worker, and it is at work."""
    return lambda: len(started(run, 2)) == 2 and ready(run)()


def test_a_quiet_worker_whose_clock_is_set_back_is_replaced(
    start: Callable[..., tuple[Stage, Running]], clock: Clock
) -> None:
    """Its handler's time is over, nobody notices it, and the record is none the worse for it."""
    stage, run = start(QUIET)
    stage.produce(1, b'{"hangs": 1}')
    run.until(lambda: stage.noted("started"), "the start of a handler")
    clock.jump(-HOUR_S)
    run.until(replaced(run), "the replacement")
    assert not [line for line in run.drain() if "died while it handled" in line]
    stage.open_gate()
    stage.produce(1)
    run.until(lambda: stage.records() == 2, "both are handled")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def test_the_clock_is_set_back_under_traffic(
    start: Callable[..., tuple[Stage, Running]], clock: Clock
) -> None:
    """Records that come, and retries that wait, do not wait for an hour."""
    stage, run = start(BUSY)
    with stage.flow(rate=50):
        run.until(retried(stage), "the first retries")
        clock.jump(-HOUR_S)
        run.until(replaced(run), "the replacement")
    written = stage.end_of(stage.topic)
    run.until(lambda: stage.records() == written, "all retries")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def test_sigterm_ends_a_run_whose_clock_was_set_back(
    start: Callable[..., tuple[Stage, Running]], clock: Clock
) -> None:
    """Not after the shutdown timeout, which a worker that stands still would use up."""
    _, run = start(QUIET, ACKFLOOR_APP__SHUTDOWN_TIMEOUT="1h")
    clock.jump(-HOUR_S)
    run.signal(signal.SIGTERM)
    assert run.wait() in {Exit.OK, Exit.FORCED}
    assert len(started(run, 1)) == 1


def test_a_clock_that_is_set_forward_changes_nothing(
    start: Callable[..., tuple[Stage, Running]], clock: Clock
) -> None:
    """Quiet, the run stays alive and ready; under traffic every retry comes."""
    stage, run = start(BUSY)
    clock.jump(HOUR_S // 2)
    until_s = time.monotonic() + LOOKED_AT_S
    while time.monotonic() < until_s:
        assert page(run, "/livez")[0] == 200
        assert reasons(run) == []
    with stage.flow(rate=50):
        run.until(retried(stage), "the first retries")
        clock.jump(AHEAD_S)
        # Those that fail from now on are due beyond the jump.
        run.until(retried(stage, 40), "more retries")
    written = stage.end_of(stage.topic)
    run.until(lambda: stage.records() == written, "all retries")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    assert len(started(run, 1)) == 1
