"""Kills in the middle of a redrive: each dead letter once in the target, and once disposed.

    python -m tests.e2e.redrive_kills --letters 50000 --kills 20

A program sends all dead letters of a topic. It is killed with SIGKILL at random instants after its
first transaction, and started again with the same order, as often as asked; the last one may end.
In the end each origin is in the retry topic once, as a reader of committed records sees it, and
each dead letter has one disposition.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ackfloor.redrive import Tally, select
from ackfloor.testing import open_broker
from tests.redrive_stage import PARTITIONS, Stage

REPOSITORY = Path(__file__).parents[2]
#: A job is killed at most so long after its first transaction.
WINDOW_S = 0.5


@dataclass(frozen=True, slots=True)
class Findings:
    """What came of it: `in_target` counts records of the retry topic, `noted` dispositions."""

    letters: int
    kills: int
    in_target: int
    noted: int
    took_s: float


def prove(servers: str, letters: int, kills: int, seed: int, rate: int | None = None) -> Findings:
    """Bury, send under kills, and count; fails where a record is there twice."""
    chance = random.Random(seed)
    stage = Stage(servers)
    stage.bury([(b"%d" % n, b"value %d" % n, [("n", b"%d" % n)]) for n in range(letters)])
    began_s = time.monotonic()
    done = 0
    for _ in range(kills):
        done += _killed(stage, letters, rate, chance.uniform(0, WINDOW_S))
    _run(stage, letters, None, lambda _process: None)
    took_s = time.monotonic() - began_s
    return Findings(letters, done, stage.sent_once(), len(stage.notes()), took_s)


def _killed(stage: Stage, letters: int, rate: int | None, after_s: float) -> int:
    """Run a job and kill it; 0 where it had ended before."""

    def kill(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)

    return int(_run(stage, letters, rate, kill) == -signal.SIGKILL)


def _run(
    stage: Stage, letters: int, rate: int | None, then: Callable[[subprocess.Popen[str]], None]
) -> int:
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name if __name__ == "__main__" else __name__, "--job",
         stage.servers, stage.source, str(letters), str(rate or 0)],
        cwd=REPOSITORY, env={**os.environ}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        then(process)
        process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    return process.returncode


def job(servers: str, source: str, letters: int, rate: int) -> int:
    """The program that is killed: all dead letters of a source's group."""
    stage = Stage.of(servers, source)
    half = (letters + 1) // 2
    counts = [half, letters - half, *[0] * (PARTITIONS - 2)]
    wanted = select((p, n) for p, count in enumerate(counts) for n in range(count))

    def say(tally: Tally) -> None:
        sys.stdout.write(f"{tally.sent}\n")
        sys.stdout.flush()

    tally = stage.job(rate_per_s=float(rate) if rate else None).run(wanted, progress=say)
    return 0 if tally.complete else 1


def main() -> int:
    """The command line; see the head of this file."""
    if sys.argv[1:2] == ["--job"]:
        servers, source, letters, rate = sys.argv[2:]
        return job(servers, source, int(letters), int(rate))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=50_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, help="records a second of the jobs that are killed")
    given = parser.parse_args()
    with open_broker() as broker:
        found = prove(broker.bootstrap_servers, given.letters, given.kills, given.seed, given.rate)
    sys.stdout.write(f"{found}\n")
    return int(not found.letters == found.in_target == found.noted)


if __name__ == "__main__":
    sys.exit(main())
