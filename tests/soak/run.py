"""A soak from its start to its verdict.

The order at the end matters: faults end and are undone, a few calm seconds, the producer stops and
waits for its answers, everything is to settle within a bound, the fleet is asked whether it is
ready and ends in order, and only then the ledger is read and judged.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ackfloor.testing import KafkaCluster
from tests.soak.audit import ingest_and_audit
from tests.soak.cluster import Topics
from tests.soak.commit_log import read_commits
from tests.soak.facts import Facts, Frozen, Recreated
from tests.soak.fleet import Fleet
from tests.soak.injector import Injector
from tests.soak.ledger import read_calls
from tests.soak.oracle import Verdict, judge
from tests.soak.plan import CALM_S, GROUP, SESSION_TIMEOUT_S, Plan
from tests.soak.producer import Feed, Produced, Transactions
from tests.soak.proxy import Proxy
from tests.soak.report import Result

#: In the run's folder: what was judged, for `python -m tests.soak.oracle FILE`.
FACTS = "facts.pickle"
_READY_S = 90.0
_LOOK_EVERY_S = 0.5
#: Of the brokers: a member that stands still for so long is out, in the KIP-848 protocol too. There
#: the client gives up a heartbeat after one interval, and busy brokers need longer than a second.
BROKERS = {
    "group.consumer.session.timeout.ms": f"{SESSION_TIMEOUT_S * 1000:.0f}",
    "group.consumer.heartbeat.interval.ms": "2500",
    # A broker that is merely busy must not lose its leaderships.
    "broker.session.timeout.ms": "9000",
    # After a restart a node gets its partitions back, so that the next fault hits something.
    "leader.imbalance.check.interval.seconds": "10",
    "log.cleaner.backoff.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}


class Stage:
    """Brokers, proxy, fleet and producers of one soak: the scene that faults reach."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.control: Path = plan.control
        for folder in (plan.ledger, plan.control, plan.logs):
            folder.mkdir(parents=True)
        self.proxy = Proxy(plan.nodes)
        self.kafka = KafkaCluster(
            plan.nodes, config=BROKERS, advertised_ports=self.proxy.ports, start_timeout_s=120
        )
        self.produced = Produced()
        self.frozen_for: list[Frozen] = []
        self.recreated_then: list[Recreated] = []
        self._enough = threading.Event()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Everything up for the length of the block, and nothing left after it."""
        self.proxy.start()
        with self.kafka:
            ports = (int(s.rpartition(":")[2]) for s in self.kafka.bootstrap_servers.split(","))
            self.proxy.aim(dict(zip(self.kafka.node_ids, ports, strict=True)))
            self.fleet = Fleet(self.plan, self.proxy.servers)
            self.feed = Feed(self.plan, self.proxy.servers, self.produced)
            self.transactions = Transactions(self.plan, self.proxy.servers, self.produced)
            sources = self.topics()
            sources.create_sources()
            sources.close()
            try:
                yield
            finally:
                self.fleet.close()
                self.proxy.stop()

    def topics(self) -> Topics:
        """A client of the calling thread."""
        return Topics(self.plan, self.kafka.internal_servers)

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than faults may last."""
        self._enough.wait(seconds)

    def enough(self) -> None:
        """Faults that go on end now."""
        self._enough.set()

    def frozen(self, pid: int, from_s: float, to_s: float) -> None:
        """A process stood still."""
        self.frozen_for.append(Frozen(pid, from_s, to_s))

    def recreated(self, topic: str, from_s: float, to_s: float, topic_id: str) -> None:
        """A topic was deleted and began anew."""
        self.recreated_then.append(Recreated(topic, from_s, to_s, topic_id))


def soak(plan: Plan, console: Console) -> tuple[Result, Verdict]:
    """Run a soak and judge it."""
    from tests.soak.sampler import Sampler

    stage = Stage(plan)
    with stage.opened(), _progress(console) as bar:
        say = bar.add_task("starting", total=plan.seconds)
        stage.fleet.open()
        _until(lambda: not stage.fleet.reasons(), _READY_S)
        sampler = Sampler(stage.topics, stage.fleet)
        injector = Injector(plan, stage)
        began_s = time.monotonic()
        sampler.start()
        stage.feed.start()
        injector.start()
        while (passed_s := time.monotonic() - began_s) < plan.seconds - CALM_S:
            bar.update(say, completed=passed_s, description=_doing(stage, injector, sampler))
            time.sleep(_LOOK_EVERY_S)
        stage.enough()
        injector.stop()
        stage.proxy.clear()
        time.sleep(max(0.0, plan.seconds - (time.monotonic() - began_s)))
        ended_s = time.monotonic()
        bar.update(say, completed=plan.seconds, description="settling")
        stage.feed.stop()
        stage.transactions.settle()
        left = _settle(stage)
        settled_s = time.monotonic()
        not_ready = _until_ready(stage)
        bar.update(say, description="judging")
        sampler.stop()
        reader = stage.topics()
        letters = reader.dead_letters()
        reader.close()
        stage.fleet.close()
        written = read_commits(stage.kafka.internal_servers, GROUP)
        servers, table = stage.kafka.internal_servers, plan.folder / "failures"
        audited = ingest_and_audit(servers, table) if plan.audit else None
    calls, turns = read_calls(plan.ledger)
    facts = Facts(
        stage.produced,
        calls,
        turns,
        letters,
        sampler.samples,
        written,
        stage.frozen_for,
        stage.recreated_then,
        left,
        not_ready,
        [*stage.fleet.troubles, *filter(None, [stage.feed.failure])],
        plan.parks == "transactional",
        audited,
    )
    (plan.folder / FACTS).write_bytes(pickle.dumps(facts))
    verdict = judge(facts)
    times = {"began_s": began_s, "ended_s": ended_s, "settled_s": settled_s}
    return Result.of(plan, facts, verdict, injector.done, times), verdict


def _settle(stage: Stage) -> dict[tuple[str, int], int]:
    """What is left when all is settled, when nothing changes any more, or when it takes too long.

    A busy machine needs its time for what the faults have left; so does a circuit breaker for a
    retry topic in which nothing but bad records is left.
    """
    topics, plan = stage.topics(), stage.plan
    until_s = time.monotonic() + plan.settle_s
    give_up_s = time.monotonic() + 5 * plan.settle_s
    left = {("?", 0): -1}
    while left and time.monotonic() < min(until_s, give_up_s):
        try:
            before, left = left, topics.unsettled()
        except KafkaException as exc:
            print(f"the brokers do not answer: {exc}", file=sys.stderr)  # noqa: T201
        else:
            if left != before:
                until_s = time.monotonic() + plan.settle_s
        time.sleep(_LOOK_EVERY_S)
    topics.close()
    return left


def _until_ready(stage: Stage) -> list[str]:
    """Why the fleet is not ready, after waiting for it."""
    _until(lambda: not stage.fleet.reasons(), _READY_S)
    dead = [run.name for run in stage.fleet.runs() if not run.alive]
    return [*stage.fleet.reasons(), *(f"{name} has ended" for name in dead)]


def _until(done: object, within_s: float) -> None:
    until_s = time.monotonic() + within_s
    assert callable(done)
    while not done() and time.monotonic() < until_s:
        time.sleep(_LOOK_EVERY_S)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.percentage:>3.0f} %"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
    )


def _doing(stage: Stage, injector: Injector, sampler: object) -> str:
    latest = sampler.latest  # type: ignore[attr-defined]
    lag = latest.lag if latest else 0
    current = ", ".join(injector.current()) or "calm"
    return (
        f"{len(stage.produced.acked)} records, {lag} left, {len(injector.done)} faults; {current}"
    )
