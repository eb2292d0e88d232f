"""What the calls of batch handlers have in common, on the event loop and on threads."""

from __future__ import annotations

from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import Failed, Outcome, Paused, Rejected
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.executors.window import Window


def startable(batch: Batch, *, stopping: bool) -> bool:
    """Take out what has ended or must not start any more; returns whether anything is left.

    Call it once the slot shows the batch: a revoke marks its assignment first and looks at the
    slots second, so either we see the mark or it sees us.
    """
    batch.items = [d for d in batch.items if not (stopping or d.closed or d.assignment.stopping)]
    return bool(batch.items)


def begin(batch: Batch, now_s: float) -> None:
    """The call begins, and with it the deadline of every item."""
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
    """The call has ended: the owner thread gives its outcome to what nobody has answered.

    Args:
        batch: what it was called with.
        outcome: what its end means; None where it was cut short and all had ended before.
        exc: what it raised, if anything.
        window: the handler's.
        inbox: where the end is posted.
        now_s: monotonic seconds.
    """
    matters = batch.unanswered()
    if isinstance(outcome, Paused) and matters:
        # The owner thread puts this one back as well.
        window.give_back()
        window.ask_pause(outcome)
    elif exc is not None and isinstance(outcome, Failed | Rejected) and _all_answered(batch):
        inbox.errors.append((batch.items[0], exc))
    batch.finished_s = now_s
    batch.outcome = outcome
    window.end(batch)


def given_up(batch: Batch) -> bool:
    """Whether a slot may be told to give up a batch, for the first time: all of it has ended."""
    if batch.abandoned or not all(d.closed or d.outcome is not None for d in batch.items):
        return False
    batch.abandoned = True
    return True


def _all_answered(batch: Batch) -> bool:
    return all(d.outcome is not None for d in batch.items)
