"""The doctor's questions to runs: why they are not ready, what is to be known, what they run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ackfloor
from ackfloor.cli.shared.parameters import SettingsSource
from ackfloor.cli.shared.run_address import read_state, read_trust
from ackfloor.core.values.doctor_result import CheckResult, State
from ackfloor.operations.run_client import ControlFailed, read_readiness, unreported, workers_of

#: What `/readyz` calls reasons of a worker itself: to them no other command has more to say.
_OF_WORKERS = frozenset({"workers", "state", "assignment", "kafka"})


def of_run(
    run: str, source: SettingsSource, group: str | None, *, named: bool
) -> Iterator[CheckResult]:
    """What a run says of all its workers.

    Args:
        run: its address.
        source: where the settings are.
        group: which it should be of; None where that is not known.
        named: an operator has named it, so it has to answer and to be ready. Else it may be
            the very run that a deployment is to replace: it fails no check.
    """
    check = f"run {run}"
    bad: State = "fail" if named else "warn"
    try:
        state = read_state(run, source)
        readiness = read_readiness(run, read_trust(source, run))
    except ControlFailed as exc:
        fix = "start it (ackfloor run), or name the run that is meant: --listen HOST:PORT"
        yield CheckResult(check, "fail" if named else "not tried", str(exc), fix)
        return
    if group not in {None, state["group"]}:
        yield _of_another_group(check, state["group"], group, named=named)
        return
    yield _itself(check, state)
    yield from _versions(check, state)
    for text in unreported(state):
        yield CheckResult(check, "warn", text, "its log says why; ask again in a moment")
    yield from _reasons(check, readiness, bad)
    for note in readiness.get("notes", ()):
        yield CheckResult(check, "warn", note["message"], "`ackfloor status` has the next command")


def _of_another_group(check: str, other: str, group: str | None, *, named: bool) -> CheckResult:
    """What is to be known of a run of another group is not said: it is no matter of this app."""
    from ackfloor.settings.app_sections import section_name

    return CheckResult(
        check,
        "fail" if named else "not tried",
        f"it is a run of group {other}, and this app's group is {group}",
        f"name the run of {group} with --listen HOST:PORT, or set its address as listen in "
        f"[{section_name(group or '')}.app]; where none runs, there is nothing to do",
    )


def _itself(check: str, state: Mapping[str, Any]) -> CheckResult:
    text = f"group {state['group']}, workers {state['workers_expected']}"
    return CheckResult(check, "ok", f"{text}, {'ready' if state['ready'] else 'not ready'}")


def _versions(check: str, state: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Whether the run and all its workers are what is installed here."""
    here, own = ackfloor.__version__, state.get("version", "older than this command")
    others = {
        f"worker {number}": worker["version"]
        for number, worker in workers_of(state)
        if worker.get("version", own) != own
    }
    if own == here and not others:
        yield CheckResult(check, "ok", f"ackfloor {own} in all workers that have reported")
        return
    found = ", ".join(f"{who}: {version}" for who, version in {"run": own, **others}.items())
    yield CheckResult(
        check, "warn", f"ackfloor {here} is installed here; {found}", "restart the run"
    )


def _reasons(check: str, readiness: Mapping[str, Any], bad: State) -> Iterator[CheckResult]:
    """Why it is not ready: each reason once, with the workers that have it."""
    workers: dict[tuple[bool, str], list[int]] = {}
    for reason in readiness.get("reasons", ()):
        own = reason["check"] in _OF_WORKERS
        workers.setdefault((own, reason["message"]), []).append(reason["worker"])
    for (own, message), numbers in workers.items():
        text = f"worker {', '.join(map(str, numbers))}: {message}"
        fix = "the run's log says why" if own else "`ackfloor status` has the next command"
        yield CheckResult(check, bad, text, fix)
