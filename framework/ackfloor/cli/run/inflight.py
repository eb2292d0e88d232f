"""`ackfloor inflight`: the records in flight in a run, the longest-running first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from ackfloor.cli.handlers.handler_list import paused_remarks
from ackfloor.cli.handlers.scarce_slots import full_slot_remarks, noisy_key_remarks
from ackfloor.cli.lanes.lane_list import lane_remarks
from ackfloor.cli.shared.parameters import RunConfigOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, print_rows
from ackfloor.cli.shared.run_address import ListenOption, read_state
from ackfloor.core.values.durations import parse_duration
from ackfloor.core.values.printable import plain
from ackfloor.operations.run_client import age_s, unreported, workers_of

COLUMNS = ("record", "handler", "attempt", "running_s", "left_s", "behind", "worker", "pid")
#: The columns that a narrow table drops, in this order.
SPARE = ("pid", "worker", "attempt")
#: So many records are named above a stack that they share, the longest-running ones.
NAMED = 3


def inflight(
    older_than: Annotated[
        str, typer.Option(help="Only those running for at least this time, such as 30s.")
    ] = "0s",
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Also show where the handler is: file, line and function, once for the records "
            "that are at the same place. Known for the five longest of a handler, once they have "
            "run for a second.",
        ),
    ] = False,
    listen: ListenOption = None,
    config: RunConfigOption = None,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Show the records in flight in a run: how long they have run, and how much time is left.

    It asks the run at its address. A run names the 20 longest-running records of each handler of
    each worker, and says how many more there are. "left_s" is empty without a consume timeout, and
    below 0 if a handler goes on beyond it. "behind" is how many records of the same key or
    partition wait for it, if the handler keeps an order. No payload is shown, and of keys only
    those that are noisy or hang, as [redaction] allows.

    A line says where all slots of a handler are held by deliveries that run far longer than usual.
    """
    shortest_s = parse_duration(older_than, field="--older-than")
    state = read_state(listen, config)
    found = [row for row in running_rows(state) if row["running_s"] >= shortest_s]
    found.sort(key=lambda row: -row["running_s"])
    below = trace and output is RowsOutput.table
    columns = (*COLUMNS, "stack") if trace and not below else COLUMNS
    print_rows([{name: row[name] for name in columns} for row in found], output, columns, SPARE)
    for line in _stacks(found) if below else ():
        typer.echo(line)
    remarks = (
        *_left_out(state),
        *full_slot_remarks(state),
        *noisy_key_remarks(state),
        *lane_remarks(state),
        *paused_remarks(state),
    )
    for text in remarks:
        typer.secho(text, fg="yellow", err=True)


def running_rows(state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each delivery in flight that a run's state names, with times as of now."""
    for number, worker, handler in _handlers(state):
        since_s = age_s(state, worker)
        for each in handler["oldest"]:
            left_s = each.get("left_s")
            yield {
                "record": f"{each['topic']}/{each['partition']}/{each['offset']}",
                "handler": handler["name"],
                "attempt": each["attempt"],
                "running_s": round(each["running_s"] + since_s, 1),
                "left_s": None if left_s is None else round(left_s - since_s, 1),
                "behind": each.get("behind", 0),
                "worker": number,
                "pid": worker["pid"],
                "stack": each.get("stack", []),
            }


def _stacks(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each stack once, which is too long for a column, under the records that are there."""
    records: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in rows:
        if row["stack"]:
            records.setdefault((row["handler"], tuple(row["stack"])), []).append(row["record"])
    for (handler, stack), there in records.items():
        more = f" and {len(there) - NAMED} more" if len(there) > NAMED else ""
        yield plain(f"{', '.join(there[:NAMED])}{more} ({handler})")
        yield from (f"  {plain(frame)}" for frame in stack)


def _left_out(state: Mapping[str, Any]) -> Iterator[str]:
    """What the rows don't show: unreported workers, further and abandoned handlers."""
    yield from unreported(state)
    for number, _, handler in _handlers(state):
        more = handler["running"] - len(handler["oldest"])
        if more > 0:
            yield f"worker {number}: {more} more of {handler['name']} are running, each for less"
        if handler["abandoned"]:
            count = handler["abandoned"]
            yield f"worker {number}: {count} abandoned handlers of {handler['name']} go on"


def _handlers(state: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any], Any]]:
    for number, worker in workers_of(state):
        for handler in worker["handlers"]:
            yield number, worker, handler
