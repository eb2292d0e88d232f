"""`python -m benchmarks.core`: what the core does for a record, in bytecode instructions.

Seconds depend on the machine and on who else uses it; the number of instructions that the
interpreter executes in `ackfloor/core` doesn't. It says nothing about what happens inside one
instruction (a sort, a dictionary that grows), which is what growth.py is for. The counts of another
minor version of Python are others, so each has a baseline of its own; without one, nothing is
compared. tests/benchmarks/test_core.py holds the baseline. `--write` stores a new one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import ackfloor.core
from ackfloor.core.acks.gap_set import GapSet, decode, encode
from ackfloor.core.records.envelope import Envelope, Reason, write_headers
from ackfloor.core.records.outcomes import Failed
from ackfloor.core.records.record import Failure
from ackfloor.testing.memory.memory_log import MemoryRecord
from benchmarks.stage import BATCH, START_MS, TIER, Stage, due_in, stored, with_gaps

BASELINE = Path(__file__).parent / "results" / "core.json"
CORE = str(Path(ackfloor.core.__file__).parent)
#: More instructions than the baseline by this share are a regression.
TOLERANCE = 0.05
RECORDS = 2 * BATCH
GAPS = 1_000
HOTTEST = 6

Counts = Counter[str]
#: Counts the instructions of a call.
Count = Callable[[Callable[[], None]], None]


def unordered(count: Count) -> int:
    """Read, dispatched, handled, settled, committed."""
    return _through(Stage(), 0, count)


def by_key(count: Count) -> int:
    """Read, put on its lane (of 100), handled, settled, committed."""
    return _through(Stage(ordering="key"), 100, count)


def parked(count: Count) -> int:
    """Read, failed, written to a retry topic, settled."""
    return _all_parked(
        count, [stored("topic0", 0, range(n, n + BATCH)) for n in range(0, RECORDS, BATCH)]
    )


def parked_again(count: Count) -> int:
    """Read from a retry topic with all headers, due, failed, written to a retry topic, settled."""
    told = Envelope(
        *("topic0", 0, 7, START_MS, "bench", "topic0", 1, 1, 0, Reason.ERROR, "ValueError", "no"),
        first_failed_at_ms=START_MS,
        failed_at_ms=START_MS,
        not_before_ms=START_MS,
        duration_ms=3,
        release="v7",
    )
    headers = write_headers(told, ())
    return _all_parked(
        count,
        [stored(TIER, 0, range(n, n + BATCH), headers=headers) for n in range(0, RECORDS, BATCH)],
    )


def _all_parked(count: Count, batches: Sequence[Sequence[MemoryRecord]]) -> int:
    stage, failed = Stage(breakers=False), Failed(Failure("ValueError", "no"))

    def run() -> None:
        for batch in batches:
            stage.read(batch)
            stage.answer(BATCH, failed)
            stage.confirm()
            stage.turn()

    count(run)
    return RECORDS


def redelivered(count: Count) -> int:
    """Read from a retry topic, waiting, due, handled."""
    stage, due = Stage(), due_in(60)
    batches = [stored(TIER, 0, range(n, n + BATCH), headers=due) for n in range(0, RECORDS, BATCH)]

    def run() -> None:
        for batch in batches:
            stage.read(batch)
        stage.turn(120.0)
        while stage.answer(BATCH):
            stage.turn()

    count(run)
    return RECORDS


def commit_with_gaps(count: Count) -> int:
    """One commit of a partition in which every other record of 2,000 is open."""
    stage = with_gaps(GAPS)
    count(lambda: stage.turn(2.0))
    return 1


def gap_set_both_ways(count: Count) -> int:
    """A gap set of 1,000 gaps written into a commit's metadata and read again."""
    runs = tuple((2 * n + 1, 2 * n + 2) for n in range(GAPS))

    def run() -> None:
        text, _ = encode(GapSet(0, runs, 1, 0), "topic0", 0)
        decode(text, "topic0", 0)

    count(run)
    return 1


def _through(stage: Stage, keys: int, count: Count) -> int:
    batches = [
        stored("topic0", 0, range(n, n + BATCH), keys=keys) for n in range(0, RECORDS, BATCH)
    ]

    def run() -> None:
        for batch in batches:
            stage.read(batch)
            stage.answer(BATCH)
            stage.turn()
            stage.confirm()

    count(run)
    return RECORDS


#: What is counted -> what it is counted for.
SCENES: dict[str, tuple[Callable[[Count], int], str]] = {
    "handled": (unordered, "record"),
    "handled in key order": (by_key, "record"),
    "parked": (parked, "record"),
    "parked again": (parked_again, "record"),
    "redelivered": (redelivered, "record"),
    "commit with 1,000 gaps": (commit_with_gaps, "commit"),
    "gap set of 1,000, both ways": (gap_set_both_ways, "gap set"),
}


def counted(scene: Callable[[Count], int]) -> tuple[float, Counts]:
    """Instructions for one of what the scene counts, and where they were executed in all."""
    counts: Counts = Counter()

    def count(work: Callable[[], None]) -> None:
        def enter(frame: FrameType, event: str, arg: Any) -> Any:
            code = frame.f_code
            if not code.co_filename.startswith(CORE):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            name = f"{Path(code.co_filename).stem}.{code.co_qualname}"

            def step(frame: FrameType, event: str, arg: Any) -> Any:
                if event == "opcode":
                    counts[name] += 1
                return step

            return step

        before = sys.gettrace()
        sys.settrace(enter)
        try:
            work()
        finally:
            sys.settrace(before)

    # Twice: from Python 3.12 on the first run of a function isn't counted whole.
    scene(count)
    counts.clear()
    for_each = scene(count)
    return counts.total() / for_each, counts


def measured() -> dict[str, tuple[float, Counts]]:
    """All scenes."""
    return {name: counted(scene) for name, (scene, _) in SCENES.items()}


def this_python() -> str:
    """The version that a baseline belongs to."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def baseline() -> dict[str, float] | None:
    """The stored counts of this Python; None where there are none."""
    stored_counts: dict[str, dict[str, float]] = json.loads(BASELINE.read_text("utf-8"))
    return stored_counts.get(this_python())


def regressions(now: dict[str, float], before: dict[str, float]) -> list[str]:
    """What costs more than it did, a line each."""
    worse: list[str] = []
    for name, (_, what) in SCENES.items():
        was, each = before.get(name, 0.0), now[name]
        if each > was * (1 + TOLERANCE):
            worse.append(f"{name}: {each:,.1f} instructions a {what}, {was:,.1f} before")
    return worse


def main() -> int:
    """Count, compare, and say where the instructions are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core", description=__doc__)
    parser.add_argument("--write", action="store_true", help="store these counts as the baseline")
    given = parser.parse_args()
    found = measured()
    before = baseline() or {}
    for name, (each, counts) in found.items():
        was = f", {each / before[name] - 1:+.1%}" if name in before else ""
        print(f"{name}: {each:,.1f} instructions a {SCENES[name][1]}{was}")
        for place, count in counts.most_common(HOTTEST):
            print(f"    {count / counts.total():5.1%}  {place}")
    now = {name: round(each, 1) for name, (each, _) in found.items()}
    if given.write:
        everything = json.loads(BASELINE.read_text("utf-8")) if BASELINE.is_file() else {}
        everything[this_python()] = now
        BASELINE.write_text(json.dumps(everything, indent=2, sort_keys=True) + "\n", "utf-8")
        return 0
    if not before:
        print(f"no baseline for Python {this_python()}: store one with --write")
        return 0
    worse = regressions(now, before)
    print("\n".join(["", *worse] if worse else ["", "no regression"]))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
