"""`ackfloor handlers ls`: how each handler is in all workers of each run, and what stops it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

from ackfloor.cli.shared.parameters import RunConfigOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, print_rows
from ackfloor.cli.shared.run_address import ListensOption, read_state, runs_of
from ackfloor.cli.shared.times import moment
from ackfloor.core.values.durations import format_duration, format_rounded
from ackfloor.core.values.rates import format_rate
from ackfloor.operations.run_client import age_s, unreported, workers_of

COLUMNS = (
    "handler", "workers", "ordering", "concurrency", "running", "queued", "on_failure",
    "blocked_lanes", "quarantined_keys", "breaker", "rate", "rate_here_per_s", "rate_waiting",
    "paused_in", "paused_for_s", "paused_until",
    "paused_reason", "held_for_s", "held_reason", "run",
)  # fmt: skip
#: The columns of a table.
TABLE = (
    "handler", "workers", "ordering", "concurrency", "running", "queued", "on_failure",
    "blocked", "quarantined", "breaker", "rate", "paused", "why", "run",
)  # fmt: skip
#: The columns that a narrow table drops, in this order.
SPARE = ("run", "workers", "ordering", "on_failure", "concurrency", "queued", "why")


def ls(
    listen: ListensOption = None,
    config: RunConfigOption = None,
    output: RowsOption = RowsOutput.table,
) -> None:
    """List the handlers of runs: what they do, and whether an operator or they themselves pause it.

    It asks the runs at their addresses. "running", "queued" and "blocked" are of all workers of a
    run together; "concurrency" is of each. "blocked" is how many keys or partitions wait for a
    record that failed, "quarantined" how many keys wait in retry topics for one: see `lanes ls`.
    "on_failure" is what a failed record does to its order. "breaker" names each state that the
    circuit breaker has in a worker: see `breaker show`. "rate" is that of the handler for the whole
    group, what of it these workers have, and how much waits for it. "paused" says for how long yet;
    "itself" is a pause that the handler asked for.
    """
    rows: list[dict[str, Any]] = []
    remarks: list[str] = []
    for run in runs_of(listen, config):
        state = read_state(run, config)
        rows += handler_rows(state, run)
        remarks += [f"{run}: {text}" for text in unreported(state)]
    rows.sort(key=lambda row: (row["handler"], row["run"]))
    if output is RowsOutput.table:
        print_rows([_cells(row) for row in rows], output, TABLE, SPARE)
    else:
        print_rows(rows, output, COLUMNS)
    for text in remarks:
        typer.secho(text, fg="yellow", err=True)


def handler_rows(state: Mapping[str, Any], run: str) -> Iterator[dict[str, Any]]:
    """A row for each handler of a run, of all workers together, with times as of now."""
    of_handler: dict[str, list[tuple[int, Mapping[str, Any], float]]] = {}
    for number, worker in workers_of(state):
        since_s = age_s(state, worker)
        for handler in worker["handlers"]:
            of_handler.setdefault(handler["name"], []).append((number, handler, since_s))
    for name, each in sorted(of_handler.items()):
        handlers = [handler for _, handler, _ in each]
        # An older run does not tell of pauses, nor of blocked lanes.
        paused = [(number, h, since_s) for number, h, since_s in each if h.get("paused")]
        endless = any(h["paused_for_s"] is None for _, h, _ in paused)
        ends = [max(0.0, h["paused_for_s"] - since_s) for _, h, since_s in paused if not endless]
        held = max(each, key=lambda one: one[1]["held_for_s"] - one[2])
        yield {
            "handler": name,
            "workers": [number for number, _, _ in each],
            "ordering": handlers[0]["ordering"],
            "concurrency": max(h["concurrency"] for h in handlers),
            "running": sum(h["running"] for h in handlers),
            "queued": sum(h["queued"] for h in handlers),
            "on_failure": handlers[0].get("on_failure", ""),
            "blocked_lanes": sum(h.get("blocked", {}).get("count", 0) for h in handlers),
            "quarantined_keys": sum(h.get("quarantined", {}).get("count", 0) for h in handlers),
            "breaker": sorted({h.get("breaker", {}).get("state", "") for h in handlers}),
            **_rate([h.get("rate", {}) for h in handlers]),
            "paused_in": [number for number, _, _ in paused],
            "paused_for_s": round(max(ends), 1) if ends else None,
            "paused_until": moment(state["now_ms"] + round(max(ends) * 1000)) if ends else None,
            "paused_reason": _reasons([h["paused_reason"] for _, h, _ in paused]),
            "held_for_s": round(max(0.0, held[1]["held_for_s"] - held[2]), 1),
            "held_reason": held[1]["held_reason"],
            "run": run,
        }


def _rate(rates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rate of a handler's workers together; of an older run nothing is known of it."""
    known = [rate for rate in rates if rate.get("group_per_s")]
    # While a change is under way they may differ.
    group = dict.fromkeys(format_rate(rate["group_per_s"]) for rate in known)
    return {
        "rate": ", ".join(group),
        "rate_here_per_s": round(sum(r["worker_per_s"] for r in known), 3) if known else None,
        "rate_waiting": sum(rate["waiting"] for rate in known),
    }


def paused_remarks(state: Mapping[str, Any]) -> Sequence[str]:
    """A line for each handler that an operator paused, for commands that show something else."""
    return [
        f"{row['handler']}: {paused_text(row)}; see `ackfloor handlers ls`"
        for row in handler_rows(state, "")
        if row["paused_in"]
    ]


def paused_text(row: Mapping[str, Any]) -> str:
    """For how long an operator paused the handler of a row of `handler_rows`, and why."""
    why = f": {row['paused_reason']}" if row["paused_reason"] else ""
    return f"an operator paused it {_how_long(row)}{why}"


def _reasons(reasons: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def _how_long(row: Mapping[str, Any]) -> str:
    """Until when an operator's pause lasts, and in which workers where not in all."""
    for_s = row["paused_for_s"]
    text = "until resumed" if for_s is None else f"for {format_duration(round(for_s))}"
    if row["paused_in"] != row["workers"]:
        text += f" in worker {', '.join(map(str, row['paused_in']))} alone"
    return text


def _rate_cell(row: Mapping[str, Any]) -> str:
    if not row["rate"]:
        return ""
    here = format_rate(row["rate_here_per_s"]) if row["rate_here_per_s"] else "none"
    waiting = f", {row['rate_waiting']} wait" if row["rate_waiting"] else ""
    return f"{row['rate']} ({here} here{waiting})"


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table, with related facts in one cell."""
    paused = [_how_long(row)] if row["paused_in"] else []
    if row["held_for_s"]:
        paused.append(f"itself for {format_rounded(row['held_for_s'])}")
    cells = {
        **row,
        "workers": ", ".join(map(str, row["workers"])),
        "blocked": row["blocked_lanes"],
        "quarantined": row["quarantined_keys"],
        "breaker": ", ".join(row["breaker"]).replace("_", " "),
        "rate": _rate_cell(row),
        "paused": "; ".join(paused),
        "why": _reasons([row["paused_reason"], row["held_reason"]]),
    }
    return {name: cells[name] for name in TABLE}
