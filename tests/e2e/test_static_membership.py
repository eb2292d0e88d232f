"""Static membership on a real broker: a restart moves nothing, and a name has one owner."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, gone, page, ready, started, worker_pids
from tests.framework.cli.command import Running

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

MakeStage = Callable[..., Stage]

PLAIN = """
app = App("GROUP")


@app.handler("TOPIC", concurrency=8, retry=RetryPolicy.fixed("1h", 1))
async def bill(delivery: Delivery) -> None:
    note(handled, delivery)
"""
# `range` gives each a part of the source; else one may get all of it, the other the retry topic.
# Long, so that a restart is over before it on any machine.
SESSION_S = 120
CLASSIC = f'[kafka.consumer]\n"session.timeout.ms" = {SESSION_S}000\n'
KIP_848 = '[kafka.consumer]\n"group.protocol" = "consumer"\n"group.remote.assignor" = "range"\n'


def start(stage: Stage, prefix: str, *arguments: str) -> Running:
    """A run whose workers are static members."""
    return stage.run(
        *arguments,
        ACKFLOOR_APP__STATIC_MEMBERSHIP="true",
        ACKFLOOR_APP__INSTANCE_ID_PREFIX=prefix,
    )


Partition = tuple[str, int]


def owned(run: Running) -> dict[str, dict[Partition, int]]:
    """Worker -> partition, of the source or its tier -> epoch of its assignment there."""
    _, state = page(run, "/state")
    return {
        worker: {(p["topic"], p["partition"]): p["epoch"] for p in told["partitions"]}
        for worker, told in state["workers"].items()
        if told is not None
    }


def partitions(*runs: Running) -> list[Partition]:
    """Every partition that somebody has."""
    return sorted(p for run in runs for mine in owned(run).values() for p in mine)


def complete(stage: Stage, workers: int, *runs: Running, each: int = 4) -> Callable[[], bool]:
    """Whether every partition of source and tier has one owner, and every worker has some."""
    names = [stage.topic, f"{stage.topic}--{stage.group}--retry-1h"]

    def found() -> bool:
        shares = [share for run in runs for share in owned(run).values() if share]
        wanted = [(name, n) for name in names for n in range(each)]
        return len(shares) == workers and partitions(*runs) == sorted(wanted)

    return found


@pytest.fixture
def make_plain(make_stage: MakeStage) -> MakeStage:
    """A stage with these settings."""

    def make(*, partitions: int, settings: str = CLASSIC) -> Stage:
        stage = make_stage(PLAIN, partitions=partitions)
        (stage.folder / "ackfloor.toml").write_text(settings)
        return stage

    return make


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_restart_of_one_run_moves_nothing_of_the_other(
    make_plain: MakeStage, protocol: str
) -> None:
    """The one that stays keeps its assignments, epochs and all; the other gets its own back."""
    stage = make_plain(partitions=4, settings=KIP_848 if protocol == "consumer" else CLASSIC)
    stays, leaves = start(stage, "one"), start(stage, "two")
    stays.until(complete(stage, 2, stays, leaves), "all owned")
    stays.until(ready(stays), "ready")
    leaves.until(ready(leaves), "ready")
    stage.produce(200)
    stays.until(lambda: stage.records() == 200, "all handled")
    before, had, so_far = owned(stays), partitions(leaves), len(stays.drain())
    assert had
    leaves.signal(signal.SIGTERM)
    assert leaves.wait() == Exit.OK
    # Nobody else may commit for its partitions, which stay its own: it did so before it ended.
    stays.until(lambda: stage.committed() == 200, "the floors are committed without leaving")
    back_s = time.monotonic()
    again = start(stage, "two")
    again.until(lambda: partitions(again) == had, "its own partitions")
    stage.produce(200)
    again.until(lambda: stage.records() == 400, "all handled")
    sys.stdout.write(f"\n{protocol}: all handled {time.monotonic() - back_s:.1f} s after start\n")
    assert owned(stays) == before
    assert not any(" revoked " in line for line in stays.drain()[so_far:])
    assert set(stage.noted().values()) == {1}
    for run in (stays, again):
        run.signal(signal.SIGTERM)
        assert run.wait() == Exit.OK


def test_a_killed_worker_gets_its_partitions_back_at_once(make_plain: MakeStage) -> None:
    """Without waiting for its session to time out, and the other worker notices nothing."""
    stage = make_plain(partitions=4)
    run = start(stage, "one", "--workers", "2")
    run.until(complete(stage, 2, run), "all owned")
    before = owned(run)
    # Who has most of the source: the records that come wait for its successor.
    mine = {worker: [p for p in had if p[0] == stage.topic] for worker, had in before.items()}
    kept, victim = sorted(mine, key=lambda worker: len(mine[worker]))
    pids = started(run, 2)
    killed_s = time.monotonic()
    os.kill(pids[int(victim)], signal.SIGKILL)
    assert gone(pids[int(victim)])
    stage.produce(100)
    run.until(lambda: len(worker_pids(run)) == 3, "its successor")
    run.until(lambda: stage.records() == 100, "all handled")
    took_s = time.monotonic() - killed_s
    sys.stdout.write(
        f"\nall handled {took_s:.1f} s after the kill, session timeout {SESSION_S} s\n"
    )
    assert took_s < 0.8 * SESSION_S
    run.until(lambda: set(owned(run).get(victim, ())) == set(before[victim]), "its partitions")
    assert owned(run)[kept] == before[kept]
    run.signal(signal.SIGTERM)
    assert run.wait() == Exit.OK


def test_of_two_runs_with_one_name_the_older_ends_with_the_reason(make_plain: MakeStage) -> None:
    """Once and for good: started again it would expel the newer one."""
    stage = make_plain(partitions=2)
    older = start(stage, "same", "--workers", "2")
    older.until(complete(stage, 2, older, each=2), "all owned")
    newer = start(stage, "same", "--workers", "2")
    assert older.wait() == Exit.FAILURE
    assert any("app.instance_id_prefix each" in line for line in older.lines)
    assert any("stopping this run" in line for line in older.lines)
    assert len(worker_pids(older)) == 2, "nothing was started again"
    stage.produce(50)
    newer.until(lambda: stage.records() == 50, "all handled")
    newer.signal(signal.SIGTERM)
    assert newer.wait() == Exit.OK
    assert len(worker_pids(newer)) == 2


def test_under_kip_848_a_taken_name_is_asked_for_until_it_is_free(make_plain: MakeStage) -> None:
    """There the newer one is refused; it says why, and takes over when the older has ended."""
    stage = make_plain(partitions=2, settings=KIP_848)
    older = start(stage, "same")
    older.until(complete(stage, 1, older, each=2), "all owned")
    newer = start(stage, "same")
    newer.logged("the group still has a member")
    newer.logged("its name is not free; retry in")
    older.signal(signal.SIGTERM)
    assert older.wait() == Exit.OK
    stage.produce(50)
    newer.until(lambda: stage.records() == 50, "all handled")
    newer.signal(signal.SIGTERM)
    assert newer.wait() == Exit.OK
