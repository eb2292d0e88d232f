"""What the command does: many seeds, safeguards, outages, one trace; on all cores.

These are functions of a module that other processes can import, which they can't a `__main__`.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import NamedTuple

from tests.simulation.delays import checked
from tests.simulation.outages import Found, found_in, misses
from tests.simulation.plan import FAULTS, Plan, make_plan
from tests.simulation.safeguards import SAFEGUARDS, Safeguard
from tests.simulation.shrink import shrunk
from tests.simulation.watch import RULES, STATES

#: Seeds that one process plays before it tells what came of them.
CHUNK = 50
#: Seeds in which every rule must have been looked at.
ENOUGH = 100
#: Seeds between two collections of garbage.
COLLECTED = 10
#: Seeds within which the lack of a safeguard must be noticed, in the mean.
MOST_SEEDS = 500


class Tried(NamedTuple):
    """What came of some seeds."""

    seeds: int
    records: list[int]
    faults: list[int]
    transitions: list[int]
    seen: Counter[tuple[str, str]]
    checks: Counter[str]
    failed: list[tuple[int, str, str, str]]
    cpu_s: float


def tried(seeds: Sequence[int]) -> Tried:
    """Play some seeds."""
    logging.disable(logging.CRITICAL)
    found = Tried(len(seeds), [], [], [], Counter(), Counter(), [], 0.0)
    began_s = time.process_time()
    # A run leaves all its garbage at its end: looked for meanwhile, a tenth of the time is lost.
    gc.disable()
    for number, seed in enumerate(seeds):
        if number % COLLECTED == 0:
            gc.collect()
        plan = make_plan(seed)
        result = checked(plan)
        found.records.append(len(plan.records))
        found.faults.append(len(plan.faults))
        found.transitions.append(result.transitions)
        found.seen.update(result.seen)
        found.checks.update(result.checks)
        if result.broken is not None:
            found.failed.append((seed, result.broken.rule, str(result.broken), result.digest))
    return found._replace(cpu_s=time.process_time() - began_s)


def caught(safeguard: Safeguard, first: int, most: int = MOST_SEEDS) -> tuple[int, str] | None:
    """The first seed that notices that a safeguard is out, and what it says."""
    logging.disable(logging.CRITICAL)
    with safeguard.taken_out():
        for seed in range(first, first + most):
            broken = checked(make_plan(seed)).broken
            if broken is not None:
                return seed, str(broken)
    return None


def _chunks(first: int, count: int) -> Iterator[range]:
    for start in range(first, first + count, CHUNK):
        yield range(start, min(start + CHUNK, first + count))


def run_seeds(first: int, count: int, jobs: int, *, table: bool = False) -> int:
    """Play seeds and tell how it went; returns the exit code.

    Args:
        first: the first seed.
        count: how many.
        jobs: processes.
        table: print how often each fault met a record in each state.
    """
    began_s = time.monotonic()
    all_ = Tried(0, [], [], [], Counter(), Counter(), [], 0.0)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for some in pool.map(tried, _chunks(first, count)):
            all_ = Tried(
                all_.seeds + some.seeds,
                all_.records + some.records,
                all_.faults + some.faults,
                all_.transitions + some.transitions,
                all_.seen + some.seen,
                all_.checks + some.checks,
                all_.failed + some.failed,
                all_.cpu_s + some.cpu_s,
            )
            _progress(all_, count, began_s)
            for seed, _, what, _ in some.failed:
                print(f"\nseed {seed}: {what}", file=sys.stderr)
    print(file=sys.stderr)
    took_s = time.monotonic() - began_s
    print(
        f"{all_.seeds} seeds from {first} in {took_s:.0f} s, {all_.seeds / all_.cpu_s:.1f} a second"
        f" on one core; medians: {median(all_.records):g} records, {median(all_.faults):g} faults,"
        f" {median(all_.transitions):g} transitions; {len(all_.failed)} failed"
    )
    if table:
        _print_table(all_.seen)
    for seed, rule, what, digest in all_.failed[:3]:
        tell_failure(seed, rule, what, digest)
    unseen = [rule for rule in RULES if not all_.checks[rule]]
    if unseen and count >= ENOUGH:
        print(f"rules that nothing was looked at for: {', '.join(unseen)}")
        return 1
    return 1 if all_.failed else 0


def _print_table(seen: Counter[tuple[str, str]]) -> None:
    print("\n| fault | " + " | ".join(STATES) + " |\n|---|" + "--:|" * len(STATES))
    for fault in FAULTS:
        counts = " | ".join(f"{seen[fault, state]:,}" for state in STATES)
        print(f"| `{fault}` | {counts} |")


def _progress(all_: Tried, count: int, began_s: float) -> None:
    took_s = time.monotonic() - began_s
    left_s = took_s / all_.seeds * (count - all_.seeds)
    line = f"\r{all_.seeds} of {count} seeds, {len(all_.failed)} failed, {left_s:.0f} s to go "
    print(line, end="", file=sys.stderr, flush=True)


def tell_failure(seed: int, rule: str, what: str, digest: str) -> None:
    """Print a failing seed, smaller, and what replays it."""
    print(f"\nseed {seed} breaks rule {what}\n  trace {digest}")
    print(f"  replay: python -m tests.simulation --from {seed} --seeds 1 --trace")
    small = shrunk(make_plan(seed), rule)
    result = checked(small, trace=True)
    print(f"  shrunk to {len(small.records)} records and {len(small.faults)} faults:")
    _print_plan(small)
    for line in (result.trace or ())[-60:]:
        print(f"    {line}")
    print(f"    {result.broken}")


def _print_plan(plan: Plan) -> None:
    for handler in plan.handlers:
        print(f"    {handler}")
    for fault in plan.faults:
        print(f"    {fault}")
    print(
        f"    partitions={plan.partitions} workers={plan.workers} "
        f"transactional={plan.transactional} max_open={plan.max_open} batch={plan.batch} "
        f"open_bytes={plan.open_bytes}"
    )


def trace_seed(seed: int) -> int:
    """Play one seed and print its whole trace; returns the exit code."""
    logging.disable(logging.CRITICAL)
    plan = make_plan(seed)
    _print_plan(plan)
    result = checked(plan, trace=True)
    for line in result.trace or ():
        print(line)
    print(f"trace {result.digest}: {result.broken or 'every promise was kept'}")
    return 1 if result.broken else 0


def _caught_from(number: int, first: int) -> tuple[int, int, tuple[int, str] | None]:
    return number, first, caught(SAFEGUARDS[number], first)


def run_safeguards(firsts: Sequence[int], jobs: int) -> int:
    """Take each safeguard out and see how soon that is noticed; returns the exit code."""
    seeds: dict[int, list[int]] = {}
    rules: dict[int, str] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        tasks = [
            pool.submit(_caught_from, number, first)
            for number in range(len(SAFEGUARDS))
            for first in firsts
        ]
        for task in tasks:
            number, first, found = task.result()
            seeds.setdefault(number, []).append(
                MOST_SEEDS * 2 if found is None else found[0] - first + 1
            )
            rules.setdefault(number, "never" if found is None else found[1])
    missed = 0
    print("| safeguard | invariant | seeds until noticed | first noticed by |\n|---|--:|--:|---|")
    for number, safeguard in enumerate(SAFEGUARDS):
        mean = sum(seeds[number]) / len(seeds[number])
        missed += mean > MOST_SEEDS
        counts = ", ".join(
            f"over {MOST_SEEDS}" if n > MOST_SEEDS else str(n) for n in seeds[number]
        )
        print(f"| {safeguard.name} | {safeguard.invariant} | {counts} | {rules[number]} |")
    return 1 if missed else 0


#: Of a table of outages.
HEAD = (
    "| outage | seeds | p50, s | p99, s | longest, s | other handler's p99, s "
    "| parked in the first minute | in a further one | records that left | later "
    "| exhausted | changes | back after, s | park late p99, s | took, s |\n"
    "|---|" + "--:|" * 14 + "\n"
)


def _found(name: str, seed: int, size: float, *, breaker: bool) -> Found:
    logging.disable(logging.CRITICAL)
    return found_in(name, seed, size, breaker=breaker)


def run_outages(
    names: Sequence[str],
    first: int,
    count: int,
    jobs: int,
    *,
    size: float = 1.0,
    breaker: bool = True,
) -> int:
    """Play outages and print, for each, the worst of its seeds; returns the exit code.

    Args:
        names: keys of `OUTAGES`.
        first: the first seed.
        count: how many seeds of each.
        jobs: processes.
        size: the part of their records that they have.
        breaker: whether the handlers have a circuit breaker.
    """
    print(HEAD, end="")
    failed: list[tuple[Found, list[str]]] = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        tasks = {
            name: [
                pool.submit(_found, name, seed, size, breaker=breaker)
                for seed in range(first, first + count)
            ]
            for name in names
        }
        for name, each in tasks.items():
            found = [task.result() for task in each]
            failed += [(f, missed) for f in found if breaker and (missed := misses(f))]
            print(row_of(name, found), flush=True)
    for one, missed in failed:
        print(f"{one.name}, seed {one.seed}: {'; '.join(missed)}")
    return 1 if failed else 0


def row_of(name: str, found: Sequence[Found]) -> str:
    """A row with the worst of each column."""
    back_s = [f.back_s for f in found if f.back_s is not None]
    seconds = " | ".join(
        f"{max(values):.3f}"
        for values in (
            [f.p50_s for f in found],
            [f.p99_s for f in found],
            [f.longest_s for f in found],
            [f.other_p99_s for f in found],
        )
    )
    counts = " | ".join(
        str(max(values))
        for values in (
            [f.first_minute for f in found],
            [f.further_minute for f in found],
            [f.first_records for f in found],
            [f.further_records for f in found],
            [f.exhausted for f in found],
            [f.changes for f in found],
        )
    )
    back = f"{max(back_s):.2f}" if back_s else "-"
    late_s, took_s = max(f.late_p99_s for f in found), max(f.took_s for f in found)
    return (
        f"| {name} | {len(found)} | {seconds} | {counts} | {back} | {late_s:.3f} | {took_s:.0f} |"
    )
