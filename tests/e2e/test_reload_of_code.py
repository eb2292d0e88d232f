"""`ackfloor run --reload` on a real broker: code that changes, breaks and is mended meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, ready, worker_pids

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

MakeStage = Callable[..., Stage]

APP = """
app = App("GROUP")
by = os.open("WHO", os.O_APPEND | os.O_CREAT | os.O_WRONLY)


@app.handler("TOPIC")
async def bill(delivery: Delivery) -> None:
    await asyncio.sleep(0.01)
    note(handled, delivery)
    note(by, delivery)
"""
#: A handler that needs a retry topic which the first version has not.
MORE = """

@app.handler("TOPIC-more", retry=RetryPolicy.fixed("7s", 1))
async def ship(delivery: Delivery) -> None:
    note(by, delivery)
"""


def test_code_that_changes_is_run_and_code_that_breaks_is_told(make_stage: MakeStage) -> None:
    """Nothing is handled twice, topics of new handlers are created, and SIGTERM ends it with 0."""
    stage = make_stage(APP.replace("WHO", "first"), partitions=4)
    more = stage.make_topic("more", joint="-")
    run = stage.run("--workers", "2", "--reload")
    stage.produce(100)
    run.until(lambda: stage.records() == 100, "all handled by the first")

    stage.app(APP.replace("WHO", "second") + MORE)
    run.logged("changed: stage_app.py; the workers drain")
    run.logged("starting again: stage_app.py")
    stage.produce(100)
    run.until(lambda: stage.noted("second").total() == 100, "new ones handled by the second")
    assert f"{more}--{stage.group}--retry-7s" in stage.topics()

    stage.app(APP.replace("WHO", "third").replace("async def bill", "async def (bill"))
    line = run.logged("error: importing stage_app failed")
    assert "stage_app.py" in line
    assert "SyntaxError" in line
    run.logged("the run ended with code 3: waiting for the next change")
    stage.produce(100)
    pids = worker_pids(run)

    stage.app(APP.replace("WHO", "third"))
    run.until(lambda: stage.noted("third").total() == 100, "the rest handled by the third")
    run.until(lambda: len(worker_pids(run)) == len(pids) + 2, "both workers")
    assert set(stage.noted().values()) == {1}
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK
    assert stage.committed() == 300


def test_a_run_that_is_killed_with_its_reload_takes_its_workers_along(
    make_stage: MakeStage,
) -> None:
    """They drain and leave the group: the stage looks whether they are gone."""
    stage = make_stage(APP)
    run = stage.run("--reload")
    run.until(ready(run), "ready")
    assert worker_pids(run)
    run.signal(signal.SIGKILL)
    run.wait()
