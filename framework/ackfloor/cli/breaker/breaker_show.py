"""`ackfloor breaker show`: the state of a run's circuit breakers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from ackfloor.cli.shared.parameters import RunConfigOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, print_rows
from ackfloor.cli.shared.run_address import ListenOption, read_state
from ackfloor.cli.shared.times import moment
from ackfloor.core.values.durations import format_duration
from ackfloor.operations.run_client import ControlFailed, age_s, unreported, workers_of

COLUMNS = (
    "handler", "workers", "state", "since", "failing", "error", "allowed", "beyond",
    "concurrency", "next_trial_s", "withheld", "withheld_most", "full", "forced", "forced_reason",
    "forced_for_s",
)  # fmt: skip
#: The columns of a table.
TABLE = ("handler", "workers", "state", "since", "allowed", "withheld", "next", "forced", "why")
#: The columns that a narrow table drops, in this order.
SPARE = ("why", "next", "since", "workers")


def show(
    listen: ListenOption = None,
    config: RunConfigOption = None,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Show the state of a run's circuit breakers, and which of them operators have forced.

    It asks the run at its address. Each worker has its own breakers; equal ones share a row.
    "allowed" is how many records may be in flight at once, of the handler's concurrency. Those
    that ran when it opened run on to their end or deadline: where more run than are allowed, their
    number stands beside it. "withheld" is how many failed records are kept for another trial; at
    the bound nothing more is read for the handler. "next" is the
    time to the next trial. "forced" is the state that an operator has forced, and for how long.
    """
    state = read_state(listen, config)
    in_cells = output is RowsOutput.table
    whose: dict[str, tuple[dict[str, Any], list[int]]] = {}
    beyond: dict[str, None] = {}
    for worker, facts in breaker_facts(state):
        row = _cells(facts) if in_cells else facts
        whose.setdefault(repr(row), (row, []))[1].append(worker)
        if facts["beyond"]:
            beyond[facts["handler"]] = None
    columns = TABLE if in_cells else COLUMNS
    rows = [{**row, "workers": workers} for row, workers in whose.values()]
    rows.sort(key=lambda row: (row["handler"], row["workers"]))
    if in_cells:
        rows = [{**row, "workers": ", ".join(map(str, row["workers"]))} for row in rows]
    print_rows([{name: row[name] for name in columns} for row in rows], output, columns, SPARE)
    for text in (*unreported(state), *map(_beyond_text, beyond)):
        typer.secho(text, fg="yellow", err=True)


def _beyond_text(handler: str) -> str:
    """Why more run than are allowed."""
    return (
        f"{handler}: more run than are allowed: they started before that was lowered, and none "
        "starts until they end; `ackfloor inflight --trace` says where they are"
    )


def breaker_facts(state: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each breaker of each worker, with times as of now."""
    for number, worker in workers_of(state):
        since_s = age_s(state, worker)
        for handler in worker["handlers"]:
            if "breaker" not in handler:
                raise ControlFailed("an older ackfloor runs there, which has no circuit breakers")
            yield number, _facts_of(handler, handler["breaker"], since_s)


def _facts_of(
    handler: Mapping[str, Any], breaker: Mapping[str, Any], since_s: float
) -> dict[str, Any]:
    opened_ms, shown = breaker["since_ms"], breaker["state"]
    if shown == "closed" and not (breaker["enabled"] or breaker["forced"]):
        shown = "disabled"
    return {
        "handler": handler["name"],
        "state": shown,
        "since": None if opened_ms is None else moment(opened_ms),
        "failing": breaker["failing"],
        "error": breaker["error"],
        "allowed": breaker["allowed"],
        # While it is closed, the handler's own limits count.
        "beyond": 0
        if shown in {"closed", "disabled"}
        else max(0, handler["running"] - breaker["allowed"]),
        "concurrency": handler["concurrency"],
        "next_trial_s": _left(breaker["next_trial_s"], since_s),
        "withheld": breaker["withheld"],
        "withheld_most": breaker["withheld_most"],
        "full": breaker["full"],
        "forced": breaker["forced"],
        "forced_reason": breaker["forced_reason"],
        "forced_for_s": _left(breaker["forced_for_s"], since_s),
    }


def _left(of_s: float | None, since_s: float) -> float | None:
    """The time that is left now, of one that was reported `since_s` ago."""
    return None if of_s is None else round(max(0.0, of_s - since_s), 1)


def _cells(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table, with related facts in one cell."""
    trial_s = facts["next_trial_s"]
    why, running = "", ""
    if facts["beyond"]:
        running = f", {facts['allowed'] + facts['beyond']:,} run"
    if facts["since"] is not None:
        in_a_row = f"{facts['failing']} failed in a row" if facts["failing"] else ""
        why = "; ".join(filter(None, (in_a_row, _short(facts["error"]))))
    return {
        "handler": facts["handler"],
        "state": facts["state"].replace("_", " "),
        "since": facts["since"],
        "allowed": f"{facts['allowed']:,} of {facts['concurrency']:,}{running}",
        "withheld": f"{facts['withheld']:,} of {facts['withheld_most']:,}",
        "next": None if trial_s is None else format_duration(trial_s),
        "forced": _forced(facts),
        "why": why,
    }


def _short(error: str) -> str:
    """An error without the modules of its class: a table has room for the rest then."""
    return re.sub(r"^(?:\w+\.)+(?=\w+(?:: |$))", "…", error)


def _forced(facts: Mapping[str, Any]) -> str:
    if not facts["forced"]:
        return ""
    for_s = facts["forced_for_s"]
    how_long = "" if for_s is None else f" for {format_duration(round(for_s))}"
    reason = facts["forced_reason"]
    return f"{facts['forced']}{how_long}{f': {reason}' * bool(reason)}"
