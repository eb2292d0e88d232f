"""What exactly-once output costs: `python -m benchmarks.outputs` writes results/outputs.md.

One output of about 200 bytes for each record, in four ways that take turns:

* at least once: the handler awaits `app.publish`;
* transactional parking: the same handler, `parking="transactional"`;
* exactly once: `output="exactly_once"`, the handler calls `delivery.publish`;
* a bare transactional loop of the client, 1,000 records a transaction.

Throughput: all records are there; ours are run once more, with some that fail. Latency: 1,000
records a second, from the call of produce until a reader of committed records has the output. Each
run is a process of its own, on an output topic of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median

from ackfloor.testing.local_kafka.bootstrap import open_broker
from benchmarks import machine
from benchmarks.latency import SETTLE_S
from benchmarks.measured import RunFailed, end, measure, started
from benchmarks.outputs.publishing_worker import FAILS
from benchmarks.peers.installed import ROOT
from benchmarks.results import FOLDER
from benchmarks.topic import Contents, filled, make

BARE = "bare loop"
#: Variant -> what the table calls it.
VARIANTS = {
    "at least once": "at least once, `await app.publish`",
    "transactional parking": "transactional parking, `await app.publish`",
    "exactly once": '`output="exactly_once"`, `delivery.publish`',
    BARE: "bare transactional loop, 1,000 records each",
}
RECORDS = 200_000
#: Records a second of the latency part, and how many.
RATE, PACED = 1_000, 10_000
LONGEST_S = 180.0

TITLES = (
    "| | records/s | of at least once | of the bare loop | CPU s per million "
    f"| records/s, 1 of {FAILS} fails once | latency p50, ms | p99, ms |"
)

Figures = dict[str, float]
#: Variant -> its rounds, in order; one that failed is empty.
Found = dict[str, list[Figures]]


def throughput(servers: str, variant: str, part: str, source: str, records: int) -> Figures:
    """One variant: records a second, and what one costs."""
    target = _topic(servers, "outputs")
    argv = _command(variant, part, servers, source, target, records)
    return measure(argv, env={"PYTHONPATH": str(ROOT)}, timeout_s=LONGEST_S).figures


def latency(servers: str, variant: str, records: int) -> Figures:
    """One variant at a steady rate: what a reader of committed records waits for."""
    source, target = _topic(servers, "paced"), _topic(servers, "outputs")
    env = {"PYTHONPATH": str(ROOT)}
    pace = [sys.executable, "-m", "benchmarks.pace", servers, source]
    argv = [sys.executable, "-m", "benchmarks.outputs.committed_reader"]
    beside = [
        started(_command(variant, "latency", servers, source, target, records), env=env),
        started([*pace, str(RATE), str(records), str(SETTLE_S)], env=env),
    ]
    try:
        return measure([*argv, servers, target, str(records)], env=env, timeout_s=LONGEST_S).told
    finally:
        for process in beside:
            end(process)


def _command(
    variant: str, part: str, servers: str, source: str, target: str, records: int
) -> list[str]:
    name = "bare_transactions" if variant == BARE else "publishing_worker"
    argv = [sys.executable, "-m", f"benchmarks.outputs.{name}"]
    return [*argv, variant, part, servers, source, target, str(records)]


def _topic(servers: str, name: str) -> str:
    topic = f"bench-{name}-{time.time_ns()}"
    make(servers, topic)
    return topic


def measured(servers: str, given: argparse.Namespace) -> Found:
    """All rounds, of each variant."""
    source = filled(servers, Contents(given.records))
    found: Found = {variant: [] for variant in VARIANTS}
    for number in range(given.rounds):
        for variant, rounds in found.items():
            sys.stderr.write(f"round {number + 1} of {given.rounds}, {variant}\n")
            try:
                figures = one_round(servers, variant, source, given)
            except RunFailed as failure:
                sys.stderr.write(f"  failed: {failure}\n")
                figures = {}
            sys.stderr.write(f"  {figures}\n")
            rounds.append(figures)
    return found


def one_round(servers: str, variant: str, source: str, given: argparse.Namespace) -> Figures:
    """All parts of one variant."""
    figures = throughput(servers, variant, "throughput", source, given.records)
    if variant != BARE:
        failing = throughput(servers, variant, "failing", source, given.records // 2)
        figures["failing_per_s"] = failing["records_per_s"]
    return figures | latency(servers, variant, given.paced)


def middle(rounds: list[Figures], name: str, form: str) -> str:
    """The median of a figure and its spread."""
    return _spread([figures[name] for figures in rounds if name in figures], form)


def share(rounds: list[Figures], others: list[Figures]) -> str:
    """The median of the rounds' ratios of throughput, and their spread."""
    name = "records_per_s"
    pairs = zip(rounds, others, strict=True)
    return _spread([a[name] / b[name] for a, b in pairs if name in a and name in b], "{:.2f}")


def _spread(values: list[float], form: str) -> str:
    if not values:
        return ""
    low, middle, high = min(values), median(values), max(values)
    return f"{form.format(middle)} ({form.format(low)} to {form.format(high)})"


def table(found: Found) -> list[str]:
    """All variants."""
    lines = [TITLES, "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for variant, rounds in found.items():
        cells = [
            middle(rounds, "records_per_s", "{:,.0f}"),
            share(rounds, found["at least once"]),
            share(rounds, found[BARE]),
            middle(rounds, "cpu_s_per_million", "{:.0f}"),
            middle(rounds, "failing_per_s", "{:,.0f}"),
            middle(rounds, "p50_ms", "{:.1f}"),
            middle(rounds, "p99_ms", "{:.1f}"),
        ]
        lines.append(f"| {VARIANTS[variant]} | {' | '.join(cells)} |")
    return lines


def text_of(found: Found, given: argparse.Namespace, head: list[str]) -> str:
    """The result."""
    head = [
        *head,
        f"- One output of about 200 bytes for each record, 8 partitions; {given.rounds} rounds in",
        "  turns, medians (lowest to highest), ratios taken within a round.",
        f"- Throughput: {given.records:,} records that are there, the first tenth not counted;",
        "  settled is written. Our handlers have 1,000 slots. What fails once comes again a second",
        "  later, by a retry topic.",
        f"- Latency: {RATE:,} records a second, {given.paced:,} of them, from the call of produce",
        "  to a reader of committed records. All of them share the cores.",
        "- CPU is that of the worker's process at full speed, not the broker's.",
        "- Repeat: `python -m benchmarks.outputs`.",
    ]
    return "\n".join(["# Outputs", "", *head, "", *table(found), ""])


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--paced", type=int, default=PACED)
    parser.add_argument("--out", type=Path, default=FOLDER / "outputs.md")
    given = parser.parse_args()
    head = [line for line in machine.told() if not line.startswith("- aiokafka")][:2]
    with open_broker() as broker:
        found = measured(broker.bootstrap_servers, given)
    text = text_of(found, given, head)
    given.out.write_text(text, "utf-8")
    given.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
