"""The incident of docs/guide/incident.md: begun, found, mended and redriven by its own commands."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackfloor.testing import KafkaCluster
from tests.framework.cli.command import PATIENCE_S, Running, ackfloor, environment
from tests.structure.pages import blocks, commands
from tests.structure.sources import REPOSITORY

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

#: Without its last part, whose commands tests/e2e/test_blocked_lanes.py gives.
PAGE, _, _ = (REPOSITORY / "docs/guide/incident.md").read_text().partition("\n## Another night")
APP = "ackfloor_handlers.incident.app:app"
GIVEN_UP = r"payments--shop--dlq +0 +dlq +- +25 +-"
STUCK = r"credit: 1 hanging key, 19 records behind; the newest: customer-5 \(hanging\)"
#: What is wrong, in the order in which it is told, each with the command of the page.
WRONG = (
    r"3 things are wrong(.|\n)*wrong +breaker +ship: circuit breaker open (.|\n)*WarehouseDown"
    r"(.|\n)*ackfloor breaker show\n"
    rf"wrong +keys +{STUCK}\n +ackfloor inflight --trace\n"
    r"wrong +dlq +charge: 25 dead letters: AttributeError(.|\n)*release 2\.4\.0"
    r"(.|\n)*ackfloor dlq show payments--shop--dlq/0/24\n"
)
#: What each command of the page tells, in the order of the page.
TOLD = (
    ("status", WRONG),
    ("breaker show", r"ship +\d +open .*WarehouseDown"),
    ("lag", f"{GIVEN_UP} +0 +25 (.|\n)*points +0 +source +5 +200 +195 +175 +20 "),
    ("inflight", rf"points/0/5 +credit (.|\n)*lock_row(.|\n)*{STUCK}"),
    ("dlq show", r"release +2\.4\.0\n(.|\n)*in _price"),
    ("dlq replay", r": 25 would be sent"),
    ("dlq replay", r": 25 sent"),
    ("status", r"^nothing is wrong\nok +run +\S+: group shop, 2 workers, ready"),
)


class Operator:
    """Somebody who has the page, a terminal and a run."""

    def __init__(self, folder: Path, servers: str) -> None:
        self._folder = folder
        self._known = {"ACKFLOOR_BOOTSTRAP_SERVERS": servers}
        self._run: Running | None = None

    def outside(self, what: str) -> str:
        """What `python -m ackfloor_handlers.incident begin|mend` prints."""
        return subprocess.run(
            [sys.executable, "-m", "ackfloor_handlers.incident", what],
            cwd=self._folder,
            env=environment(self._known),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout

    def start(self, release: str) -> None:
        """Start the shop, on a port of its own."""
        given = {"ACKFLOOR_RELEASE": release, "ACKFLOOR_RUN_LISTEN": "127.0.0.1:0"}
        self._run = Running(APP, "--workers", "2", cwd=self._folder, **(self._known | given))
        served = self._run.logged("metrics and health on ")
        self._known["ACKFLOOR_RUN_LISTEN"] = served.rpartition("http://")[2]

    def stop(self) -> int | None:
        """End the shop as Ctrl-C does; its exit code."""
        run, self._run = self._run, None
        if run is None:
            return None
        try:
            run.signal(signal.SIGTERM)
            return run.wait()
        finally:
            run.close()

    def told(self, words: list[str]) -> str:
        """What a command of the page prints, with its remarks at the end."""
        assert words[0] == "ackfloor"
        done = ackfloor(*words[1:], cwd=self._folder, **self._known)
        return done.stdout + done.stderr

    def sees(self, words: list[str], expected: str, *, once: bool) -> None:
        """Give a command of the page, again until it tells what the page says."""
        until_s = time.monotonic() + (0 if once else PATIENCE_S)
        while not re.search(expected, told := self.told(words)):
            assert time.monotonic() < until_s, f"{words} tells:\n{told}"

    def open_records(self) -> int | str:
        """How many records of the group are open, dead letters without a disposition included.

        Or why the command could not say so: a broker that is busy may take longer than it waits.
        """
        told = ackfloor("lag", "--group", "shop", "-o", "json", cwd=self._folder, **self._known)
        if told.returncode != 0:
            return told.stderr
        return sum(row["open"] or 0 for row in json.loads(told.stdout))


@pytest.fixture(autouse=True)
def untraced_processes() -> None:
    """They are traced: nothing else plays the incident."""


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    """An operator with a broker of their own; nothing of both is left afterwards."""
    with KafkaCluster() as cluster:
        at_work = Operator(tmp_path, cluster.bootstrap_servers)
        try:
            yield at_work
        finally:
            at_work.stop()


def test_the_walk_through_leads_where_it_says(operator: Operator) -> None:
    """Cause and extent, the fix, and the redrive: in fewer than ten commands, with nothing left."""
    steps = [
        words
        for block in blocks(PAGE)
        if block.language == "console"
        for words in commands(block.text)
    ]
    assert len(steps) == len(TOLD) < 10
    operator.outside("begin")
    operator.start("2.4.0")
    for words, (name, expected) in zip(steps, TOLD, strict=True):
        assert " ".join(words).removeprefix("ackfloor ").startswith(name)
        if "--dry-run" in words:
            assert operator.outside("mend") in PAGE
            assert operator.outside("mend").startswith("nothing to mend")
            assert operator.stop() == 0
            operator.start("2.4.1")
        operator.sees(words, expected, once="--yes" in words)
    until_s = time.monotonic() + PATIENCE_S
    while (left := operator.open_records()) != 0:
        assert time.monotonic() < until_s, f"still open: {left}"
    assert operator.stop() == 0
