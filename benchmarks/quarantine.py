"""What quarantined keys cost: `python -m benchmarks.quarantine` writes results/quarantine.md.

* takeover: one worker parks a record of each of 100,000 keys and ends; the next one takes its
  partitions over. From its rebalance callback to the first source record of a healthy key.
* memory: resident memory of both, before and after, and what becomes of one key more.
* latency: healthy keys, from produce to the start of the handler, at a steady rate: on_failure
  "block" and "quarantine" without failures, and "quarantine" where 1 % of the keys always fail.
  All of them at the same time, so that whatever else the machine does it does to each.
* throughput: key order, a handler that does nothing and never fails, "block" and "quarantine".

Each run is a process of its own; the variants of throughput take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import Event, KeyNotQuarantined
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.kafka.consume.quarantined_topics import QuarantinedTopics
from ackfloor.runtime.loop.garbage_collection import look_less_often
from ackfloor.runtime.loop.loop import Loop
from ackfloor.runtime.loop.worker_assembly import Worker
from ackfloor.testing.local_kafka.bootstrap import open_broker
from benchmarks import machine
from benchmarks.results import FOLDER
from benchmarks.topic import PARTITIONS, Contents, filled, make
from benchmarks.worker import settled_of, worker_of

PARTS = ("takeover", "latency", "throughput")
#: Keys that fail; records of healthy keys that come before.
KEYS = 100_000
BAD = b"bad"
VALUE = b"x" * 200
LONGEST_S = 300.0
#: The load of the latency part.
RATE, SECONDS, LIVE_KEYS, SETTLE_S = 300, 20, 1_000, 5.0
#: One key of so many fails.
ONE_OF = 100
RECORDS = 1_000_000
VARIANTS = {
    "latency": ("block", "quarantine", "quarantine, 1 % of the keys fail"),
    "throughput": ("block", "quarantine"),
}

Figures = dict[str, float]


class Watch:
    """Counts the failed records whose key could not be quarantined."""

    def __init__(self) -> None:
        self.refused = 0

    def observe(self, events: Sequence[Event]) -> None:
        """Events of one turn."""
        self.refused += sum(isinstance(event, KeyNotQuarantined) for event in events)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Not needed."""


def app_of(servers: str, topic: str) -> App:
    """An app whose group is called like its topic."""
    return App(group=topic, kafka={"bootstrap_servers": servers}, log_level="error")


def mebibytes() -> float:
    """Resident memory of this process."""
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


def turn_until(loop: Loop, condition: Callable[[], bool]) -> None:
    """Turn the worker's loop."""
    until_s = time.monotonic() + LONGEST_S
    while not condition():
        if time.monotonic() > until_s:
            raise TimeoutError("the benchmark does not get on")
        loop.turn()


def turn_for(loop: Loop, seconds: float) -> list[float]:
    """Turn the loop for a while; returns what each turn took, none of which waits, in ms."""
    until_s, took = time.monotonic() + seconds, []
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        loop.turn(0.0)
        took.append(1000 * (time.monotonic() - began_s))
        time.sleep(0.001)
    return took


# Takeover and memory.


class Keys:
    """A worker on a topic with healthy and failing keys; its successor finds what it parked."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic = topic
        self.handled: list[float] = []
        self.first_cpu_s = 0.0
        self.watch = Watch()
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
        app = app_of(servers, topic)

        @app.handler(
            topic,
            ordering="key",
            on_failure="quarantine",
            retry=RetryPolicy.fixed("1h", 3),
            breaker=None,
        )
        async def work(value: bytes) -> None:
            if value.startswith(BAD):
                raise ConnectionError("away")
            self.first_cpu_s = self.first_cpu_s or time.process_time()
            self.handled.append(time.monotonic())

        self.worker: Worker = worker_of(app, self.watch)
        look_less_often()
        self.loop = self.worker.start()

    def quarantined(self) -> int:
        """How many keys are."""
        handlers = self.worker.engine.state.handlers.values()
        return sum(len(handler.lanes.quarantined) for handler in handlers)

    def send(self, prefix: str, value: bytes, count: int) -> None:
        """A record of each of so many keys."""
        for number in range(count):
            key = f"{prefix}{number}".encode()
            while True:
                try:
                    self._producer.produce(
                        self.topic, value, key=key, partition=number % PARTITIONS
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.flush(60)


def quarantining(servers: str, topic: str, count: int) -> Figures:
    """The first worker: healthy keys, then so many that fail, one record of each."""
    keys = Keys(servers, topic)
    keys.send("h", VALUE, KEYS)
    turn_until(keys.loop, lambda: settled_of(keys.worker, topic) == KEYS)
    turn_for(keys.loop, 2.0)
    before = mebibytes()
    keys.send("b", BAD + VALUE, count)
    began_s = time.monotonic()
    turn_until(keys.loop, lambda: settled_of(keys.worker, topic) + _waiting(keys) == KEYS + count)
    turn_until(keys.loop, lambda: keys.quarantined() == count)
    parked_s = time.monotonic() - began_s
    turn_for(keys.loop, 5.0)
    after = mebibytes()
    turns = turn_for(keys.loop, 10.0)
    # For the next one.
    keys.send("n", VALUE, 100 * PARTITIONS)
    began_s = time.monotonic()
    keys.worker.close(lambda: False)
    return {
        "close_s": time.monotonic() - began_s,
        "before_mib": before,
        "after_mib": after,
        "parked_s": parked_s,
        "turn_p99_ms": quantiles(turns, n=100)[98],
        "turn_max_ms": max(turns),
    }


def _waiting(keys: Keys) -> int:
    """What is open in retry topics: it was counted as settled nowhere else."""
    return sum(
        len(a.tracker.open) for a in keys.worker.engine.assignments.values() if a.tier_s is not None
    )


def takeover(servers: str, topic: str, count: int) -> Figures:
    """The next worker: what it waits for before it begins."""
    times: dict[str, float] = {}
    _time_reading(times)
    keys = Keys(servers, topic)
    turn_until(keys.loop, lambda: len(keys.handled) >= 1)
    found = keys.quarantined()
    turn_until(keys.loop, lambda: len(keys.handled) >= 100 * PARTITIONS)
    turn_for(keys.loop, 5.0)
    after = mebibytes()
    figures = {
        "read_s": times["read"] - times["assigned"],
        "first_s": keys.handled[0] - times["assigned"],
        "cpu_s": keys.first_cpu_s - times["assigned, cpu"],
        "found": found,
        "after_mib": after,
    }
    assert found == count, f"{found} keys are quarantined, {count} were"
    if count == KEYS:
        figures.update(_beyond_the_bound(keys))
    keys.worker.close(lambda: True)
    return figures


def _beyond_the_bound(keys: Keys) -> Figures:
    """Two records of one key more: the first blocks its lane."""
    keys.send("more", BAD + VALUE, 1)
    keys.send("more", VALUE, 1)
    turn_until(keys.loop, lambda: keys.watch.refused > 0)
    turn_for(keys.loop, 1.0)
    (handler,) = keys.worker.engine.state.handlers.values()
    blocked = len(handler.lanes.blocked)
    return {"refused": keys.watch.refused, "blocked": blocked, "keys": keys.quarantined()}


def _time_reading(times: dict[str, float]) -> None:
    """Note when the rebalance callback begins, and when it knows what is parked."""
    begin, end = QuarantinedTopics.find_starts, QuarantinedTopics.with_parked

    def begun(self: QuarantinedTopics, *given: Any) -> Any:
        times.setdefault("assigned", time.monotonic())
        times.setdefault("assigned, cpu", time.process_time())
        return begin(self, *given)

    def read(self: QuarantinedTopics, *given: Any) -> Any:
        found = end(self, *given)
        times["read"] = time.monotonic()
        return found

    QuarantinedTopics.find_starts = begun  # type: ignore[method-assign]
    QuarantinedTopics.with_parked = read  # type: ignore[method-assign]


# Latency and throughput.


def latency(servers: str, topic: str, variant: str) -> Figures:
    """Healthy keys at a steady rate."""
    app, took_ms, failed = app_of(servers, topic), [], 0
    fails = "fail" in variant

    @app.handler(
        topic,
        ordering="key",
        on_failure="quarantine" if variant != "block" else "block",
        retry=RetryPolicy(delays=("1s", "5s", "10s"), max_redeliveries=None),
    )
    async def work(value: bytes, delivery: Delivery) -> None:
        nonlocal failed
        late_ms = (time.time_ns() - int(value)) / 1e6
        if int((delivery.key or b"0").decode()) % ONE_OF == 0:
            if fails:
                failed += 1
                raise ConnectionError("away")
        else:
            took_ms.append(late_ms)
        await asyncio.sleep(0.001)

    count = RATE * SECONDS
    healthy = count - count // ONE_OF
    worker = worker_of(app)
    look_less_often()
    loop = worker.start()
    turn_until(loop, lambda: (topic, 0) in worker.engine.assignments)
    argv = [sys.executable, "-m", "benchmarks.quarantine", "--write", servers, topic]
    writer = subprocess.Popen(argv)
    turn_until(loop, lambda: len(took_ms) >= healthy)
    writer.wait()
    handlers = worker.engine.state.handlers.values()
    quarantined = sum(len(handler.lanes.quarantined) for handler in handlers)
    worker.close(lambda: True)
    cuts = quantiles(took_ms[healthy // 10 :], n=1000)
    return {
        "median_ms": cuts[499],
        "p99_ms": cuts[989],
        "p999_ms": cuts[998],
        "quarantined": quarantined,
        "failed": failed,
    }


def write(servers: str, topic: str) -> None:
    """The load of the latency part, after a moment."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    producer.list_topics(topic)
    time.sleep(SETTLE_S)
    began_s = time.monotonic()
    for number in range(RATE * SECONDS):
        time.sleep(max(0.0, began_s + number / RATE - time.monotonic()))
        key = number % LIVE_KEYS
        producer.produce(topic, b"%d" % time.time_ns(), key=b"%d" % key, partition=key % PARTITIONS)
        producer.poll(0)
    producer.flush(30)


def throughput(servers: str, records: int, variant: str) -> Figures:
    """A handler in key order that does nothing, on a topic that is there."""
    topic = filled(servers, Contents(records))
    app = app_of(servers, f"{topic}-{time.time_ns()}")

    @app.handler(topic, ordering="key", on_failure="quarantine" if variant != "block" else "block")
    async def work(_: bytes) -> None:
        pass

    worker = worker_of(app)
    look_less_often()
    loop = worker.start()
    turn_until(loop, lambda: settled_of(worker, topic) >= records // 10)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    before = settled_of(worker, topic)
    turn_until(loop, lambda: settled_of(worker, topic) >= records)
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    worker.close(lambda: True)
    count = records - before
    return {"records_per_s": count / took_s, "cpu_s_per_million": cpu_s / count * 1e6}


# Everything.


def case(words: Sequence[str], records: int) -> Figures:
    """One run, in this process."""
    part, servers, *rest = words
    if part in ("quarantining", "takeover"):
        topic, count = rest
        if part == "quarantining":
            made(servers, topic)
            return quarantining(servers, topic, int(count))
        return takeover(servers, topic, int(count))
    (variant,) = rest
    if part == "throughput":
        return throughput(servers, records, variant)
    topic = f"quarantine-{time.time_ns()}"
    made(servers, topic)
    return latency(servers, topic, variant)


def made(servers: str, topic: str) -> None:
    """Create a topic, and return when the broker tells of it."""
    make(servers, topic)
    admin = AdminClient({"bootstrap.servers": servers})
    until_s = time.monotonic() + LONGEST_S
    while topic not in admin.list_topics(timeout=10).topics:
        if time.monotonic() > until_s:
            raise TimeoutError("the topic is not there")
        time.sleep(0.05)


def run(given: argparse.Namespace, *words: str) -> Figures:
    """One run, in a process of its own."""
    sys.stderr.write(f"{' '.join([words[0], *words[2:]])}\n")
    argv = [sys.executable, "-m", "benchmarks.quarantine", "--records", str(given.records)]
    done = subprocess.run(
        [*argv, "--case", *words], check=True, stdout=subprocess.PIPE, timeout=3 * LONGEST_S
    )
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    sys.stderr.write(f"  {figures}\n")
    return figures


Found = dict[str, list[Figures]]


def measured(given: argparse.Namespace, servers: str) -> dict[str, Found]:
    """All rounds of the parts that are asked for."""
    found: dict[str, Found] = {}
    for number in range(given.rounds):
        for part in given.only or PARTS:
            one = found.setdefault(part, {})
            if part == "takeover":
                for count in (0, given.keys):
                    topic = f"quarantine-{count}-{time.time_ns()}"
                    first = run(given, "quarantining", servers, topic, str(count))
                    one.setdefault(f"first {count}", []).append(first)
                    second = run(given, "takeover", servers, topic, str(count))
                    one.setdefault(f"next {count}", []).append(second)
                continue
            # Each round begins with another one.
            turn = number % len(VARIANTS[part])
            variants = VARIANTS[part][turn:] + VARIANTS[part][:turn]
            with ThreadPoolExecutor(len(variants) if part == "latency" else 1) as pool:
                runs = list(pool.map(lambda v, p=part: run(given, p, servers, v), variants))
            for variant, figures in zip(variants, runs, strict=True):
                one.setdefault(variant, []).append(figures)
    return found


def middle(runs: Sequence[Figures], name: str, digits: int = 0) -> str:
    """The median of the rounds, with the lowest and the highest."""
    values = [figures[name] for figures in runs]
    low, mid, high = (f"{v:,.{digits}f}" for v in (min(values), median(values), max(values)))
    return f"{mid} ({low} to {high})"


def ratio(runs: Sequence[Figures], others: Sequence[Figures], name: str) -> str:
    """The median of the rounds' ratios."""
    shares = [one[name] / other[name] for one, other in zip(runs, others, strict=True)]
    return f"{median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})"


def takeover_table(found: Found, keys: int) -> list[str]:
    """Takeover and memory."""
    lines = [
        "| quarantined | what is parked is known after, s | first healthy one after, s | CPU, s |",
        "|--:|--:|--:|--:|",
    ]
    for count in (0, keys):
        runs = found[f"next {count}"]
        row = [middle(runs, name, 2) for name in ("read_s", "first_s", "cpu_s")]
        lines.append(f"| {count:,} | {' | '.join(row)} |")
    first, others = found[f"first {keys}"], found["first 0"]
    lines += [
        "",
        "| quarantined | before, MiB | after, MiB | next one, MiB | longest turn, ms | end |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for count, runs in ((0, others), (keys, first)):
        memory = (middle(runs, "before_mib"), middle(runs, "after_mib"))
        later = middle(found[f"next {count}"], "after_mib")
        turns = f"{middle(runs, 'turn_max_ms', 1)} | {middle(runs, 'close_s', 1)} s"
        lines.append(f"| {count:,} | {memory[0]} | {memory[1]} | {later} | {turns} |")
    each = median(
        ((one["after_mib"] - one["before_mib"]) - (other["after_mib"] - other["before_mib"]))
        for one, other in zip(first, others, strict=True)
    )
    lines += ["", f"That is {each * 2**20 / max(1, keys):,.0f} bytes a key in the first worker."]
    rate = middle([{"rate": keys / figures["parked_s"]} for figures in first], "rate")
    lines.append(f"It quarantined {rate} keys a second.")
    if "refused" in found[f"next {keys}"][0]:
        bound = found[f"next {keys}"]
        lines.append(
            f"One key more: said and counted {middle(bound, 'refused')} times, "
            f"{middle(bound, 'blocked')} lane blocked, {middle(bound, 'keys')} keys quarantined."
        )
    return lines


def variants_table(part: str, found: Found) -> list[str]:
    """Latency, or throughput."""
    names = {
        "latency": ("median_ms", "p99_ms", "p999_ms", "quarantined"),
        "throughput": ("records_per_s", "cpu_s_per_million"),
    }[part]
    judged = "p99_ms" if part == "latency" else "records_per_s"
    digits = 1 if part == "latency" else 0
    lines = [
        f"| on_failure | {' | '.join(names)} | {judged} against block, round by round |",
        f"|---|{'--:|' * (len(names) + 1)}",
    ]
    for variant, runs in found.items():
        figures = " | ".join(
            middle(runs, name, 2 if name.startswith("cpu") else digits) for name in names
        )
        lines.append(f"| {variant} | {figures} | {ratio(runs, found['block'], judged)} |")
    return lines


def text_of(found: Mapping[str, Found], given: argparse.Namespace, head: Sequence[str]) -> str:
    """The result."""
    lines = ["# Quarantine", "", *head, ""]
    for part, one in found.items():
        lines += [f"## {part.capitalize()}", ""]
        lines += (
            takeover_table(one, given.keys) if part == "takeover" else variants_table(part, one)
        )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """All runs in turn, and the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quarantine", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts (all)")
    parser.add_argument("--rounds", type=int, default=5, help="of each part (5)")
    parser.add_argument("--keys", type=int, default=KEYS, help="that are quarantined (100000)")
    parser.add_argument("--records", type=int, default=RECORDS, help="of throughput (1000000)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the result")
    parser.add_argument("--case", nargs="+", metavar="WORD", help="one run, here")
    parser.add_argument("--write", nargs=2, metavar=("SERVERS", "TOPIC"), help="the load, here")
    given = parser.parse_args()
    if given.write:
        write(*given.write)
        return
    if given.case:
        sys.stdout.write(json.dumps(case(given.case, given.records)) + "\n")
        return
    head = [line for line in machine.told() if not line.startswith("- aiokafka")][:2]
    with open_broker() as broker:
        found = measured(given, broker.bootstrap_servers)
    head.append(
        f"- {given.rounds} rounds, {PARTITIONS} partitions; medians, lowest and highest. Load after"
        f" it {os.getloadavg()[0]:.1f}, its own share of that is 1 to 2."
    )
    text = text_of(found, given, head)
    (given.out / "quarantine.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
