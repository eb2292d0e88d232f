"""The leash: a program never outlives whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ackfloor.testing.local_kafka.processes import ProcessIdentity
from ackfloor_handlers.demo import lifeline as leash

Popen = subprocess.Popen[bytes]
TELL_AND_WAIT = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
child = {child}
print(os.getpid(), child and subprocess.Popen(["sleep", "600"]).pid or 0, flush=True)
time.sleep(600)
"""


@pytest.fixture
def held() -> Iterator[list[Popen]]:
    """Leashes to be let go of, however the test ends."""
    started: list[Popen] = []
    yield started
    for process in started:
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(60)
        process.stdout.close()  # type: ignore[union-attr]


def hold(held: list[Popen], source: str, lower_by: int = 0) -> Popen:
    """A Python program on a leash."""
    process = subprocess.Popen(
        [sys.executable, "-P", leash.__file__, str(lower_by), sys.executable, "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    held.append(process)
    return process


def told(process: Popen) -> list[ProcessIdentity]:
    """The processes that the program on the leash tells of."""
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    found = [ProcessIdentity.of(pid) for pid in pids if pid]
    return [identity for identity in found if identity is not None]


def test_the_exit_code_is_the_program_s(held: list[Popen]) -> None:
    """Whoever waits for the leash learns how the program ended."""
    assert hold(held, "raise SystemExit(3)").wait(60) == 3


def test_the_program_steps_back_by_as_much_as_it_is_told(held: list[Popen]) -> None:
    """Spark's first report takes what the workers leave of the processors."""
    own = os.nice(0)
    process = hold(held, "import os, sys; sys.exit(os.nice(0))", lower_by=5)
    # An exit code is a byte: of one who is ahead of others it is the rest.
    assert process.wait(60) == min(own + 5, 19) % 256


def test_a_signal_is_passed_on(held: list[Popen]) -> None:
    """SIGTERM to the leash is SIGTERM to the program, which ends in its own way."""
    process = hold(held, TELL_AND_WAIT.format(child=False))
    (program,) = told(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 7
    assert not program.alive


def test_the_program_ends_when_the_pipe_does(held: list[Popen]) -> None:
    """However the owner ended: the pipe is closed then."""
    process = hold(held, TELL_AND_WAIT.format(child=False))
    (program,) = told(process)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 7
    assert not program.alive


def test_what_the_program_left_in_its_session_ends_too(held: list[Popen]) -> None:
    """A child that the program forgot is killed a few seconds after it."""
    process = hold(held, TELL_AND_WAIT.format(child=True))
    program, child = told(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 7
    assert not program.alive
    assert child.gone_within(60)
