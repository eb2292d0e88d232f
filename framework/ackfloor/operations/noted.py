"""Noted actions: what is done within `noted` has a note when it ends, however it ends.

    note = new_note("lanes retry", "command line", by="ann@ops-1", targets=["bill"])
    with noted(note, log.write) as ending:
        ending.counts["done"] = retry_lanes()

An action is done first and noted after, so that a broker that is away delays none; a job, which may
run for hours, also has a note when it begins.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from socket import gethostname
from typing import Any

from ackfloor.dead_letters.rules.redrive_tally import Tally
from ackfloor.operations.action_notes import ActionNote, ActionState
from ackfloor.operations.run_client import NotKnown


@dataclass(slots=True)
class Ending:
    """How an action ended, as whoever carries it out says.

    Attributes:
        whole: whether all that was meant was reached.
        counts: how many of what were done, or were not.
        error: why not all was done.
        is_known: whether anybody has said how it ended.
    """

    whole: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    error: str = ""
    is_known: bool = True

    @property
    def state(self) -> ActionState:
        """In one word: without a single one done, what is not whole has failed."""
        if not self.is_known:
            return ActionState.UNKNOWN
        if self.whole:
            return ActionState.DONE
        return ActionState.PARTIAL if self.counts.get("done") else ActionState.FAILED


def counts_of(done: int, **others: int) -> dict[str, int]:
    """The counts of an action: how many were done, and of what else there were some."""
    return {"done": done, **{name: count for name, count in others.items() if count}}


def end_by_tallies(ending: Ending, tallies: Sequence[Tally]) -> None:
    """A job ends as its tallies say: what it sent, what it left out and why, what it did not do."""
    ending.whole = all(tally.complete for tally in tallies)
    ending.error = next((tally.stopped for tally in tallies if tally.stopped), "")
    counts = Counter({"done": sum(tally.sent for tally in tallies)})
    for tally in tallies:
        counts.update({why.value: count for why, count in tally.left.items()})
        counts.update({"remaining": tally.remaining} if tally.remaining else {})
    ending.counts = dict(counts)


def new_note(
    action: str,
    program: str,
    by: str,
    *,
    targets: Sequence[str] = (),
    group: str = "",
    arguments: Mapping[str, Any] | None = None,
    reason: str = "",
) -> ActionNote:
    """The note of an action that begins now, with a correlation id of its own.

    Args:
        arguments: without payloads and secrets; `action_notes.masked` takes keys away.
    """
    begun = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return ActionNote(
        id=f"{begun}-{secrets.token_hex(4)}",
        at_ms=_now_ms(),
        state=ActionState.BEGUN,
        by=by,
        host=gethostname(),
        program=program,
        action=action,
        group=group,
        targets=tuple(targets),
        arguments=arguments or {},
        reason=reason,
    )


@contextmanager
def noted(
    note: ActionNote, write: Callable[[ActionNote], None], *, job: bool = False
) -> Iterator[Ending]:
    """Note what is done within: at its end, and of a job also before it begins.

    Args:
        write: as `ActionLog.write`. What it raises for a job's first note prevents the job; what it
            raises at the end hides what was raised within, so it should raise nothing then.
    """
    if job:
        write(note)
    ending = Ending()
    try:
        yield ending
    except BaseException as exc:
        ending.whole = False
        ending.error = str(exc) or type(exc).__name__
        ending.is_known = not isinstance(exc, NotKnown)
        raise
    finally:
        counts = dict(ending.counts)
        end = replace(note, at_ms=_now_ms(), state=ending.state, counts=counts, error=ending.error)
        write(end)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
