"""`python -m tests.soak --minutes 10 --seed 7`: exit code 0 only when the run was clean."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.soak.audit import TAKES_RECORDS
from tests.soak.faults import KINDS
from tests.soak.plan import PARKINGS, PROTOCOLS, Plan
from tests.soak.report import row, show
from tests.soak.run import soak

KEPT = ("result.json", "soak.png", "faults.jsonl")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a soak; returns the exit code."""
    given = _parse(argv)
    folder = Path(tempfile.mkdtemp(prefix="ackfloor-soak-"))
    plan = Plan(
        given.seed,
        given.minutes,
        folder,
        nodes=given.nodes,
        rate=given.rate,
        pause_s=tuple(given.pause),
        protocol=given.protocol,
        parking=given.parking,
        only=tuple(given.only),
        without=(*given.without, *([TAKES_RECORDS] if given.audit else [])),
        audit=given.audit,
    )
    console = Console(stderr=True)
    console.print(f"everything is kept in {folder} until the end", style="dim")
    result, verdict = soak(plan, console)
    result.write(folder / "result.json")
    if given.plot:
        # Here, because the rest of a soak does without it.
        from tests.soak.plot import draw

        draw(result, folder / "soak.png")
    show(result, Console())
    print(row(result))  # noqa: T201 -- for the page
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            if (folder / name).exists():
                shutil.copy(folder / name, given.out / f"seed-{plan.seed}-{name}")
    if verdict.clean and not given.keep:
        shutil.rmtree(folder)
    else:
        console.print(f"ledger, logs and samples: {folder}")
    return 0 if verdict.clean else 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=10, help="how long records are produced")
    parser.add_argument("--seed", type=int, default=1, help="what decides over records and faults")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=3, help="brokers")
    parser.add_argument("--rate", type=float, default=200, help="records per second")
    parser.add_argument(
        "--pause", type=float, nargs=2, default=(2.0, 6.0), help="seconds between two faults"
    )
    parser.add_argument(
        "--protocol", choices=("", *PROTOCOLS), default="", help="default: by the seed"
    )
    parser.add_argument(
        "--parking", choices=("", *PARKINGS), default="", help="default: by the seed"
    )
    names = [kind.name for kind in KINDS]
    parser.add_argument(
        "--only", action="append", choices=names, default=[], help="only this fault; repeatable"
    )
    parser.add_argument(
        "--without", action="append", choices=names, default=[], help="not this fault; repeatable"
    )
    parser.add_argument(
        "--audit",
        action="store_true",
        help=f"ingest and audit with Spark in the end; without the fault {TAKES_RECORDS!r}",
    )
    parser.add_argument("--out", type=Path, help="a folder for result, list of faults and picture")
    parser.add_argument("--no-plot", dest="plot", action="store_false", help="without the picture")
    parser.add_argument("--keep", action="store_true", help="keep ledger and logs of a clean run")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
