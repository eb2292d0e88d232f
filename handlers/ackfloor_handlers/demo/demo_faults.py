"""What is done to the run: a worker killed with SIGKILL, the broker taken away.

Right as it happens the group's committed positions are read: records at or above them may be
handled again, and no others. That is what the reconciliation holds every repetition against.
"""

from __future__ import annotations

import os
import signal
import time

from ackfloor.testing import KafkaCluster
from ackfloor_handlers.demo.account.facts import Disturbance, Place
from ackfloor_handlers.demo.demo_session import Stage, wall_ms
from ackfloor_handlers.demo.demo_topics import SOURCE

_RECOVERY_S = 60.0
_STEADY_S = 2.0


def kill_worker(stage: Stage, workers: int) -> list[Disturbance]:
    """Kill the worker with most partitions of the source; returns when all have a worker again.

    Raises:
        DemoFailed: the run does not recover.
    """
    before = stage.view
    victim = max(
        before.owners(SOURCE),
        key=lambda worker: [topic for topic, _ in before.owned(worker)].count(SOURCE),
    )
    pid, lost = before.pids[victim], before.owned(victim)
    os.kill(pid, signal.SIGKILL)
    at_ms = wall_ms()
    # Now: before its partitions go to somebody who commits for them.
    floors = _floors(stage, stage.topics.consumed())
    stage.live.tell(
        f"killed worker {victim} (pid {pid}) with SIGKILL; its {len(lost)} partitions wait"
    )

    def recovered() -> bool:
        now = stage.view
        back = stage.all_owned(workers) and now.pids.get(victim) != pid
        return back and all(taken_ms > at_ms for taken_ms in now.taken_ms.values())

    stage.until(recovered, "its partitions have workers again", _RECOVERY_S)
    stage.live.tell(
        f"worker {victim} runs again (pid {stage.view.pids[victim]}), every partition has a "
        f"worker {(wall_ms() - at_ms) / 1000:.1f} s after the kill"
    )
    places = stage.topics.consumed()
    stage.until(
        lambda: stage.view.has_recovered(places, at_ms), "no redelivery is overdue", _RECOVERY_S
    )
    over_ms = wall_ms()
    hit = {place: floors[place] for place in lost}
    killed = Disturbance(f"worker {victim} was killed", at_ms, at_ms, over_ms, hit)
    # The group may move others' partitions as well, which repeats what was above their floors.
    moved = {
        part.place: floors[part.place]
        for part in stage.view.partitions
        if part.place not in hit and part.place not in before.owned(part.worker)
    }
    return [killed, Disturbance("its partition moved", at_ms, over_ms, over_ms, moved)]


def take_broker_away(stage: Stage, cluster: KafkaCluster, outage_s: float) -> Disturbance:
    """Kill the broker, wait, start it again; returns when the run has caught up.

    Raises:
        DemoFailed: the run does not recover.
    """
    # Commits of a group that has just been rebalanced come in late.
    steady_s = time.monotonic() + _STEADY_S
    stage.until(lambda: time.monotonic() >= steady_s, "the group is steady", _STEADY_S + 10)
    places = stage.topics.consumed()
    floors = _floors(stage, places)
    (node,) = cluster.node_ids
    at_ms = wall_ms()
    cluster.kill(node)
    stage.live.tell(f"killed the broker with SIGKILL; it stays away for {outage_s:g} s")
    back_s = time.monotonic() + outage_s
    stage.until(lambda: time.monotonic() >= back_s, "the outage is over", outage_s + 10)
    cluster.start_node(node)
    back_ms = wall_ms()
    stage.live.tell("the broker is back")
    stage.until(
        lambda: stage.view.has_recovered(places, back_ms), "the run has caught up", _RECOVERY_S
    )
    over_ms = wall_ms()
    stage.live.tell(f"the run caught up {(over_ms - back_ms) / 1000:.1f} s later")
    return Disturbance("the broker was away", at_ms, over_ms, over_ms, floors, timeouts=True)


def _floors(stage: Stage, places: list[Place]) -> dict[Place, int]:
    """The committed position of each; 0 where there is none yet."""
    committed = stage.topics.committed()
    return {place: committed.get(place, 0) for place in places}
