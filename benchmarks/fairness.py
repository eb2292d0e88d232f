"""What healthy keys feel of noisy and hanging ones: `python -m benchmarks.fairness`.

1,000 keys whose records come by chance, five of which hang for ever, and one key that brings 80 %
of all traffic, steadily or in bursts. From produce to the start of the handler of the 995 healthy
keys, and how many of their records were handled when the last one was due. Four variants take
turns: the healthy keys alone, all records while no key is sick (none hangs, and the noisy key's
records take no time), all with `fairness="off"`, and all with the default. Where the healthy keys
are alone, the others' records go to a topic that nobody reads: producers and the broker have the
same to do. Nothing is tuned: 64 slots, a consume timeout of 60 s.

It writes results/fairness.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import quantiles
from typing import Any, NamedTuple

from confluent_kafka import Producer

from ackfloor import App, Delivery
from ackfloor.runtime.loop.garbage_collection import look_less_often
from ackfloor.testing.local_kafka.bootstrap import open_broker
from benchmarks import machine
from benchmarks.quarantine import Figures, made, middle, ratio
from benchmarks.results import FOLDER
from benchmarks.topic import PARTITIONS
from benchmarks.worker import worker_of

VARIANTS = ("alone", "well", "off", "key")
NAMES = {
    "alone": "healthy keys alone",
    "well": "all, none of them sick",
    "off": 'all, fairness="off"',
    "key": "all, as it is by default",
}


class Case(NamedTuple):
    """A load: the handler's order, how long it takes, and how the noisy key's records come.

    So many at once, every so many seconds.
    """

    ordering: str
    work_s: float
    burst: int
    burst_s: float

    @property
    def name(self) -> str:
        """Its heading."""
        order = "Unordered" if self.ordering == "unordered" else "In key order"
        noisy = f"{self.burst:,} noisy records every {self.burst_s:g} s"
        return f"{order}, a handler of {1000 * self.work_s:g} ms, {noisy}"


#: What is scarce -> the load. `flood` wants 85 of 64 slots all the time, `slots` while a burst
#: lasts; with a handler of 5 ms the slots could do three times as much as the cores. In key order
#: the noisy key has one slot.
CASES = {
    "flood": Case("unordered", 0.08, 80, 0.1),
    "slots": Case("unordered", 0.05, 4_000, 5.0),
    "cores": Case("unordered", 0.005, 4_000, 5.0),
    "key": Case("key", 0.001, 4_000, 5.0),
}
KEYS, HANGING = 1_000, 5
#: Records a second of the 1,000 keys, and seconds.
RATE, SECONDS = 200, 60
#: Seconds at the start that are not measured.
WARM_S = 5.0
SETTLE_S = 5.0


def hangs(key: int) -> bool:
    """Whether the records of a key never end."""
    return key < HANGING


def run(servers: str, case: str, variant: str, seconds: int) -> Figures:
    """One variant."""
    ordering, work_s, *_ = CASES[case]
    topic = others = f"fairness-{case}-{variant}-{time.time_ns()}"
    made(servers, topic)
    if variant == "alone":
        others = f"{topic}-of-nobody"
        made(servers, others)
    app = App(group=topic, kafka={"bootstrap_servers": servers}, log_level="error")
    waits_ms: list[float] = []
    healthy = 0
    options: dict[str, Any] = {"ordering": ordering}
    if variant == "off":
        options["fairness"] = "off"

    @app.handler(topic, **options)
    async def work(value: bytes, delivery: Delivery) -> None:
        nonlocal healthy
        kind, number, sent_ns = value.split(b" ")
        if kind == b"steady" and not hangs(int(number)):
            healthy += 1
            if int(delivery.attempt) == 1:
                waits_ms.append((time.time_ns() - int(sent_ns)) / 1e6)
        sick_s = 10 * seconds if kind == b"steady" and hangs(int(number)) else work_s
        well_s = work_s if kind == b"steady" else 0.0
        await asyncio.sleep(well_s if variant == "well" else sick_s)

    worker = worker_of(app)
    look_less_often()
    loop = worker.start()
    while (topic, 0) not in worker.engine.assignments:
        loop.turn()
    # Bursts have a process of their own: a steady record must not wait for its producer.
    argv, of = (
        [sys.executable, "-m", "benchmarks.fairness"],
        [servers, topic, others, str(seconds), case],
    )
    writers = [subprocess.Popen([*argv, f"--{kind}", *of]) for kind in ("write", "burst")]
    while any(writer.poll() is None for writer in writers):
        loop.turn()
    sent = sum(not hangs(number % KEYS) for number in range(RATE * seconds))
    in_time = healthy
    until_s = time.monotonic() + 2.0
    while healthy < sent and time.monotonic() < until_s:
        loop.turn()
    worker.close(lambda: True)
    cuts = quantiles(waits_ms[int(WARM_S * RATE) :] or [0.0, 0.0], n=1000)
    return {
        "median_ms": cuts[499],
        "p99_ms": cuts[989],
        "p999_ms": cuts[998],
        "handled_percent": 100 * in_time / sent,
    }


def write(servers: str, topic: str, others: str, seconds: int) -> None:
    """The records of the 1,000 keys, after a moment; those of keys that hang go to `others`."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    producer.list_topics(topic)
    time.sleep(SETTLE_S)
    chance, due_s = random.Random(7), time.monotonic()
    for number in range(RATE * seconds):
        # Keys know nothing of each other. In each run the records have the same gaps.
        due_s += chance.expovariate(RATE)
        time.sleep(max(0.0, due_s - time.monotonic()))
        key = number % KEYS
        value = b"steady %d %d" % (key, time.time_ns())
        where = others if hangs(key) else topic
        producer.produce(where, value, key=b"%d" % key, partition=key % PARTITIONS)
        producer.poll(0)
    producer.flush(30)


def burst(servers: str, others: str, seconds: int, case: Case) -> None:
    """The records of the noisy key, after the same moment."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    producer.list_topics(others)
    time.sleep(SETTLE_S)
    began_s = time.monotonic()
    for number in range(int(seconds / case.burst_s)):
        time.sleep(max(0.0, began_s + number * case.burst_s - time.monotonic()))
        for _ in range(case.burst):
            producer.produce(others, b"noisy 0 0", key=b"noisy", partition=0)
        producer.poll(0)
    producer.flush(30)


def measured(servers: str, given: argparse.Namespace) -> dict[str, dict[str, list[Figures]]]:
    """All rounds, of each case."""
    found: dict[str, dict[str, list[Figures]]] = {}
    for number in range(given.rounds):
        for case in given.cases:
            sys.stderr.write(f"round {number + 1} of {given.rounds}, {case}\n")
            for variant in VARIANTS:
                figures = _apart(given, servers, case, variant)
                sys.stderr.write(f"  {variant}: {figures}\n")
                found.setdefault(case, {}).setdefault(variant, []).append(figures)
    return found


def _apart(given: argparse.Namespace, servers: str, case: str, variant: str) -> Figures:
    """One run, in a process of its own."""
    argv = [sys.executable, "-m", "benchmarks.fairness", "--case", servers, case, variant]
    argv.append(str(given.seconds))
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=10 * given.seconds)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def table(found: dict[str, list[Figures]]) -> list[str]:
    """One case."""
    lines = [
        "| | median, ms | p99, ms | p99.9, ms | p99: of alone | of none sick | in time, % |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for variant, runs in found.items():
        figures = [middle(runs, name, 1) for name in ("median_ms", "p99_ms", "p999_ms")]
        figures += [ratio(runs, found[other], "p99_ms") for other in ("alone", "well")]
        figures.append(middle(runs, "handled_percent", 1))
        lines.append(f"| {NAMES[variant]} | {' | '.join(figures)} |")
    return lines


def text_of(
    found: dict[str, dict[str, list[Figures]]], given: argparse.Namespace, head: Sequence[str]
) -> str:
    """The result."""
    load = (
        f"- {RATE} records a second, by chance, of {KEYS:,} keys, {HANGING} of which hang for "
        f"ever; one more key brings 80 % of all; {given.seconds} s; 64 slots, a consume timeout of "
        f"60 s; {given.rounds} rounds."
    )
    judged = (
        "- Of healthy keys, from produce to the start of the handler. The four take turns; a "
        "worker, its producers and a broker share two cores. Where the healthy keys are alone, "
        "the others' records go to a topic that nobody reads. Where none is sick, all records are "
        "read, none hangs, and the noisy key's take no time."
    )
    options = f"--rounds {given.rounds} --seconds {given.seconds}"
    repeat = f"- Repeat: `python -m benchmarks.fairness {options}`."
    lines = ["# Fairness between keys", "", *head, load, judged, repeat]
    for case, one in found.items():
        lines += ["", f"## {CASES[case].name}", "", *table(one)]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--burst", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        servers, topic, others, seconds, _ = given.write
        write(servers, topic, others, int(seconds))
        return
    if given.burst:
        servers, _, others, seconds, case = given.burst
        burst(servers, others, int(seconds), CASES[case])
        return
    if given.case:
        servers, case, variant, seconds = given.case
        print(json.dumps(run(servers, case, variant, int(seconds))), flush=True)
        return
    head = [line for line in machine.told() if not line.startswith("- aiokafka")][:2]
    with open_broker() as broker:
        text = text_of(measured(broker.bootstrap_servers, given), given, head)
    (FOLDER / "fairness.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
