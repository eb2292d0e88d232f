"""`python -m benchmarks`: everything beside its peers, in interleaved rounds. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ackfloor.testing.local_kafka.bootstrap import open_broker
from benchmarks import machine, results
from benchmarks.crash import crash
from benchmarks.idle import idle
from benchmarks.latency import latency
from benchmarks.peers.installed import PEERS
from benchmarks.plots import bars
from benchmarks.speed import Found, chosen, speed

PARTS = ("speed", "latency", "idle", "crash")
#: What Kafka's own scripts give a broker. Those that our tests start are smaller, and compile less:
#: their garbage collector stops everything for 6 to 18 ms.
AS_KAFKA_STARTS_IT = (
    *("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
CAVEATS = """\
- One machine runs the broker and the consumer. Ratios carry over, absolute figures do not.
- The clock runs from the end of the first tenth of the records to the last one handled, so that
  start-up, compilers and a full prefetch are left out. Ours also waits until records are settled.
- A ratio is taken within a round, and the median of the rounds' ratios is told; in brackets the
  lowest and the highest round. CPU seconds per million records are steadier than rates where others
  use the machine, too.
- The peers promise different things. The bare loop tracks and commits nothing. aiokafka and
  FastStream commit on a timer, whatever the handler does. quixstreams, arroyo and faust handle a
  partition in order. parallel-consumer and pyrallel-consumer track each record, as ackfloor does.
- Not run here: kpipe (JVM 25, a virtual thread for each record) tells 616,000 records/s unordered
  and 286,000 by key on six cores, six times parallel-consumer there.
"""


def main() -> None:
    """Measure what is asked for; print and write the results."""
    given = _given()
    peers = {p for p in PEERS if not given.peer or p in given.peer} | {"ackfloor"}
    found: dict[str, Found] = {}
    head = machine.told()
    began_s = time.monotonic()
    with open_broker(jvm_args=AS_KAFKA_STARTS_IT) as broker:
        servers = broker.bootstrap_servers
        if broker.origin != "given":
            head.append("- The broker is started as Kafka's own scripts do (1 GiB of heap, G1).")
        parts: dict[str, Callable[[], Found]] = {
            "speed": lambda: speed(
                servers, chosen(given.case), peers, given.rounds, given.scale, _say
            ),
            "latency": lambda: latency(servers, peers, given.rounds, _say),
            "idle": lambda: idle(servers, peers, given.rounds, _say),
            "crash": lambda: crash(servers, peers, given.rounds, _say),
        }
        for part in given.only or PARTS:
            found[part] = parts[part]()
    head.append(
        f"- {given.rounds} interleaved rounds in {(time.monotonic() - began_s) / 60:.0f} minutes;"
        f" load at the end {os.getloadavg()[0]:.1f}."
    )
    for part, one in found.items():
        _write(given.out, part, one, head, _repeated(part, given))


def _repeated(part: str, given: argparse.Namespace) -> str:
    """The command that measures a part again as it was measured."""
    words = ["python", "-m", "benchmarks", "--only", part, "--rounds", str(given.rounds)]
    if given.scale != 1:
        words += ["--scale", f"{given.scale:g}"]
    if given.case and part == "speed":
        words += ["--case", *given.case]
    if given.peer:
        words += ["--peer", *given.peer]
    return shlex.join(words)


def _write(folder: Path, part: str, found: Found, head: list[str], command: str) -> None:
    folder.mkdir(exist_ok=True)
    table = results.speed_table(found) if part == "speed" else results.plain_table(found)
    parts = [f"# {part.capitalize()}", "", *head, f"- Repeat: `{command}`.", "", CAVEATS, table]
    text = "\n".join(parts)
    (folder / f"{part}.md").write_text(text.rstrip() + "\n", "utf-8")
    told = {"head": head, "command": command, "cases": results.as_json(found)}
    (folder / f"{part}.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    if part == "speed":
        bars(found, folder / "speed.png")
    print(text)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts (default: all)")
    parser.add_argument("--case", nargs="+", default=[], help="cases of speed, by a word each")
    parser.add_argument("--peer", nargs="+", default=[], choices=list(PEERS), help="peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of records")
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="folder of the results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
