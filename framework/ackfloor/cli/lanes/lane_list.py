"""`ackfloor lanes ls`: which record blocks a key or partition, why, and what waits behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from ackfloor.cli.shared.parameters import ConfigOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, print_rows
from ackfloor.cli.shared.run_address import (
    ListensOption,
    read_state,
    runs_of,
    unreported,
    workers_of,
)
from ackfloor.core.values.suggestions import there_are

COLUMNS = (
    "record", "handler", "key", "head", "attempt", "error", "blocked_s", "next_try_s", "behind",
    "worker", "run",
)  # fmt: skip
#: The columns that a narrow table drops, in this order.
SPARE = ("run", "worker", "attempt", "head", "blocked_s", "error")


def ls(
    handler: Annotated[
        str | None, typer.Argument(metavar="[HANDLER]", help="Only this handler's.")
    ] = None,
    listen: ListensOption = None,
    config: ConfigOption = None,
    output: RowsOption = RowsOutput.table,
) -> None:
    """List the keys and partitions that wait for a record that failed, the longest blocked first.

    It asks the runs at their addresses. A run names the 20 longest blocked of each handler of each
    worker, and how many more there are. "head" is what the failed record is doing: waiting for its
    backoff, withheld by the circuit breaker until a trial, queued, running, or on its way to the
    dead-letter topic. "attempt" is which delivery failed last. "behind" is how many records wait
    behind it. Keys and errors are shown as [redaction] allows.
    """
    rows: list[dict[str, Any]] = []
    remarks: list[str] = []
    known: set[str] = set()
    for run in runs_of(listen, config):
        state = read_state(run, config)
        rows += lane_rows(state, run)
        remarks += [f"{run}: {text}" for text in (*unreported(state), *not_named(state))]
        known |= handlers_of(state)
    if handler is not None:
        rows = [row for row in rows if row["handler"] == handler]
        if known and handler not in known:
            remarks.append(f"no handler {handler}: {there_are(handler, known)}")
    rows.sort(key=lambda row: -row["blocked_s"])
    print_rows(rows, output, COLUMNS, SPARE)
    for text in remarks:
        typer.secho(text, fg="yellow", err=True)


def lane_rows(state: Mapping[str, Any], run: str) -> Iterator[dict[str, Any]]:
    """A row for each blocked lane that a run's state names."""
    now_ms = state["now_ms"]
    for number, worker in workers_of(state):
        for name, blocked in blocked_of(worker):
            for lane in blocked["oldest"]:
                next_ms = lane["next_try_ms"]
                yield {
                    "record": f"{lane['topic']}/{lane['partition']}/{lane['offset']}",
                    "handler": name,
                    "key": lane["key"],
                    "head": lane["head"],
                    "attempt": lane["attempt"],
                    "error": lane["error"],
                    "blocked_s": round(max(0, now_ms - lane["since_ms"]) / 1000, 1),
                    "next_try_s": None
                    if next_ms is None
                    else round(max(0, next_ms - now_ms) / 1000, 1),
                    "behind": lane["behind"],
                    "worker": number,
                    "run": run,
                }


def handlers_of(state: Mapping[str, Any]) -> set[str]:
    """The names of a run's handlers, as far as its workers have reported."""
    return {each["name"] for _, worker in workers_of(state) for each in worker["handlers"]}


def blocked_of(worker: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The handlers of a worker that have blocked lanes, and what its state says of these."""
    for handler in worker["handlers"]:
        # An older run does not tell.
        blocked = handler.get("blocked")
        if blocked and blocked["count"]:
            yield handler["name"], blocked


def blocked_totals(state: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Handler -> how many of its lanes are blocked in all workers, and how many records wait."""
    totals: dict[str, tuple[int, int]] = {}
    for _, worker in workers_of(state):
        for name, blocked in blocked_of(worker):
            lanes, behind = totals.get(name, (0, 0))
            totals[name] = lanes + blocked["count"], behind + blocked["behind"]
    return totals


def blocked_remarks(state: Mapping[str, Any]) -> Sequence[str]:
    """A line for each handler with blocked lanes, for commands that show something else."""
    return [
        f"{name}: {lanes} blocked {'lane' if lanes == 1 else 'lanes'}, {behind} records behind: "
        "see `ackfloor lanes ls`"
        for name, (lanes, behind) in sorted(blocked_totals(state).items())
    ]


def not_named(state: Mapping[str, Any]) -> Iterator[str]:
    """A line for each worker and handler with more blocked lanes than the state names."""
    for number, worker in workers_of(state):
        for name, blocked in blocked_of(worker):
            more = blocked["count"] - len(blocked["oldest"])
            if more > 0:
                yield f"worker {number}: {more} more lanes of {name} are blocked, each for less"
