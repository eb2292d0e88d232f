"""A worker process by itself, without a broker: what it says, and that it always ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackfloor.runtime.supervision import channel
from ackfloor.runtime.supervision.channel import Kind
from ackfloor.runtime.supervision.exit_codes import Exit

pytestmark = pytest.mark.e2e

PATIENCE_S = 120.0
APP = """
from ackfloor import App

app = App("billing")


@app.handler("orders")
async def bill(order: bytes) -> None: ...
"""


#: The worker with a start that never ends, and with less patience of its own.
STUCK = """
import os, sys, time
import ackfloor.worker as worker
worker.ORPHAN_S = 0.2
worker.Process._worker = lambda self: time.sleep(99)
os._exit(worker.main(sys.argv[1:]))
"""
#: The same where the interpreter's lock is never given back.
STUCK_IN_C = """
import os, sys
from collections import deque
from itertools import repeat
import ackfloor.worker as worker
def stuck(self):
    print("from now on", file=sys.stderr, flush=True)
    # Not for ever: who is killed before he ends this leaves it behind.
    deque(repeat(0, 5_000_000_000), maxlen=0)
worker.Process._worker = stuck
os._exit(worker.main(sys.argv[1:]))
"""

#: The clock is set back while the loop makes turns: whether it does after a real jump is luck.
SET_BACK = """
import os, sys, time
from types import SimpleNamespace as Some
import ackfloor.worker as worker

class ClockWatch:
    def __init__(self, on_set_back):
        self.start = lambda: on_set_back(3600.0)

worker.ClockWatch = ClockWatch
loop = Some(turn=lambda: time.sleep(0.01), executors=Some(worn_out=lambda: False))
engine = Some(suspects=Some(over=[]), promotions=None)
worker.Process._worker = lambda self: Some(
    engine=engine, inbox=Some(broken=[]), start=lambda: loop, close=lambda forced: 0
)
os._exit(worker.main(sys.argv[1:]))
"""

#: The clock is set back during the first turn, which stands still for it.
SET_BACK_AT_ONCE = """
import os, sys, time
from types import SimpleNamespace as Some
import ackfloor.worker as worker

class ClockWatch:
    def __init__(self, on_set_back):
        global set_back
        set_back = on_set_back
        self.start = lambda: None

def turn():
    set_back(3600.0)
    signs = process._in_flight.words
    print("signs", signs[1], signs[2], file=sys.stderr, flush=True)
    time.sleep(99)

def started(self):
    global process
    process = self
    return Some(engine=engine, start=lambda: Some(turn=turn))

worker.ClockWatch = ClockWatch
engine = Some(suspects=Some(over=[]), promotions=None)
worker.Process._worker = started
os._exit(worker.main(sys.argv[1:]))
"""


class Worker:
    """A worker process and the supervisor's end of its channel."""

    def __init__(self, folder: Path, app: str, *arguments: str, code: str = "") -> None:
        self.channel, theirs = channel.pair()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ACKFLOOR_")}
        environment["ACKFLOOR_BOOTSTRAP_SERVERS"] = "127.0.0.1:1"
        program = ["-c", code] if code else ["-m", "ackfloor.worker"]
        command = [sys.executable, *program, app, *arguments]
        with theirs:
            self.process = subprocess.Popen(
                [*command, "--channel", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                cwd=folder,
                env=environment,
                stderr=subprocess.PIPE,
                text=True,
            )

    def told(self, kind: Kind) -> bytes:
        """The next frame of a kind."""
        until_s = time.monotonic() + PATIENCE_S
        while self.channel.poll(max(0.0, until_s - time.monotonic())):
            frame = channel.receive(self.channel)
            if frame is not None and frame[0] is kind:
                return frame[1]
        pytest.fail(f"no {kind} was told")

    def logged(self, text: str) -> list[str]:
        """The lines up to the first with this text."""
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if text in line:
                return lines
        pytest.fail(f"not logged: {text!r}; logged was: {lines}")

    def wait(self) -> tuple[int, str]:
        """Its exit code and the rest of its log."""
        _, log = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, log

    def close(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.communicate()
        self.channel.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Starts worker processes; they are gone when the test is over."""
    workers: list[Worker] = []

    def start(text: str, app: str = "shop:app", *arguments: str, code: str = "") -> Worker:
        (tmp_path / "shop.py").write_text(text)
        workers.append(Worker(tmp_path, app, *arguments, code=code))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def test_it_reports_before_it_has_a_broker_and_a_signal_ends_the_wait(
    start: Callable[..., Worker],
) -> None:
    """Starting, with a report for the metrics; SIGUSR1 shows where it waits; SIGTERM is exit 0."""
    worker = start(APP)
    assert json.loads(worker.told(Kind.STATUS)) == {
        "status": "starting",
        "pid": worker.process.pid,
        "waits": "",
    }
    assert worker.told(Kind.REPORT)
    worker.logged("waiting for Kafka at 127.0.0.1:1")
    worker.process.send_signal(signal.SIGUSR1)
    worker.logged("in wait")
    worker.process.terminate()
    assert worker.wait()[0] == Exit.OK


def test_what_it_is_told_is_not_the_end(start: Callable[..., Worker]) -> None:
    """Frames of any kind come from a supervisor that lives, also of one that is newer."""
    worker = start(APP)
    assert channel.send_if_room(worker.channel, Kind.SETTINGS, b"{}")
    worker.channel.send_bytes(b"\xffnews")
    worker.logged("waiting for Kafka")
    worker.process.terminate()
    code, log = worker.wait()
    assert code == Exit.OK
    assert "the supervisor is gone" not in log


def test_without_its_supervisor_it_does_not_wait_for_a_broker(start: Callable[..., Worker]) -> None:
    """The end of the channel ends it as a signal does."""
    worker = start(APP)
    worker.logged("waiting for Kafka")
    worker.channel.close()
    code, log = worker.wait()
    assert code == Exit.OK
    assert "the supervisor is gone" in log


def test_without_its_supervisor_an_import_that_never_ends_does_not_keep_it(
    start: Callable[..., Worker],
) -> None:
    """It has nothing open, so it is gone at once."""
    worker = start(
        "import time, sys\nprint('importing', file=sys.stderr, flush=True)\ntime.sleep(99)"
    )
    worker.logged("importing")
    worker.channel.close()
    assert worker.wait()[0] == Exit.OK


def test_without_its_supervisor_it_is_gone_even_if_it_can_not_drain(
    start: Callable[..., Worker],
) -> None:
    """After its shutdown timeout and a grace; the exit code says that it was forced."""
    worker = start(APP, "shop:app", "--flag", "app.shutdown_timeout=100ms", code=STUCK)
    worker.told(Kind.REPORT)
    worker.channel.close()
    code, log = worker.wait()
    assert code == Exit.FORCED
    assert "in <lambda>" in log, "where it was stuck"


#: The worker of somebody who has closed the standard error.
MUTE = """
import os, sys
os.close(2)
os.execv(sys.executable, [sys.executable, "-m", "ackfloor.worker", *sys.argv[1:]])
"""
#: What an app may do to the log before it says anything.
MUFFLED = {
    "replaced": "import sys\nclass Log:\n    def write(self, text): pass\n"
    "    def flush(self): pass\nsys.stderr = Log()\n",
    "full": "import os, fcntl\nfcntl.fcntl(2, fcntl.F_SETFL, os.O_NONBLOCK)\n"
    "try:\n    while os.write(2, b'.'): pass\nexcept BlockingIOError: pass\n"
    "fcntl.fcntl(2, fcntl.F_SETFL, 0)\n",
}


@pytest.mark.parametrize("muffled", MUFFLED.values(), ids=MUFFLED)
def test_without_its_supervisor_it_is_gone_though_nobody_takes_its_last_words(
    start: Callable[..., Worker], muffled: str
) -> None:
    """A log that is no file, and one that nobody reads, keep neither its start nor its end."""
    worker = start(muffled + APP, "shop:app", "--flag", "app.shutdown_timeout=100ms", code=STUCK)
    worker.told(Kind.REPORT)
    worker.channel.close()
    assert worker.process.wait(PATIENCE_S) == Exit.FORCED


def test_without_a_standard_error_it_starts_all_the_same(start: Callable[..., Worker]) -> None:
    """There is nowhere to write then; a signal that asks for it is no end either."""
    worker = start(APP, code=MUTE)
    worker.told(Kind.REPORT)
    worker.process.send_signal(signal.SIGQUIT)
    worker.process.send_signal(signal.SIGUSR1)
    worker.process.terminate()
    assert worker.wait()[0] == Exit.OK


def test_a_crash_in_native_code_tells_where_it_was_called(start: Callable[..., Worker]) -> None:
    """Its end is that of the signal all the same, for the supervisor to name."""
    worker = start("import ctypes\ndef crash():\n    ctypes.string_at(0)\ncrash()")
    code, log = worker.wait()
    assert code == -signal.SIGSEGV
    assert 'shop.py", line 3 in crash' in log


def test_its_last_words_come_also_from_where_no_python_runs(start: Callable[..., Worker]) -> None:
    """A client that never returns from C: no handler in Python would be called."""
    worker = start(APP, "shop:app", code=STUCK_IN_C)
    worker.logged("from now on")
    worker.process.send_signal(signal.SIGQUIT)
    worker.logged("in stuck")
    assert worker.process.poll() is None, "it only tells"


@pytest.mark.parametrize(
    ("text", "app", "arguments", "named"),
    [
        (APP, "shop:ap", [], "module 'shop' has no attribute 'ap'"),
        (APP, "shop:app", ["--only", "biil"], "handlers are bill"),
        (APP, "shop:app", ["--flag", "app.log_level=loud"], "log_level='loud'"),
        ("1 / 0", "shop:app", [], "shop.py:1: ZeroDivisionError"),
    ],
)
def test_what_can_not_start_exits_3_with_the_reason(
    start: Callable[..., Worker], text: str, app: str, arguments: list[str], named: str
) -> None:
    """In one line: the supervisor has checked before, so something has changed since."""
    code, log = start(text, app, *arguments).wait()
    assert code == Exit.START
    assert named in log
    assert "Traceback" not in log


def test_a_factory_and_flags_reach_it(start: Callable[..., Worker]) -> None:
    """And what it logs is JSON where that was asked for."""
    text = APP + "\n\ndef make():\n    return app\n"
    worker = start(text, "shop:make", "--factory", "--flag", "app.log_format=json")
    line = json.loads(worker.logged("waiting for Kafka")[-1])
    assert line["level"] == "warning"
    assert line["logger"] == "ackfloor.kafka"
    worker.process.terminate()
    assert worker.wait()[0] == Exit.OK


def test_a_worker_that_makes_turns_drains_when_its_clock_was_set_back(
    start: Callable[..., Worker],
) -> None:
    """In order, and it asks for another one in its place."""
    worker = start(APP, code=SET_BACK)
    statuses = [json.loads(worker.told(Kind.STATUS))["status"] for _ in range(3)]
    code, log = worker.wait()
    assert statuses == ["starting", "running", "draining"]
    assert code == Exit.WORN_OUT, log
    assert "the clock was set back by 3600 s" in log


def test_a_clock_that_is_set_back_in_the_first_turn_is_seen_by_the_supervisor(
    start: Callable[..., Worker],
) -> None:
    """It has begun a turn, which is the one during which that was noticed."""
    worker = start(APP, code=SET_BACK_AT_ONCE)
    assert worker.logged("signs")[-1] == "signs 1 1\n"
