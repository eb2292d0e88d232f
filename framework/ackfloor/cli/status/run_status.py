"""What runs say of themselves, as lines of `ackfloor status`.

`/readyz` says why a run is not ready. What waits, which handlers are paused, and what runs is
counted from `/state`, with the code of `lanes ls`, `breaker show`, `handlers ls` and `inflight`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ackfloor.cli.breaker.breaker_show import breaker_facts
from ackfloor.cli.handlers.handler_list import handler_rows, paused_text
from ackfloor.cli.handlers.scarce_slots import full_slot_remarks, held_up
from ackfloor.cli.lanes.lane_list import STATES, lane_rows, lane_totals, waits_for
from ackfloor.cli.run.inflight import running_rows
from ackfloor.cli.status.next_commands import NextCommands
from ackfloor.cli.status.run_answers import RunAnswer
from ackfloor.cli.status.status_line import State, StatusLine, counted
from ackfloor.core.records.outcomes import CONSUME_TIMEOUT
from ackfloor.core.values.durations import format_duration, format_rounded
from ackfloor.operations.run_client import ControlFailed

#: What `/readyz` calls an open circuit breaker: it is shown from `/state`, of all workers together.
BREAKER: Final = "faults.breaker"
#: The checks of `/readyz` that are about the worker itself, and what to type next.
_NEXT: Final = {
    "faults.event_loop": "inflight --trace",
    "faults.abandoned": "inflight --trace",
    "loop": "inflight --trace",
    "held": "handlers ls",
}
#: What shows the record that a quarantined key waits for, by its place in the source topic.
_SHOWN: Final = {"waiting": ("retry show", "traceback"), "held": ("dlq show", "dead letter")}
_OF_WORKERS: Final = frozenset({"workers", "state", "assignment", "loop", "kafka"})


def run_lines(answers: Sequence[RunAnswer], commands: NextCommands) -> Iterator[StatusLine]:
    """All that these runs say."""
    there = [answer for answer in answers if not answer.error]
    for answer in answers:
        yield _run_line(answer, commands)
    for answer in there:
        yield from _reason_lines(answer, commands)
        yield from _settings_lines(answer, commands)
        yield from _breaker_lines(answer, commands)
        yield from _scarce_lines(answer, commands)
        yield from _paused_lines(answer, commands)
        yield from _inflight_lines(answer, commands)
    yield from _lane_lines(there, commands)


def _of(answer: RunAnswer) -> Callable[..., StatusLine]:
    """Makes lines that this run says."""
    return partial(StatusLine, group=answer.group, runs=(answer.run,))


def _run_line(answer: RunAnswer, commands: NextCommands) -> StatusLine:
    line = partial(_of(answer), about="run", subject=answer.run)
    if answer.error and answer.named:
        next_ = commands.asks_runs("doctor", [answer.run])
        return line(State.wrong, detail=answer.error, next=next_)
    if answer.error:
        text = f"{answer.error.rstrip('?')}? Lanes, breakers and pauses are not known"
        return line(State.note, detail=text, next="ackfloor status --listen HOST:PORT")
    workers = counted(int(answer.state["workers_expected"]), "worker")
    ready = answer.readiness["ready"]
    version = answer.state.get("version", "")
    text = ", ".join(
        (
            f"{answer.run}: group {answer.group}",
            workers,
            "ready" if ready else "not ready",
            *([f"ackfloor {version}"] if version else []),
        )
    )
    return line(State.ok if ready else State.note, detail=text, count=1)


def _reason_lines(answer: RunAnswer, commands: NextCommands) -> Iterator[StatusLine]:
    """Why the run is not ready: a line for each reason, of all workers that have it."""
    workers: dict[tuple[str, str], list[int]] = {}
    for reason in answer.readiness.get("reasons", ()):
        if reason["check"] != BREAKER:
            workers.setdefault((reason["check"], reason["message"]), []).append(reason["worker"])
    for (check, message), numbers in workers.items():
        yield _of(answer)(
            State.wrong,
            "run" if check in _OF_WORKERS else "paused" if check == "held" else "fault",
            f"worker {', '.join(map(str, numbers))}: {message}",
            subject=check,
            count=len(numbers),
            next=commands.asks_runs(_NEXT.get(check, "doctor"), [answer.run]),
        )


def _settings_lines(answer: RunAnswer, commands: NextCommands) -> Iterator[StatusLine]:
    """Why the run works by older settings than somebody wants."""
    for note in answer.readiness.get("notes", ()):
        if note["check"] == "settings":
            next_ = commands.asks_kafka("config show")
            yield _of(answer)(State.wrong, "settings", note["message"], count=1, next=next_)


def _breaker_lines(answer: RunAnswer, commands: NextCommands) -> Iterator[StatusLine]:
    """A line for each handler whose breaker is not closed, or is forced, in a worker."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    try:
        for _, facts in breaker_facts(answer.state):
            if facts["state"] not in {"closed", "disabled"} or facts["forced"]:
                found.setdefault(facts["handler"], []).append(facts)
    except ControlFailed:  # an older run has none
        return
    for name, each in sorted(found.items()):
        forced = all(facts["forced"] for facts in each)
        yield _of(answer)(
            State.note if forced else State.wrong,
            "breaker",
            f"{name}: {_forced_text(each) if forced else _breaker_text(each)}",
            subject=name,
            count=sum(facts["withheld"] for facts in each),
            next=commands.asks_runs(_after_breaker(each, forced=forced), [answer.run]),
            handler=name,
            errors=_error_types(each),
        )


def _after_breaker(each: Sequence[Mapping[str, Any]], *, forced: bool) -> str:
    """The command that finds why: what timed out is still where it hangs."""
    hangs = CONSUME_TIMEOUT in _error_types(each)
    return "inflight --trace" if hangs and not forced else "breaker show"


def _error_types(each: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """What a handler's breakers opened for: each error is its type, a colon and its message."""
    return frozenset(facts["error"].partition(":")[0] for facts in each if facts["error"])


def _breaker_text(each: Sequence[Mapping[str, Any]]) -> str:
    """What the breakers of a handler do, of all workers in which they are not closed."""
    states = " and ".join(sorted({facts["state"].replace("_", " ") for facts in each}))
    withheld = counted(sum(facts["withheld"] for facts in each), "record")
    since = min(facts["since"] or "" for facts in each)
    text = f"circuit breaker {states} since {since}, {withheld} withheld"
    if states == "slow start":
        allowed, most = (sum(facts[name] for facts in each) for name in ("allowed", "concurrency"))
        text += f", trials succeed: {allowed:,} of {most:,} may run"
    trials = [facts["next_trial_s"] for facts in each if facts["next_trial_s"] is not None]
    if trials:
        text += f", the next trial in {format_duration(min(trials))}"
    errors = dict.fromkeys(facts["error"] for facts in each if facts["error"])
    return f"{text}; {'; '.join(errors)}" if errors else text


def _forced_text(each: Sequence[Mapping[str, Any]]) -> str:
    states = " and ".join(sorted({facts["forced"] for facts in each}))
    reasons = "; ".join(dict.fromkeys(f["forced_reason"] for f in each if f["forced_reason"]))
    return f"an operator forced its circuit breaker: {states}{f' ({reasons})' if reasons else ''}"


def _scarce_lines(answer: RunAnswer, commands: NextCommands) -> Iterator[StatusLine]:
    """Slots that are all taken for long, and keys that hang or are noisy."""
    next_ = commands.asks_runs("inflight --trace", [answer.run])
    for text in full_slot_remarks(answer.state):
        yield _of(answer)(State.wrong, "slots", text, count=1, next=next_)
    for each in held_up(answer.state):
        yield _of(answer)(
            State.wrong if each.behind_hanging else State.note,
            "keys",
            f"{each.handler}: {each}",
            subject=each.handler,
            count=each.noisy + each.hanging,
            next=next_,
            handler=each.handler,
            errors=frozenset({CONSUME_TIMEOUT} if each.hanging else ()),
            keyless=f"{each.handler}: {each.counts}",
        )


def _lane_lines(answers: Sequence[RunAnswer], commands: NextCommands) -> Iterator[StatusLine]:
    """A line for each handler with blocked lanes or quarantined keys, in all runs of its group."""
    for kind in STATES:
        of_handler: dict[tuple[str, str], list[RunAnswer]] = {}
        for answer in answers:
            for name in lane_totals(answer.state, kind):
                of_handler.setdefault((answer.group, name), []).append(answer)
        for (group, name), each in sorted(of_handler.items(), key=lambda item: item[0]):
            count, behind = _sums(each, kind, name)
            what = counted(count, "blocked lane" if kind == "blocked" else "quarantined key")
            runs = tuple(answer.run for answer in each)
            retry = commands.asks_runs(f"lanes retry {shlex.quote(name)} --all", runs)
            yield StatusLine(
                State.wrong,
                kind,
                f"{name}: {what}, {counted(behind, 'record')} behind{_longest(each, kind, name)}; "
                f"when the cause is mended, `{retry}` tries them at once",
                subject=name,
                handler=name,
                count=count,
                next=commands.asks_runs("lanes ls", runs),
                group=group,
                runs=runs,
            )


def _sums(answers: Sequence[RunAnswer], kind: str, name: str) -> tuple[int, int]:
    """How many of a handler's lanes are in a state, and how many records wait behind them."""
    totals = [lane_totals(answer.state, kind)[name] for answer in answers]
    return sum(count for count, _ in totals), sum(behind for _, behind in totals)


def _longest(answers: Sequence[RunAnswer], kind: str, name: str) -> str:
    """Which record the longest wait is for, and why."""
    rows = [
        row
        for answer in answers
        for row in lane_rows(answer.state, answer.run)
        if row["handler"] == name and row["state"] == kind
    ]
    if not rows:
        return ""
    longest = max(rows, key=lambda row: float(row["blocked_s"]))
    why = ": ".join(filter(None, ("held" * (longest["head"] == "held"), longest["error"])))
    # A quarantined key is older than the record that it waits for now.
    head = "by" if kind == "blocked" else "its head now"
    shown = ""
    if kind == "quarantined" and longest["head"] in _SHOWN:
        command, has = _SHOWN[longest["head"]]
        shown = f"; `ackfloor {command} {shlex.quote(longest['record'])}` has its {has}"
    failed = f" ({why})" if why else ""
    tried = _tried(longest)
    return (
        f"; the longest for {waits_for(longest)}, {head} {longest['record']}{failed}{tried}{shown}"
    )


def _tried(row: Mapping[str, Any]) -> str:
    """When a lane's head is tried: nobody has to wait for longer to see whether it is mended."""
    if row["head"] in {"queued", "running"}:
        return ", tried now"
    next_s = row["next_try_s"]
    return "" if next_s is None else f", tried again in {format_rounded(next_s)}"


def _paused_lines(answer: RunAnswer, commands: NextCommands) -> Iterator[StatusLine]:
    """What operators paused; what handlers asked for is a reason not to be ready."""
    for row in handler_rows(answer.state, answer.run):
        if row["paused_in"]:
            name, next_ = row["handler"], commands.asks_runs("handlers ls", [answer.run])
            text = f"{name}: {paused_text(row)}"
            yield _of(answer)(State.note, "paused", text, subject=name, count=1, next=next_)


def _inflight_lines(answer: RunAnswer, commands: NextCommands) -> Iterator[StatusLine]:
    """How much runs now, and for how long the longest has."""
    running = sum(row["running"] for row in handler_rows(answer.state, answer.run))
    if not running:
        return
    text, state = f"{counted(running, 'record')} in flight", State.ok
    rows = sorted(running_rows(answer.state), key=lambda row: -float(row["running_s"]))
    if rows:
        longest, left_s = rows[0], rows[0]["left_s"]
        for_s = format_rounded(longest["running_s"])
        text += f", the longest for {for_s}: {longest['record']} ({longest['handler']})"
        if left_s is not None:
            side, state = ("beyond", State.note) if left_s < 0 else ("before", State.ok)
            text += f", {format_rounded(abs(left_s))} {side} its deadline"
    next_ = commands.asks_runs("inflight", [answer.run])
    yield _of(answer)(state, "inflight", text, count=running, next=next_)
