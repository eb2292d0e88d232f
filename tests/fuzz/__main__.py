"""`python -m tests.fuzz --minutes 60`: exit code 1 where an input broke a target."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.fuzz.engine import TARGETS, Trial, fuzz
from tests.fuzz.target import Target

#: Targets take turns of this length, so that a run that is cut short has tried all.
TURN_S = 20.0


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz all targets in turn; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    names = [target.name for target in TARGETS]
    parser.add_argument("--only", choices=names, action="append", help="repeatable")
    given = parser.parse_args(argv)
    chosen = [target for target in TARGETS if target.name in (given.only or names)]
    totals = {target.name: Trial() for target in chosen}
    until_s = time.monotonic() + given.minutes * 60
    seed = given.seed * 1_000_000
    while (left_s := until_s - time.monotonic()) > 0:
        for target in chosen:
            turn_s = min(TURN_S, left_s / len(chosen))
            seed += 10_000
            _turn(target, totals[target.name], turn_s, seed)
    return _tell(totals, given.minutes, given.seed)


def _turn(target: Target, total: Trial, seconds: float, seed: int) -> None:
    """One turn; what is found is kept at once."""
    if total.broke:
        return
    trial = fuzz(target, seconds, seed)
    total.executions += trial.executions
    total.kept += trial.kept
    target.keep([*trial.kept, *(data for data, _ in trial.broke.values())])
    for kind, (data, how) in trial.broke.items():
        total.broke[kind] = data, how
        print(f"{target.name}: {kind}\n{data!r}\n{how}", file=sys.stderr, flush=True)  # noqa: T201


def _tell(totals: dict[str, Trial], minutes: float, seed: int) -> int:
    for name, trial in totals.items():
        print(  # noqa: T201
            f"{name:<14} {trial.executions:>10,} inputs  {len(trial.kept):>4} kept"
            f"  {len(trial.broke):>2} broke it"
        )
    executions = sum(trial.executions for trial in totals.values())
    print(f"{minutes:g} minutes, seed {seed}: {executions:,} inputs")  # noqa: T201
    return int(any(trial.broke for trial in totals.values()))


if __name__ == "__main__":
    sys.exit(main())
