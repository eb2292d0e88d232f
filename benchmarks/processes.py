"""What the process executor brings: `python -m benchmarks.processes` writes results/processes.md.

A handler that takes 1 ms of a core, in one process, in two, and called by a plain loop over the
bare client. Each run is a process of its own with a group of its own on the same topic; the cases
take turns. The work is a fixed number of steps, not a time, so a core that others use does not do
it sooner. The clock runs from the record at which every process has begun to work to the last one
settled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, TopicPartition

from ackfloor import App
from ackfloor.testing.local_kafka.bootstrap import open_broker
from benchmarks import spin
from benchmarks.topic import PARTITIONS, Contents, filled
from benchmarks.worker import settled_of, worker_of

RESULT = Path(__file__).parent / "results" / "processes.md"
#: Case -> processes; none is the plain loop.
CASES = {"plain loop": 0, "one process": 1, "two processes": 2}
#: Records before the clock starts: every process has imported its handler by then.
WARM_UP = 300


def steps_of_a_millisecond() -> int:
    """How many steps take 1 ms on this machine, by the CPU's clock."""
    spin.STEPS = 200_000
    took = []
    for _ in range(9):
        began_s = time.process_time()
        spin.spin(b"x" * 200)
        took.append(time.process_time() - began_s)
    return round(spin.STEPS * 0.001 / median(took))


def unique(prefix: str) -> str:
    """A group nobody has used."""
    return f"{prefix}-{time.time_ns()}"


def plain(servers: str, topic: str, records: int) -> float:
    """The client alone, and the work in its loop: records per second."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": unique("plain"), "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    count, began_s = 0, 0.0
    while count < records:
        for message in consumer.consume(500, 1.0):
            spin.spin(message.value() or b"")
            count += 1
            if count == WARM_UP:
                began_s = time.perf_counter()
    rate = (count - WARM_UP) / (time.perf_counter() - began_s)
    consumer.close()
    return rate


def ours(servers: str, topic: str, records: int, processes: int) -> float:
    """A whole worker with its metrics on: records per second."""
    app = App(group=unique("bench"), kafka={"bootstrap_servers": servers}, log_level="error")
    app.handler(topic, executor="process", concurrency=processes)(spin.spin)
    worker = worker_of(app)
    loop = worker.start()
    began_s, before, count = 0.0, 0, 0
    while count < records:
        loop.turn()
        count = settled_of(worker, topic)
        if not began_s and count >= WARM_UP:
            began_s, before = time.perf_counter(), count
    rate = (count - before) / (time.perf_counter() - began_s)
    worker.close(lambda: True)
    return rate


def main() -> None:
    """All runs in turn, and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__)
    parser.add_argument("--records", type=int, default=6_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", nargs=2, metavar=("CASE", "SERVERS"), help="one run, here")
    given = parser.parse_args()
    if given.case:
        case, servers = given.case
        topic = filled(servers, Contents(given.records))
        processes = CASES[case]
        run = ours(servers, topic, given.records, processes) if processes else None
        rate = plain(servers, topic, given.records) if run is None else run
        sys.stdout.write(json.dumps(rate) + "\n")
        return
    environment = {**os.environ, "SPIN_STEPS": str(steps_of_a_millisecond())}
    found: dict[str, list[float]] = {case: [] for case in CASES}
    load = os.getloadavg()[0]
    with open_broker() as broker:
        filled(broker.bootstrap_servers, Contents(given.records))
        for _ in range(given.rounds):
            for case in CASES:
                argv = [sys.executable, "-m", "benchmarks.processes"]
                argv += ["--records", str(given.records), "--case", case, broker.bootstrap_servers]
                done = subprocess.run(
                    argv, check=True, stdout=subprocess.PIPE, timeout=400, env=environment
                )
                found[case].append(json.loads(done.stdout.splitlines()[-1]))
    text = table(found, given.records, load)
    RESULT.write_text(text)
    sys.stdout.write(text)


def table(found: dict[str, list[float]], records: int, load: float) -> str:
    """Medians, and ratios taken round by round."""
    rounds, after = len(found["plain loop"]), os.getloadavg()[0]
    machine = (
        f"1 ms of a core for each of {records:,} records, {rounds} rounds in turn, on "
        f"{os.cpu_count()} cores with a load of {load:.1f} before it began and {after:.1f} after "
        "(its own share of that is 1 to 2). Medians; shares are of each round's own plain loop and "
        "one process. See ../README.md."
    )
    lines = [
        "# Processes",
        "",
        machine,
        "",
        "| case | records/s | of the plain loop | of one process |",
        "|---|---:|---:|---:|",
    ]
    for case, rates in found.items():
        shares = [
            median(rate / other for rate, other in zip(rates, found[base], strict=True))
            for base in ("plain loop", "one process")
        ]
        lines.append(f"| {case} | {median(rates):,.0f} | {shares[0]:.2f} | {shares[1]:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
