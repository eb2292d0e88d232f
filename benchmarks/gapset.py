"""Gap-set codecs by size and cost: `python benchmarks/gapset.py` writes results/gapset.md.

Each case is a span of offsets of which some are still open, at random places (the worst that a
given number can do). Sizes are characters of the commit's metadata, frame included; costs are the
median of several rounds, in milliseconds.
"""

from __future__ import annotations

import random
import statistics
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from ackfloor.core.acks import gap_set as gapset
from ackfloor.core.acks.gap_set import GapSet, Runs, decode, encode

FLOOR = 1_234_567
ROUNDS = 7
CASES = [
    ("one stuck record", 10_000, 1),
    ("one stuck record, a full span", 100_000, 1),
    ("64 slots at work", 50_000, 64),
    ("1,000 slots at work", 50_000, 1_000),
    ("1,000 open in a full span", 100_000, 1_000),
    ("2,000 open in a full span", 100_000, 2_000),
    ("every tenth open", 10_000, 1_000),
    ("every second open", 10_000, 5_000),
]


def settled(span: int, open_count: int) -> Runs:
    """What is settled when the floor and some others of a span are open."""
    picked = random.Random(1).sample(range(1, span), open_count - 1)
    runs, at = [], 1
    for offset in [*sorted(picked), span]:
        if offset > at:
            runs.append((FLOOR + at, FLOOR + offset))
        at = offset + 1
    return tuple(runs)


def forms(gaps: GapSet) -> dict[str, int]:
    """The metadata's length in each form."""
    plain = gapset._written_runs(gaps.runs, gaps.floor)
    bits = gapset._written_bitset(gaps.runs, gaps.floor)
    payloads = {"r": plain, "R": zlib.compress(plain), "b": bits, "B": zlib.compress(bits)}
    return {
        codec: len(gapset._framed(codec, payload, gaps, "orders", 3))
        for codec, payload in payloads.items()
    }


def cost_ms(work: Callable[[], object]) -> float:
    """The median time of some work."""
    taken = []
    for _ in range(ROUNDS):
        started_s = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started_s) * 1000)
    return statistics.median(taken)


def row(name: str, span: int, open_count: int) -> str:
    """One case."""
    gaps = GapSet(FLOOR, settled(span, open_count), 77, 3)
    lengths = forms(gaps)
    text, whole = encode(gaps, "orders", 3, 1_000_000)
    assert decode(text, "orders", 3) == gaps
    assert whole == min(lengths.values()) or whole <= gapset.SHORT
    write_ms = cost_ms(lambda: encode(gaps, "orders", 3))
    read_ms = cost_ms(lambda: decode(text, "orders", 3))
    sizes = " | ".join(
        f"**{lengths[codec]:,}**" if codec == text[3] else f"{lengths[codec]:,}" for codec in "rRbB"
    )
    return (
        f"| {name} | {span:,} | {open_count:,} | {sizes} | {write_ms:.2f} | {read_ms:.2f} |"
        f" {'yes' if whole <= gapset.LONGEST else 'cut'} |"
    )


def main() -> None:
    """Measure every case and write the table."""
    lines = [
        "# Gap sets in a commit's metadata",
        "",
        (
            "Characters in each form, the one written in bold; what writing and reading take"
            f", median of {ROUNDS}. Repeat: `.venv/bin/python benchmarks/gapset.py`."
        ),
        "",
        (
            "| case | span | open | runs `r` | deflated `R` | bitset `b` | deflated `B`"
            f" | write, ms | read, ms | fits in {gapset.LONGEST:,} |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
        *(row(*case) for case in CASES),
        "",
        (
            "Open offsets at random places are the worst a number of them can do. A text of at most"
            f" {gapset.SHORT} characters is written as runs without trying the other forms."
        ),
    ]
    target = Path(__file__).parent / "results" / "gapset.md"
    target.write_text("\n".join(lines) + "\n")
    print(target.read_text())


if __name__ == "__main__":
    main()
