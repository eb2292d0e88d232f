"""`ackfloor handlers pause` beside a run of two workers, of which one is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ackfloor.core.queues.flow_limits import PauseReason
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, page, ready, started
from tests.framework.cli.command import Running, ackfloor

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

#: Two at once; none ends before somebody says so.
APP = """
app = App("GROUP")


@app.handler("TOPIC", concurrency=2)
async def bill(delivery: Delivery) -> None:
    while not opened("gate"):
        await asyncio.sleep(0.01)
    note(handled, delivery)
"""
RECORDS, KEYS = 200, 20


def workers(run: Running) -> list[Mapping[str, Any]]:
    """What its workers say of themselves, those that have said anything."""
    _, state = page(run, "/state")
    return [worker for worker in state["workers"].values() if worker]


def command(stage: Stage, run: Running, *arguments: str) -> Any:
    """A command of `ackfloor handlers` that reaches every worker; its JSON."""
    listen = run.logged("metrics and health on ").rpartition("http://")[2]
    ended = ackfloor(
        "handlers", *arguments, "-o", "json", "--listen", listen, cwd=stage.folder,
        ACKFLOOR_BOOTSTRAP_SERVERS=stage.servers,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (Exit.OK, "")
    return json.loads(ended.stdout)


def test_the_successor_of_a_killed_worker_begins_paused(make_stage: Callable[..., Stage]) -> None:
    """It has the records of the dead one, and starts none until an operator resumes the handler."""
    stage = make_stage(APP, partitions=4)
    run = stage.run("--workers", "2")
    run.until(ready(run), "ready")
    # By keys: without one they may all go to one partition.
    for n in range(KEYS):
        stage.produce(RECORDS // KEYS, key=b"k%d" % n)
    run.until(lambda: _of(run, "open_count") == RECORDS, "both have read what is theirs")
    told = command(stage, run, "pause", "bill", "--reason", "the price list is wrong")
    assert [sorted(numbers) for numbers in told["applied"].values()] == [[0, 1]]
    stage.open_gate()
    run.until(lambda: _of(run, "open_count") == RECORDS - 4, "what was running has ended")
    before = stage.noted()
    os.kill(workers(run)[0]["pid"], signal.SIGKILL)
    successor = started(run, 3)[-1]
    run.until(lambda: _holds_still(stage, run, successor), "the successor has its partitions")
    _is_paused(stage, run, successor)
    assert stage.noted() == before
    assert before.total() == 4
    command(stage, run, "resume", "bill")
    run.until(lambda: stage.committed() == RECORDS, "all is settled")
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    assert stage.records() == RECORDS
    # Only what had ended before the kill, and was not committed, may have been handled again.
    assert {name for name, count in stage.noted().items() if count > 1} <= before.keys()


def _of(run: Running, count: str) -> int:
    return sum(int(worker[count]) for worker in workers(run))


def _holds_still(stage: Stage, run: Running, successor: int) -> bool:
    """Whether all partitions have an owner again, the new worker some, and it fetches none."""
    owned = {
        worker["pid"]: [p for p in worker["partitions"] if p["topic"] == stage.topic]
        for worker in workers(run)
    }
    mine = owned.get(successor, [])
    reasons = {partition["pause_reason"] for partition in mine}
    return sum(map(len, owned.values())) == 4 and reasons == {PauseReason.HANDLER}


def _is_paused(stage: Stage, run: Running, successor: int) -> None:
    """It says so itself, and the run and `handlers ls` say it for both workers."""
    (handler,) = next(w["handlers"] for w in workers(run) if w["pid"] == successor)
    assert (handler["paused"], handler["running"]) == (True, 0)
    assert handler["paused_reason"] == "the price list is wrong"
    status, health = page(run, "/readyz")
    assert (status, [note["check"] for note in health["notes"]]) == (200, ["paused"])
    assert "the price list is wrong" in health["notes"][0]["message"]
    (row,) = command(stage, run, "ls")
    assert (row["handler"], row["paused_in"], row["running"]) == ("bill", [0, 1], 0)
