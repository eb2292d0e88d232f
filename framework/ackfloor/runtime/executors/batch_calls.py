"""Batch calls: what batch handlers share on the event loop and on threads."""

from __future__ import annotations

from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import Failed, Outcome, Paused, Rejected
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.calls.invoke import current_batch
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.executors.window import Window


def startable(batch: Batch, *, stopping: bool) -> bool:
    """Take out what has ended or must not start; returns whether anything is left.

    Call it once the slot shows the batch: a revoke marks its assignment first and reads the slots
    second, so either we see the mark or it sees us.
    """
    batch.items = [d for d in batch.items if not (stopping or d.closed or d.assignment.stopping)]
    return bool(batch.items)


def begin(batch: Batch, now_s: float) -> None:
    """The call begins, and with it the deadline of every item."""
    current_batch.set(batch)
    for delivery in batch.items:
        # Armed before it has started: from then on its deadline may claim it.
        delivery.arm(None)
        delivery.started_s = now_s


def post(
    batch: Batch,
    outcome: Outcome | None,
    exc: BaseException | None,
    *,
    window: Window,
    inbox: Inbox,
    now_s: float,
) -> None:
    """The call has ended: the owner thread gives its outcome to unanswered deliveries.

    Args:
        batch: what it was called with.
        outcome: the call's; None where it was cancelled after all had ended.
        exc: what it raised, if anything.
        window: the handler's.
        inbox: where the outcome is posted.
        now_s: monotonic seconds.
    """
    current_batch.set(None)
    matters = batch.unanswered()
    if isinstance(outcome, Paused) and matters:
        window.ask_pause(outcome)
        # The owner thread puts this one back as well.
        window.give_back()
    elif exc is not None and isinstance(outcome, Failed | Rejected) and _all_answered(batch):
        inbox.errors.append((batch.items[0], exc))
    elif outcome is not None and (failed := _first_open(batch)) is not None:
        inbox.note_failure(failed, outcome, exc)
    batch.finished_s = now_s
    batch.outcome = outcome
    window.end(batch)


def given_up(batch: Batch) -> bool:
    """Whether a slot may give up this batch, for the first time: all of it has ended."""
    if batch.abandoned or not all(d.closed or d.outcome is not None for d in batch.items):
        return False
    batch.abandoned = True
    return True


def _first_open(batch: Batch) -> TrackedDelivery | None:
    """The first item that gets the outcome of the call, if any does."""
    return next((d for d in batch.items if d.outcome is None and not d.closed), None)


def _all_answered(batch: Batch) -> bool:
    return all(d.outcome is not None for d in batch.items)
