"""`python -m benchmarks.growth`: what a record costs the core as its surroundings grow.

The engine on a stage (stage.py), no broker: CPU time of this thread, the best of several rounds,
because whatever else the machine does can only add to it. Writes results/growth.md, .json and .png.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

from ackfloor.testing.memory.memory_log import MemoryRecord
from benchmarks import machine
from benchmarks.plots import curves
from benchmarks.results import FOLDER
from benchmarks.stage import BATCH, TIER, Stage, due_in, stored, with_gaps

#: Records of one measurement, beside those that are in flight.
RECORDS = 50_000
#: How many records of a partition come in a row.
IN_A_ROW = 100

Curve = dict[int, float]


def window(size: int) -> float:
    """So many records in flight."""
    return _flow(Stage(), _batches(1, 1, RECORDS + size), size)


def window_by_key(size: int) -> float:
    """So many records in flight in key order, as many keys."""
    return _flow(Stage(ordering="key"), _batches(1, 1, RECORDS + size, keys=size), size)


def partitions(count: int) -> float:
    """So many partitions, 10,000 records in flight."""
    return _flow(Stage(partitions=count), _batches(1, count, RECORDS + 10_000), 10_000)


def handlers(count: int) -> float:
    """So many handlers, each with a topic of its own, 10,000 records in flight."""
    return _flow(Stage(handlers=count), _batches(count, 1, RECORDS + 10_000), 10_000)


def waiting(count: int) -> float:
    """So many retries that wait in memory, 1,000 records in flight."""
    stage = Stage()
    due = due_in(3_500)
    for first in range(0, count, BATCH):
        stage.read(stored(TIER, 0, range(first, min(count, first + BATCH)), headers=due))
    return _flow(stage, _batches(1, 1, RECORDS + 1_000), 1_000)


def gaps(count: int) -> float:
    """Milliseconds of a commit with so many gaps above the floor."""
    stage = with_gaps(count)
    began_s = time.thread_time()
    stage.turn(2.0)
    return (time.thread_time() - began_s) * 1000


GROWTH: dict[str, tuple[Callable[[int], float], str, tuple[int, ...]]] = {
    "records in flight": (window, "us a record", (10, 100, 1_000, 10_000, 100_000)),
    "records in flight, key order": (
        window_by_key,
        "us a record",
        (10, 100, 1_000, 10_000, 100_000),
    ),
    "partitions": (partitions, "us a record", (1, 10, 100, 1_000)),
    "handlers": (handlers, "us a record", (1, 10, 100)),
    "retries waiting in memory": (waiting, "us a record", (10, 1_000, 10_000, 100_000, 1_000_000)),
    "gaps above the floor": (gaps, "ms a commit", (10, 100, 1_000, 10_000)),
}


def _batches(topics: int, partitions: int, count: int, keys: int = 0) -> list[list[MemoryRecord]]:
    """Polls of 500 records: some of one partition, then some of the next."""
    places = [(f"topic{t}", p) for t in range(topics) for p in range(partitions)]
    ends = dict.fromkeys(places, 0)

    def rows() -> Iterator[MemoryRecord]:
        while True:
            for topic, partition in places:
                first = ends[topic, partition]
                ends[topic, partition] = first + IN_A_ROW
                yield from stored(topic, partition, range(first, first + IN_A_ROW), keys=keys)

    records = rows()
    return [[next(records) for _ in range(BATCH)] for _ in range(0, count, BATCH)]


def _flow(stage: Stage, batches: list[list[MemoryRecord]], in_flight: int) -> float:
    """Microseconds a record, with so many in flight."""
    answered = min(BATCH, in_flight)
    fill = in_flight // BATCH
    for batch in batches[:fill]:
        stage.read(batch)
    gc.collect()
    began_s = time.thread_time()
    for batch in batches[fill:]:
        for first in range(0, BATCH, answered):
            stage.read(batch[first : first + answered] if answered < BATCH else batch)
            stage.answer(answered)
            stage.turn()
        stage.confirm()
    count = sum(map(len, batches[fill:]))
    return (time.thread_time() - began_s) / count * 1e6


def bytes_per_open_record() -> float:
    """What the core keeps of an open record beside the record itself."""
    count = 100_000
    batches = _batches(1, 1, count)
    stage = Stage()
    gc.collect()
    tracemalloc.start()
    for batch in batches:
        stage.read(batch)
    stage.turn()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / count


def measured(rounds: int) -> dict[str, Curve]:
    """All curves; their points take turns."""
    best: dict[str, Curve] = {name: {} for name in GROWTH}
    for _ in range(rounds):
        for name, (work, _, sizes) in GROWTH.items():
            for size in sizes:
                best[name][size] = min(work(size), best[name].get(size, float("inf")))
    return best


def table(found: dict[str, Curve], overhead: float) -> str:
    """The curves as Markdown."""
    lines = []
    for name, curve in found.items():
        unit = GROWTH[name][1]
        lines += [
            f"| {name} | {' | '.join(f'{size:,}' for size in curve)} |",
            f"|---|{'--:|' * len(curve)}",
            f"| {unit} | {' | '.join(f'{cost:.2f}' for cost in curve.values())} |",
            "",
        ]
    return "\n".join(
        [*lines, f"An open record costs {overhead:.0f} bytes beside the record itself."]
    )


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    head = machine.told()
    found, overhead = measured(given.rounds), bytes_per_open_record()
    command = f"python -m benchmarks.growth --rounds {given.rounds}"
    lines = ["# Growth", "", *head, f"- Best of {given.rounds} rounds. Repeat: `{command}`.", ""]
    text = "\n".join([*lines, table(found, overhead)]) + "\n"
    (given.out / "growth.md").write_text(text, "utf-8")
    told = {"head": head, "command": command, "curves": found, "bytes_per_open_record": overhead}
    (given.out / "growth.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    curves(found, {name: unit for name, (_, unit, _) in GROWTH.items()}, given.out / "growth.png")
    print(text)


if __name__ == "__main__":
    main()
