"""`python -m tests.simulation`: seeds, one after the other, on all cores."""

from __future__ import annotations

import argparse
import os
import sys

from tests.simulation.outages import OUTAGES
from tests.simulation.tries import run_outages, run_safeguards, run_seeds, trace_seed


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--trace", action="store_true", help="print the trace of the first seed")
    parser.add_argument("--table", action="store_true", help="print which faults met which states")
    parser.add_argument("--safeguards", action="store_true", help="take safeguards out instead")
    parser.add_argument(
        "--outages", nargs="*", choices=OUTAGES, help="play these, or all, instead: --seeds of each"
    )
    parser.add_argument(
        "--without-breaker", action="store_true", help="outages without circuit breakers"
    )
    parser.add_argument("--size", type=float, default=1.0, help="outages with fewer records")
    given = parser.parse_args()
    if given.seeds < 1 or given.jobs < 1:
        parser.error("--seeds and --jobs take a number from 1")
    if not 0.02 <= given.size <= 1.0:
        parser.error("--size takes a number from 0.02 to 1")
    if given.trace:
        return trace_seed(given.first)
    if given.outages is not None:
        names = given.outages or list(OUTAGES)
        return run_outages(
            names,
            given.first,
            given.seeds,
            given.jobs,
            size=given.size,
            breaker=not given.without_breaker,
        )
    if given.safeguards:
        return run_safeguards(
            [given.first, given.first + 100_000, given.first + 200_000], given.jobs
        )
    return run_seeds(given.first, given.seeds, given.jobs, table=given.table)


if __name__ == "__main__":
    sys.exit(main())
