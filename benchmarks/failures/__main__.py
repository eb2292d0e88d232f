"""`python -m benchmarks.failures`: a month into a broker, or as Parquet. See ../README.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.progress import track

from ackfloor import RetryPolicy
from benchmarks.failures.month import RECORDS_OF_A_MESSAGE, Month, Parked


def main() -> None:
    """Make the month and say how long it took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failures", description=__doc__)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--bootstrap-servers", help="a broker to produce to")
    target.add_argument("--parquet", type=Path, help="a folder to make, with commits.json beside")
    parser.add_argument("--records", type=int, default=1_000_000, help="about how many")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    month = Month(round(given.records / RECORDS_OF_A_MESSAGE), given.seed)
    began_s = time.perf_counter()
    if given.parquet:
        count = _to_parquet(month, given.parquet, given.records)
    else:
        count = _to_broker(month, given.bootstrap_servers, given.records)
    took_s = time.perf_counter() - began_s
    print(f"{count:,} records in {took_s:.1f} s ({count / took_s:,.0f}/s)")


def _to_parquet(month: Month, folder: Path, about: int) -> int:
    from benchmarks.failures.rows import write_parquet

    count = write_parquet(_shown(month, about), folder)
    commits = [each._asdict() for each in month.commits()]
    folder.with_name(folder.name + "-commits.json").write_text(json.dumps(commits), "utf-8")
    return count


def _to_broker(month: Month, servers: str, about: int) -> int:
    from benchmarks.failures import produce

    produce.create_topics(servers, RetryPolicy())
    count = produce.produce(servers, _shown(month, about))
    produce.commit(servers, month.commits())
    return count


def _shown(month: Month, about: int) -> Iterator[Parked]:
    records: Iterable[Parked] = track(
        month, "making the month", total=about, disable=not sys.stderr.isatty()
    )
    return iter(records)


if __name__ == "__main__":
    main()
