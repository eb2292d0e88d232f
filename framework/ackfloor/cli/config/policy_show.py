"""`ackfloor policy show`: the retry policies in force in a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

from ackfloor.cli.shared.parameters import RunConfigOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, print_rows
from ackfloor.cli.shared.run_address import ListenOption, read_state
from ackfloor.core.values.durations import format_duration
from ackfloor.operations.run_client import workers_of

COLUMNS = (
    "handler", "consume_timeout", "ordering", "concurrency", "on_failure", "after_dead_letter",
    "max_redeliveries", "delays", "workers",
)  # fmt: skip
#: The columns that a narrow table drops, in this order.
SPARE = ("workers", "after_dead_letter", "on_failure", "ordering", "concurrency")


def show(
    listen: ListenOption = None,
    config: RunConfigOption = None,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Show the policies in force in a run, whether from code, file or `config set`.

    It asks the run at its address. If workers differ, because one has refused a change or has not
    applied it yet, each policy has a row, and "workers" says which have it. `policy preview` shows
    when the deliveries of a handler would come.
    """
    state = read_state(listen, config)
    whose: dict[tuple[object, ...], list[int]] = {}
    for worker, row in _rows(state):
        whose.setdefault(row, []).append(worker)
    rows = [
        dict(zip(COLUMNS, (*row, _workers(numbers, output)), strict=True))
        for row, numbers in sorted(whose.items())
    ]
    print_rows(rows, output, COLUMNS, SPARE)
    for number, worker in state["workers"].items():
        if worker is None:
            typer.secho(f"worker {number} is starting", fg="yellow", err=True)


def _workers(numbers: list[int], output: RowsOutput) -> object:
    """In a table in one line, as `breaker show` has them."""
    return ", ".join(map(str, numbers)) if output is RowsOutput.table else numbers


def _rows(state: Mapping[str, Any]) -> Iterator[tuple[int, tuple[object, ...]]]:
    for number, worker in workers_of(state):
        for each in worker["handlers"]:
            timeout_s, most = each["consume_timeout_s"], each["max_redeliveries"]
            delays = " ".join(format_duration(delay_s) for delay_s in each["delays_s"])
            yield (
                number,
                (
                    each["name"],
                    "none" if timeout_s is None else format_duration(timeout_s),
                    each["ordering"],
                    each["concurrency"],
                    each["on_failure"],
                    # An older run does not tell.
                    each.get("after_dead_letter", ""),
                    "unlimited" if most is None else str(most),
                    delays,
                ),
            )
