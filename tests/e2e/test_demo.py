"""`ackfloor demo` as a process: it adds up, says so when it does not, and leaves nothing behind.

Every process that a demo starts inherits a mark in its environment; by it they are found again,
whoever their parent is by then.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from ackfloor.testing import KafkaCluster
from ackfloor_handlers.demo.demo_topics import Topics

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kafka,
    pytest.mark.xdist_group("demo"),
    pytest.mark.timeout(900),
]

MARK = "DEMO_TEST_MARK"
#: The demo with a ledger in which one healthy order is entered as hopeless.
TAMPERED = """
import sys
from dataclasses import replace
from ackfloor_handlers.demo.order_producer import Feed
from ackfloor_handlers.demo.demo_run import run_demo
from ackfloor_handlers.demo.seeded_orders import Kind

honest = Feed.ledger

def tampered(feed):
    ledger = dict(honest(feed))
    origin, order = next((o, order) for o, order in ledger.items() if order.kind is Kind.OK)
    return {**ledger, origin: replace(order, kind=Kind.INVALID)}

Feed.ledger = tampered
sys.exit(run_demo(orders=500, kill=False, spark=False))
"""


class Demo:
    """One demo in a process of its own, with its output in files."""

    def __init__(self, folder: Path, *argv: str, servers: str = "", java: bool = True) -> None:
        self.mark = uuid4().hex
        self.folder = folder
        env = {name: value for name, value in os.environ.items() if not name.startswith("ACKFLOOR")}
        # Its temporary folders are made in the test's own, and no Docker answers.
        env |= {"TMPDIR": str(folder), "DOCKER_HOST": f"unix://{folder}/none.sock"}
        env |= {MARK: self.mark}
        if not java:
            env.pop("JAVA_HOME", None)
            env["PATH"] = without_java(folder / "bin")
        if servers:
            env["ACKFLOOR_BOOTSTRAP_SERVERS"] = servers
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=env,
                start_new_session=True,
            )

    def ended(self) -> int:
        """Wait for its end; returns the exit code."""
        return self.process.wait(600)

    @property
    def out(self) -> str:
        """What it printed."""
        return (self.folder / "out").read_text("utf-8")

    @property
    def err(self) -> str:
        """What it told meanwhile."""
        # What it writes just now may end in the middle of a character.
        return (self.folder / "err").read_text("utf-8", "replace")

    def until(self, text: str) -> None:
        """Wait until it has told something."""
        give_up_s = time.monotonic() + 300
        while text not in self.err:
            assert self.process.poll() is None, self.err
            assert time.monotonic() < give_up_s, self.err
            time.sleep(0.05)

    def left(self) -> list[psutil.Process]:
        """The processes that it started and that still run."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def gone_within(self, seconds: float) -> bool:
        """Whether none of them is left after so long."""
        give_up_s = time.monotonic() + seconds
        while self.left():
            if time.monotonic() > give_up_s:
                return False
            time.sleep(0.1)
        return True

    def clean_up(self) -> None:
        """End whatever is left of it."""
        until_s = time.monotonic() + 60
        # Again, because a supervisor may have started another worker in between.
        while left := self.left():
            assert time.monotonic() < until_s, left
            for process in left:
                # It may have ended since.
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, 10)
        self.process.wait(60)


def without_java(tools: Path) -> str:
    """A PATH with every program of this machine but `java`."""
    tools.mkdir()
    for place in os.get_exec_path():
        for tool in Path(place).glob("*") if Path(place).is_dir() else ():
            if tool.name != "java" and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    assert shutil.which("java", path=str(tools)) is None
    return str(tools)


@pytest.fixture(autouse=True)
def untraced_processes() -> None:
    """They are traced: nothing else plays the demo."""


@pytest.fixture
def demos(tmp_path: Path) -> Iterator[list[Demo]]:
    """Demos to be ended, however the test ends."""
    started: list[Demo] = []
    yield started
    with ExitStack() as ends:
        # Each of them, whatever becomes of the others.
        for demo in started:
            ends.callback(demo.clean_up)


@pytest.fixture(scope="module")
def given() -> Iterator[str]:
    """A broker that is not the demo's own."""
    with KafkaCluster() as cluster:
        yield cluster.bootstrap_servers


def command(*options: str) -> tuple[str, ...]:
    """The command line of a small demo."""
    return ("-m", "ackfloor.cli.main", "demo", "--orders", "2000", "--rate", "500", *options)


@pytest.mark.spark
def test_a_small_demo_adds_up(tmp_path: Path, demos: list[Demo]) -> None:
    """With a worker killed half-way every order is accounted for, and Spark counts the same.

    On a machine without Java: the one that comes with us runs broker and Spark. What they leave in
    the folder that the demo is started in is nothing.
    """
    demos.append(demo := Demo(tmp_path, *command(), java=False))
    assert demo.ended() == 0, demo.out + demo.err
    assert "It adds up." in demo.out
    # Java starts and compiles while orders come in: nobody waits for that at the end.
    assert demo.err.index("Spark starts to store") < demo.err.index("with SIGKILL")
    assert "records that Spark stored" in demo.out
    assert "Failures by cause" in demo.out
    assert "deadline precision p50 / p99" in demo.out
    assert demo.left() == []
    assert {each.name for each in tmp_path.iterdir()} == {"bin", "out", "err"}


def test_a_broker_that_goes_away_in_the_middle(tmp_path: Path, demos: list[Demo]) -> None:
    """It adds up as well when the broker is killed and comes back."""
    options = ("--no-spark", "--no-kill", "--broker-outage", "5s")
    demos.append(demo := Demo(tmp_path, *command(*options)))
    assert demo.ended() == 0, demo.out + demo.err
    assert "killed the broker" in demo.err
    assert "It adds up." in demo.out
    assert demo.left() == []


def test_a_tampered_ledger_does_not_add_up(tmp_path: Path, demos: list[Demo], given: str) -> None:
    """Exit code 1 and a line that says what; the topics on a given broker are deleted again."""
    demos.append(demo := Demo(tmp_path, "-c", TAMPERED, servers=given))
    assert demo.ended() == 1, demo.out + demo.err
    assert "It does not add up: order " in demo.out
    assert "neither" not in demo.out
    # The line is folded at the width of a terminal.
    assert "handled on delivery 1 instead of dead-lettered" in " ".join(demo.out.split())
    topics = Topics(given)
    assert topics.existing() == []
    topics.close()
    assert demo.left() == []


def test_topics_that_exist_are_not_touched(tmp_path: Path, demos: list[Demo], given: str) -> None:
    """On a given broker with topics of these names: refused with their names and the fix."""
    topics = Topics(given)
    topics.create()
    try:
        demos.append(demo := Demo(tmp_path, *command(), servers=given))
        assert demo.ended() == 2
        assert "orders, receipts; --replace deletes them" in demo.err
        assert topics.existing() == ["orders", "receipts"]
    finally:
        topics.remove()
        topics.close()


def test_an_outage_needs_a_broker_of_our_own(tmp_path: Path, demos: list[Demo], given: str) -> None:
    """Somebody else's broker is never killed."""
    demos.append(demo := Demo(tmp_path, *command("--broker-outage", "5s"), servers=given))
    assert demo.ended() == 2
    assert "is not ours to kill" in demo.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(
    tmp_path: Path, demos: list[Demo], number: signal.Signals
) -> None:
    """Ctrl-C or SIGTERM in the middle: the workers, the broker and their folders are gone."""
    demos.append(demo := Demo(tmp_path, *command()))
    demo.until("producing")
    assert list(tmp_path.glob("ackfloor-*"))
    demo.process.send_signal(number)
    assert demo.ended() != 0
    assert demo.left() == []
    assert list(tmp_path.glob("ackfloor-*")) == []


def test_a_killed_demo_leaves_no_process_behind(tmp_path: Path, demos: list[Demo]) -> None:
    """SIGKILL gives it no chance to clean up: its programs see it go and end by themselves."""
    demos.append(demo := Demo(tmp_path, *command()))
    demo.until("producing")
    demo.process.kill()
    demo.process.wait(60)
    assert demo.gone_within(60), demo.left()
