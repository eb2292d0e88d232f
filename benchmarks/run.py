"""`python benchmarks/run.py`: every case, interleaved rounds, one table. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import Progress
from topic import ensure

from ackfloor.testing.bootstrap import open_broker

HERE = Path(__file__).parent
RESULTS = HERE / "results"
CASES = ("no-op async", "no-op thread", "no-op async, key order", "5 ms async")
#: The slow case reads fewer records, or a round would take minutes.
FEWER = {"5 ms async": 300_000}

Figures = dict[str, float]


def measure(case: str, servers: str, topic: str, records: int) -> Figures:
    """One run of one case in its own process."""
    argv = [sys.executable, str(HERE / "case.py"), case, servers, topic, str(records)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=400)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def rounds(servers: str, records: int, count: int) -> dict[str, list[Figures]]:
    """Run all cases `count` times, interleaved; adds each run's ratio to its round's bare runs."""
    topics = {records: f"bench-{records}"}
    for fewer in FEWER.values():
        topics[min(fewer, records)] = f"bench-{min(fewer, records)}"
    for size, topic in topics.items():
        ensure(servers, topic, size)
    found: dict[str, list[Figures]] = {case: [] for case in ("bare", *CASES)}
    with Progress(disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("measuring", total=count * (len(CASES) + 2))
        for _ in range(count):
            turn: dict[str, Figures] = {}
            before = measure("bare", servers, topics[records], records)
            progress.advance(bar)
            for case in CASES:
                size = min(FEWER.get(case, records), records)
                turn[case] = measure(case, servers, topics[size], size)
                progress.advance(bar)
            after = measure("bare", servers, topics[records], records)
            progress.advance(bar)
            bare = (before["records_per_s"] + after["records_per_s"]) / 2
            for case, figures in turn.items():
                found[case].append({**figures, "ratio": figures["records_per_s"] / bare})
            found["bare"] += [
                {**run, "ratio": run["records_per_s"] / bare} for run in (before, after)
            ]
    return found


def summary(found: dict[str, list[Figures]]) -> dict[str, dict[str, list[float]]]:
    """Minimum, median and maximum of each figure of each case."""
    return {
        case: {
            name: [
                min(run[name] for run in runs),
                median(run[name] for run in runs),
                max(run[name] for run in runs),
            ]
            for name in runs[0]
        }
        for case, runs in found.items()
    }


def table(told: dict[str, dict[str, list[float]]], machine: str) -> str:
    """The summary as Markdown."""
    lines = [
        "# Speed",
        "",
        f"{machine}. Median (minimum to maximum). Repeat with `make bench`; see ../README.md.",
        "",
        "| case | records/s | share of the bare loop | CPU us/record | peak MiB |",
        "|---|---:|---:|---:|---:|",
    ]
    for case, figures in told.items():
        low, mid, high = figures["records_per_s"]
        share = figures["ratio"]
        lines.append(
            f"| {case} | {mid:,.0f} ({low:,.0f} to {high:,.0f}) "
            f"| {share[1]:.2f} ({share[0]:.2f} to {share[2]:.2f}) "
            f"| {figures['cpu_us_per_record'][1]:.2f} | {figures['peak_mib'][1]:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with open_broker() as broker:
        found = rounds(broker.bootstrap_servers, given.records, given.rounds)
    machine = (
        f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, "
        f"confluent-kafka {version('confluent-kafka')}, {given.rounds} rounds of "
        f"{given.records:,} records"
    )
    told = summary(found)
    text = table(told, machine)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "speed.md").write_text(text)
    (RESULTS / "speed.json").write_text(
        json.dumps({"machine": machine, "summary": told, "runs": found}, indent=2) + "\n"
    )
    Console().print(text, markup=False)


if __name__ == "__main__":
    main()
