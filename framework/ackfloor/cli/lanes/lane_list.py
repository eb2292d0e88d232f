"""`ackfloor lanes ls`: which record blocks a key or partition, why, and what waits behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from ackfloor.cli.shared.parameters import RunConfigOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, print_rows
from ackfloor.cli.shared.run_address import ListensOption, read_state, runs_of
from ackfloor.core.values.durations import format_rounded
from ackfloor.core.values.suggestions import there_are
from ackfloor.operations.run_client import unreported, workers_of

COLUMNS = (
    "record", "handler", "key", "state", "head", "attempt", "error", "blocked_s", "at_least",
    "next_try_s", "behind", "worker", "run",
)  # fmt: skip
#: The columns that a narrow table drops, in this order.
SPARE = (
    "run", "at_least", "worker", "attempt", "error", "blocked_s", "head", "state", "next_try_s",
    "key",
)  # fmt: skip
#: The states that a handler of `/state` describes lanes of.
STATES = ("blocked", "quarantined")


def ls(
    handler: Annotated[
        str | None, typer.Argument(metavar="[HANDLER]", help="Only this handler's.")
    ] = None,
    listen: ListensOption = None,
    config: RunConfigOption = None,
    output: RowsOption = RowsOutput.table,
) -> None:
    """List the keys and partitions that wait for a record that failed, the longest waiting first.

    It asks the runs at their addresses. A run names of each handler of each worker the 20 that have
    been blocked for longest, the 20 that have been quarantined for longest, and how many more there
    are. "record" is the failed record, of a quarantined key by its place in the source topic.
    "head" is what it is doing: waiting for its next try, withheld by the circuit breaker until a
    trial, queued, running, or on its way to the dead-letter topic; of a quarantined key also
    moving (being written, or not read back yet), or held: it is dead-lettered, and its key waits
    for `lanes retry`. "attempt" is which delivery failed last. "blocked_s" is for how long this
    record has failed; of a quarantined key it is the age of the key's quarantine, and its record
    may have failed much later. "at_least" says that another worker had it before, so it may be
    more: of a quarantined key Kafka has when the oldest of its records failed that is left; of a
    record that is tried again in place it has nothing, and the time counts from its first failure
    in this worker. "behind" is how many records wait behind it. Keys and errors are shown as
    [redaction] allows.
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
    """A row for each blocked lane and quarantined key that a run's state names."""
    now_ms = state["now_ms"]
    for number, worker in workers_of(state):
        for kind in STATES:
            for name, lanes in lanes_of(worker, kind):
                for lane in lanes["oldest"]:
                    yield {
                        "record": _record(lane),
                        "handler": name,
                        "key": lane["key"],
                        "state": kind,
                        "head": lane["head"],
                        # Not known before it is read.
                        "attempt": lane["attempt"] or None,
                        "error": lane["error"],
                        "blocked_s": _seconds(now_ms - lane["since_ms"]),
                        # An older run does not tell.
                        "at_least": lane.get("at_least", False),
                        "next_try_s": _seconds_until(lane["next_try_ms"], now_ms),
                        "behind": lane["behind"],
                        "worker": number,
                        "run": run,
                    }


def waits_for(row: Mapping[str, Any]) -> str:
    """For how long a lane of `lane_rows` has waited, in words."""
    return f"{'at least ' * row['at_least']}{format_rounded(row['blocked_s'])}"


def _record(lane: Mapping[str, Any]) -> str:
    """The place of a head; of its partition alone before it is known."""
    place = f"{lane['topic']}/{lane['partition']}"
    return place if lane["offset"] < 0 else f"{place}/{lane['offset']}"


def _seconds(ms: int) -> float:
    return round(max(0, ms) / 1000, 1)


def _seconds_until(ms: int | None, now_ms: int) -> float | None:
    return None if ms is None else _seconds(ms - now_ms)


def handlers_of(state: Mapping[str, Any]) -> set[str]:
    """The names of a run's handlers, as far as its workers have reported."""
    return {each["name"] for _, worker in workers_of(state) for each in worker["handlers"]}


def lanes_of(worker: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The handlers of a worker that have lanes in a state, and what is said of these."""
    for handler in worker["handlers"]:
        # An older run does not tell.
        lanes = handler.get(kind)
        if lanes and lanes["count"]:
            yield handler["name"], lanes


def blocked_of(worker: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The handlers of a worker that have blocked lanes, and what its state says of these."""
    return lanes_of(worker, "blocked")


def quarantined_of(worker: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The handlers of a worker that have quarantined keys, and what its state says of these."""
    return lanes_of(worker, "quarantined")


def lane_totals(state: Mapping[str, Any], kind: str) -> dict[str, tuple[int, int]]:
    """Handler -> how many of its lanes are in a state in all workers, and how many records wait."""
    totals: dict[str, tuple[int, int]] = {}
    for _, worker in workers_of(state):
        for name, lanes in lanes_of(worker, kind):
            count, behind = totals.get(name, (0, 0))
            totals[name] = count + lanes["count"], behind + lanes["behind"]
    return totals


def lane_remarks(state: Mapping[str, Any], kinds: Sequence[str] = STATES) -> Sequence[str]:
    """A line for each handler with lanes that wait, for commands that show something else."""
    what = {"blocked": "lane", "quarantined": "key"}
    return [
        f"{name}: {count} {kind} {what[kind]}{'' if count == 1 else 's'}, {behind} records behind: "
        "see `ackfloor lanes ls`"
        for kind in kinds
        for name, (count, behind) in sorted(lane_totals(state, kind).items())
    ]


def not_named(state: Mapping[str, Any], kinds: Sequence[str] = STATES) -> Iterator[str]:
    """A line for each worker and handler with more lanes that wait than the state names."""
    what = {"blocked": "lanes", "quarantined": "keys"}
    for number, worker in workers_of(state):
        for kind in kinds:
            for name, lanes in lanes_of(worker, kind):
                more = lanes["count"] - len(lanes["oldest"])
                if more > 0:
                    text = f"{more} more {what[kind]} of {name} are {kind}, each for less"
                    yield f"worker {number}: {text}"
