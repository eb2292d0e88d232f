"""`ackfloor breaker` beside a run, and the breakers of workers that take another one's place."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, ready, reasons, started
from tests.framework.cli.command import Running, ackfloor
from tests.processes import kill

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

#: What the handler does is what the file `mode` says.
MODES = """
from ackfloor import CircuitBreaker

app = App("GROUP")


@app.handler(
    "TOPIC", concurrency=3, consume_timeout="300ms", retry=RetryPolicy.fixed("1h"),
    breaker=CircuitBreaker(10),
)
def bill(delivery: Delivery) -> None:
    note(started, delivery)
    mode = Path("mode").read_text()
    if mode == "fail":
        raise ConnectionError("no route to the bank")
    if mode == "hang":
        threading.Event().wait()
    note(handled, delivery)
"""


class Operator:
    """Who runs `ackfloor breaker` beside a run."""

    def __init__(self, stage: Stage, run: Running) -> None:
        self.stage = stage
        self.listen = run.logged("metrics and health on ").rpartition("http://")[2]

    def breaker(self, *arguments: str, code: Exit = Exit.OK) -> tuple[Any, str]:
        """What the command says: as JSON, and what it remarks."""
        given = ("breaker", *arguments, "--listen", self.listen, "-o", "json")
        done = ackfloor(*given, cwd=self.stage.folder)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout or "null"), done.stderr

    def states(self) -> dict[int, tuple[str, str]]:
        """Worker -> the state of its breaker, and what an operator wants of it."""
        rows, _ = self.breaker("show")
        return {worker: (row["state"], row["forced"]) for row in rows for worker in row["workers"]}


def mode(stage: Stage, text: str) -> None:
    """What handlers do from now on."""
    fresh = stage.folder / "mode.fresh"
    fresh.write_text(text)
    fresh.replace(stage.folder / "mode")


def failing_shown(operator: Operator) -> list[int]:
    """How many records had failed in a row, as each worker says."""
    rows, _ = operator.breaker("show")
    return [row["failing"] for row in rows]


def test_an_operators_word_holds_for_all_workers_also_later_ones(
    make_stage: Callable[..., Stage],
) -> None:
    """Until it is taken back; what is read meanwhile waits, and nothing of it is lost."""
    stage = make_stage(MODES, partitions=4, session_s=6)
    mode(stage, "work")
    run = stage.run("--workers", "2")
    run.until(ready(run), "ready")
    operator = Operator(stage, run)
    told, _ = operator.breaker("open", "bill", "--for", "1h", "--reason", "the bank is away")
    assert told["workers"] == {"applied": [0, 1], "refused": {}, "silent": []}
    forced = {0: ("open", "open"), 1: ("open", "open")}
    run.until(lambda: operator.states() == forced, "forced open")
    assert any("the bank is away" in reason for reason in reasons(run))
    kill(started(run, 2)[0])
    started(run, 3)
    run.until(lambda: operator.states() == forced, "forced open in the new worker as well")
    rows, _ = operator.breaker("show")
    assert {row["forced_reason"] for row in rows} == {"the bank is away"}
    assert all(3_000 < row["forced_for_s"] <= 3_600 for row in rows)
    _, remark = operator.breaker("auto", "bil", code=Exit.FAILURE)
    assert "HANDLER='bil': no handler of this run; there is bill" in remark
    # Trials are handled; they don't close what is forced open.
    stage.produce(400)
    run.until(lambda: stage.records() == 400, "all of them are tried")
    assert operator.states() == forced
    operator.breaker("close", "bill")
    closed = {0: ("closed", "closed"), 1: ("closed", "closed")}
    run.until(lambda: operator.states() == closed, "forced closed")
    mode(stage, "fail")
    stage.produce(100)
    run.until(lambda: sum(stage.noted("started").values()) == 500, "each has failed once")
    assert operator.states() == closed
    operator.breaker("auto", "bill")
    # What failed while it was kept closed is forgotten; what fails now is for it to judge.
    stage.produce(400)
    run.until(lambda: ("open", "") in operator.states().values(), "open by its own judgement")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def test_a_worker_in_place_of_a_worn_out_one_begins_with_its_breaker_open(
    make_stage: Callable[..., Stage],
) -> None:
    """Else it would wear out in the same way: it can't see enough failures before."""
    stage = make_stage(MODES, partitions=1)
    mode(stage, "fail")
    stage.produce(500)
    run = stage.run(ACKFLOOR_APP__MAX_ABANDONED_THREADS="5")
    opened = run.logged("circuit breaker opened: ")
    # Several end in one turn.
    failing = int(re.search(r"opened: (\d+) records in a row failed", opened)[1])
    mode(stage, "hang")
    run.logged("too many abandoned handlers, which run on after their consume timeout")
    started(run, 2)
    run.logged("asked to be replaced; restarting it now")
    seen = len(run.drain())
    operator = Operator(stage, run)
    run.until(lambda: operator.states().get(0) == ("open", ""), "open from the start")
    # It may be worn out again meanwhile, and for a moment there is no worker to show.
    run.until(lambda: failing_shown(operator) == [failing], "it knows how many had failed")
    mode(stage, "work")
    run.logged("(recovered)", after=seen)
    run.until(lambda: operator.states() == {0: ("closed", "")}, "closed")
    run.signal(signal.SIGTERM)
    assert run.wait() in {Exit.OK, Exit.FORCED}
