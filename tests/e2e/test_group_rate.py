"""A rate for the group, on a real broker: workers of several runs come, go and are killed."""

from __future__ import annotations

import os
import signal
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence

import pytest

from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, page, ready, started
from tests.framework.cli.command import Running
from tests.written import whole_lines

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

PARTITIONS = 6
PER_S = 100
#: Over so many seconds at most so much of it.
WINDOW_S = 10.0
MOST = 1.05
#: So much of it at least while every partition has an owner and records.
LEAST = 0.9
#: Different keys, so that every partition has more than the test takes, and records of each.
KEYS, OF_EACH = 120, 80

APP = """
app = App("GROUP")
retry = RetryPolicy.fixed("1s", 3)
starts = os.open("starts", os.O_APPEND | os.O_CREAT | os.O_WRONLY)


@app.handler("TOPIC", rate="100/s", retry=retry, breaker=None)
async def bill(value: bytes, delivery: Delivery) -> None:
    # The clock of the whole machine: all workers have the same.
    os.write(starts, f"{time.monotonic()} {delivery.attempt}\\n".encode())
    if delivery.offset % 10 == 0 and delivery.attempt == 1 and delivery.topic == "TOPIC":
        raise ValueError("once")
"""


def parts(*runs: Running) -> float:
    """The parts of the rate that all workers have, in records a second."""
    found = 0.0
    for run in runs:
        workers = page(run, "/state")[1]["workers"].values()
        handlers = [handler for worker in workers if worker for handler in worker["handlers"]]
        found += sum(handler["rate"]["worker_per_s"] for handler in handlers)
    return found


def starts_s(stage: Stage) -> list[float]:
    """When deliveries were started so far, in order."""
    return sorted(float(line.split()[0]) for line in whole_lines(stage.folder / "starts"))


def most_in(starts: Sequence[float], seconds: float) -> int:
    """The most that was started in any stretch of so many seconds."""
    return max(bisect_left(starts, at + seconds) - n for n, at in enumerate(starts))


def test_no_more_is_started_than_the_rate_whoever_comes_and_goes(
    make_stage: Callable[..., Stage],
) -> None:
    """Nor less, while every partition has an owner; redeliveries included."""
    stage = make_stage(APP, partitions=PARTITIONS, session_s=6)
    for key in range(KEYS):
        stage.produce(OF_EACH, key=b"%d" % key)
    first, second = stage.run("--workers", "2"), stage.run()

    def steady(*runs: Running) -> None:
        """Wait until every partition has an owner, and look at what is started from then on."""
        for run in runs:
            run.until(ready(run), "ready")
        runs[0].until(lambda: parts(*runs) >= PER_S - 0.01, "an owner for every partition")
        from_s = time.monotonic()
        until_s = from_s + WINDOW_S
        runs[0].until(lambda: time.monotonic() >= until_s, "so much time")
        starts = starts_s(stage)
        count = bisect_left(starts, until_s) - bisect_left(starts, from_s)
        assert count >= LEAST * PER_S * WINDOW_S

    steady(first, second)
    os.kill(started(first, 2)[0], signal.SIGKILL)
    third = stage.run()
    steady(first, second, third)
    for run in (first, second, third):
        run.signal(signal.SIGTERM)
    assert [run.wait() for run in (first, second, third)] == [Exit.OK] * 3
    starts = starts_s(stage)
    assert most_in(starts, WINDOW_S) <= MOST * PER_S * WINDOW_S
    attempts = {line.split()[1] for line in whole_lines(stage.folder / "starts")}
    assert attempts >= {"1", "2"}
