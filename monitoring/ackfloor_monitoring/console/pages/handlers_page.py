"""Handlers: what each has to do, what its circuit breaker does, and whether it is paused.

Who may act pauses it and lets it go, and keeps its breaker open or closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ackfloor.cli.breaker.breaker_show import breaker_facts
from ackfloor.core.values.durations import format_rounded
from ackfloor.operations import ControlFailed
from ackfloor_monitoring.console.pages.console_page import Known, Page
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.runs.run_facts import OfRuns

Row = Mapping[str, Any]


def facts(cluster: Cluster, known: Known) -> Mapping[str, Any]:  # noqa: ARG001 -- pages are alike
    """What the template shows."""
    runs = known.runs.value
    if runs is None:
        return {"handlers": [], "taken_ms": []}
    handlers = sorted(runs.handlers(), key=lambda row: (row["group"], row["handler"], row["run"]))
    said = list(_breakers(runs))
    rows = [
        {**row, "breakers": [text for *of, text in said if of == [row["run"], row["handler"]]]}
        for row in handlers
    ]
    return {"handlers": rows, "taken_ms": [runs.taken_ms]}


def _breakers(runs: OfRuns) -> Iterator[tuple[str, str, str]]:
    """Run, handler and a sentence, of each worker whose breaker is not closed, or is kept so."""
    for answer in runs.known():
        try:
            found = list(breaker_facts(answer.state))
        except ControlFailed:  # an older run has none
            continue
        for worker, breaker in found:
            if breaker["forced"] or breaker["state"] not in {"closed", "disabled"}:
                yield answer.run, breaker["handler"], f"Worker {worker}: {_of_breaker(breaker)}."


def _of_breaker(breaker: Row) -> str:
    parts = [f"its circuit breaker is {breaker['state'].replace('_', ' ')}"]
    if breaker["forced"]:
        how_long, reason = breaker["forced_for_s"], breaker["forced_reason"]
        kept = f"an operator keeps it {breaker['forced']}"
        kept += "" if how_long is None else f" for {format_rounded(how_long)}"
        parts.append(kept + (f", {reason}" if reason else ""))
    if breaker["state"] not in {"closed", "disabled"}:
        parts.append(f"{breaker['allowed']:,} of {breaker['concurrency']:,} may be in flight")
        parts.append(f"{breaker['withheld']:,} withheld")
    if breaker["next_trial_s"] is not None:
        parts.append(f"the next trial is in {format_rounded(breaker['next_trial_s'])}")
    if breaker["error"]:
        parts.append(f"the last error: {breaker['error']}")
    return "; ".join(parts)


HANDLERS = Page("handlers", "Handlers", "h", facts)
