"""The outages of the simulation on a real broker, in real time.

    python -m tests.framework.runtime.played_outage SEED [OUTAGE ...] [--without-breaker] [--jobs 4]

The same plans (tests/simulation/outages.py): which records come when, and what their handlers do.
So what holds for a thousand seeds there is seen here for some, with a broker, a client and a real
event loop. Each outage is played in a process of its own, several at a time; the sizes leave a core
mostly idle.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from confluent_kafka import Producer

from ackfloor import App, Delivery
from ackfloor.core.messages.events import Event
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.testing.local_kafka.bootstrap import open_broker
from tests.framework.runtime.on_kafka import Crowd, on_kafka
from tests.simulation.outages import OUTAGES, Found, Outage, judged, without_breaker
from tests.simulation.plan import Act, HandlerPlan, Plan
from tests.simulation.process import handler_options
from tests.simulation.tries import HEAD, row_of

#: Seconds until records come: the workers have joined by then.
LEAD_S = 3.0
#: They last for minutes and an hour in which hardly anything happens: those of the simulation do.
TOO_LONG = frozenset({"dead-quiet", "dead-quiet-3h", "dead-ended"})
#: Seconds after the last record in which everything must have ended.
PATIENCE_S = 180.0


class Away(Exception):
    """What a failing call raises."""


@dataclass
class Seen:
    """What is seen of a run; see `tests.simulation.outages.Seen`."""

    told: list[tuple[float, Event]] = field(default_factory=list[tuple[float, Event]])
    starts_s: dict[int, float] = field(default_factory=dict[int, float])
    took_s: float = 0.0
    broken: str = ""


class Player:
    """The records of a plan, what their handlers do, and what is seen of it.

    Args:
        plan: the run.
        topics: of each handler.
        servers: the broker's addresses.
    """

    def __init__(self, plan: Plan, topics: Sequence[str], servers: str) -> None:
        self.seen = Seen()
        self.began_s = time.monotonic() + LEAD_S
        self._records = sorted(plan.records, key=lambda record: record.at_s)
        self._acts = {record.uid: record.acts for record in plan.records}
        self._at_s = {record.uid: record.at_s for record in plan.records}
        self._topics = topics
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 2})
        self._started: Counter[int] = Counter()
        self.open = {record.uid for record in plan.records}
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    @property
    def now_s(self) -> float:
        """Seconds from the beginning."""
        return time.monotonic() - self.began_s

    def _write(self) -> None:
        for record in self._records:
            while (wait_s := record.at_s - self.now_s) > 0:
                self._producer.poll(0)
                time.sleep(min(wait_s, 0.01))
            topic = self._topics[record.handler]
            self._producer.produce(topic, b"%d" % record.uid, record.key, record.partition)
        self._producer.flush(60)

    # An observer of the workers.

    def observe(self, events: Sequence[Event]) -> None:
        """Note what was told, and when."""
        now_s = self.now_s
        self.seen.told += [(now_s, event) for event in events]

    def snapshot(self, snapshot: Snapshot) -> None:
        """Not needed."""

    # The handlers.

    def handler(self, plan: HandlerPlan) -> Callable[..., Any]:
        """The function of one handler."""

        async def handle(value: bytes) -> None:
            uid = int(value)
            act = self._begin(uid)
            await self._wait(act)
            self._end(act)
            self.open.discard(uid)

        async def handle_batch(deliveries: list[Delivery]) -> None:
            uids = [int(delivery.value or b"0") for delivery in deliveries]
            acts = [self._begin(uid) for uid in uids]
            await self._wait(max(acts, key=lambda act: act.takes_s))
            for act in acts:
                self._end(act)
            self.open.difference_update(uids)

        return handle if plan.batch is None else handle_batch

    def _begin(self, uid: int) -> Act:
        self.seen.starts_s.setdefault(uid, max(0.0, self.now_s - self._at_s[uid]))
        acts = self._acts[uid]
        act = acts[min(self._started[uid], len(acts) - 1)]
        self._started[uid] += 1
        return act

    async def _wait(self, act: Act) -> None:
        if act.kind == "hang":
            await asyncio.sleep(1e6)
        elif act.takes_s and not (act.kind == "down" and self.now_s >= act.after_s):
            await asyncio.sleep(act.takes_s)

    def _end(self, act: Act) -> None:
        if act.kind == "fail" or (act.kind == "down" and self.now_s < act.after_s):
            raise Away("the bank is away")


def play(servers: str, name: str, seed: int, size: float, *, breaker: bool) -> Found:
    """Play one outage on a broker.

    Args:
        servers: the broker's addresses.
        name: a key of `OUTAGES`.
        seed: of the plan.
        size: the part of its records that it has.
        breaker: whether the handlers have a circuit breaker.
    """
    logging.disable(logging.CRITICAL)
    outage = OUTAGES[name](seed, size)
    plan = outage.plan if breaker else without_breaker(outage.plan)
    with on_kafka(servers, plan.partitions) as crowd:
        first = crowd.place.topic
        topics = [first, *(f"{first}-{n}" for n in range(1, len(plan.handlers)))]
        for topic in topics[1:]:
            crowd.place.create(topic, plan.partitions)
        player = Player(plan, topics, servers)
        app = App(group=crowd.place.group)
        for number, handler in enumerate(plan.handlers):
            options = handler_options(number, handler)
            app.handler(topics[number], **options)(player.handler(handler))
        for _ in range(plan.workers):
            crowd.start(app, observers=[player], breakers=True)
        _await_the_end(crowd, player, outage)
        return judged(name, seed, size, outage, player.seen)


def _await_the_end(crowd: Crowd, player: Player, outage: Outage) -> None:
    """Turn the workers until every healthy record is handled, and no sick one is open."""
    last_s = max(record.at_s for record in outage.plan.records)
    healthy = {r.uid for r in outage.plan.records if not outage.lasting or not r.sick}
    until_s = last_s + PATIENCE_S
    while player.now_s < until_s:
        crowd.turn()
        flow = [worker.loop.engine.flow.open_count for worker in crowd.workers]
        if player.now_s > last_s and not (healthy & player.open) and not any(flow):
            player.seen.took_s = player.now_s
            return
    left = len(healthy & player.open)
    player.seen.took_s = player.now_s
    if left:
        player.seen.broken = f"{left} records were not handled after {until_s:.0f} s"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.framework.runtime.played_outage")
    parser.add_argument("seed", type=int, help="of the plans")
    parser.add_argument("outages", nargs="*", metavar="OUTAGE", help="which; all without any")
    parser.add_argument("--without-breaker", action="store_true", help="without circuit breakers")
    parser.add_argument("--size", type=float, default=1.0, help="the part of the records")
    parser.add_argument("--jobs", type=int, default=4, help="outages at a time")
    given = parser.parse_args()
    names = given.outages or [name for name in OUTAGES if name not in TOO_LONG]
    if unknown := sorted(set(names) - OUTAGES.keys()):
        parser.error(f"no outage is called {', '.join(unknown)}; there are {', '.join(OUTAGES)}")
    sys.stdout.write(HEAD)
    with open_broker() as broker, _pool(given.jobs) as pool:
        servers, breaker = broker.bootstrap_servers, not given.without_breaker
        tasks = [
            pool.submit(play, servers, name, given.seed, given.size, breaker=breaker)
            for name in names
        ]
        for name, task in zip(names, tasks, strict=True):
            sys.stdout.write(row_of(name, [task.result()]) + "\n")
            sys.stdout.flush()
    return 0


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


if __name__ == "__main__":
    sys.exit(main())
