"""What an exception that left a handler means for its delivery, in either executor."""

from __future__ import annotations

from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Work
from ackfloor.core.outcomes import Held, Outcome
from ackfloor.runtime.inbox import Held as HeldPosted
from ackfloor.runtime.inbox import Inbox
from ackfloor.runtime.invoke import Invocation
from ackfloor.runtime.window import Window


def outcome_of(
    exc: BaseException, delivery: Delivery, invocation: Invocation, inbox: Inbox
) -> Outcome | None:
    """The outcome of a delivery whose handler raised; None where it has ended already.

    Whatever it is: SystemExit and KeyboardInterrupt are that record's failure as well, and end no
    worker. What is raised after an answer by hand changes nothing: it is posted to be logged, and
    counted like any other late answer. What is raised after the deadline is late, and nothing more.
    """
    if not invocation.manual or delivery.claim():
        return invocation.outcome_of(exc)
    delivery.assignment.stats.late_answers.append(None)
    if delivery.outcome is not None:
        inbox.errors.append((delivery, exc))
    return None


def put_back(
    window: Window,
    inbox: Inbox,
    handler: str,
    unit: Delivery | Work,
    delivery: Delivery,
    outcome: Held,
) -> None:
    """A delivery asked for a pause: it is given back, and with it all that has not started.

    Args:
        window: the handler's.
        inbox: where the wish for a pause is posted.
        handler: its name.
        unit: the delivery, or the work whose first it is again.
        delivery: what asked for the pause.
        outcome: for how long, and why.
    """
    delivery.reopen()
    if delivery.closed:
        # It asks too late: nobody waits for it. Whoever takes the delivery skips it.
        delivery.assignment.stats.late_answers.append(None)
        inbox.returned.append((handler, unit))
        return
    window.give_back((unit,))
    inbox.held.append(HeldPosted(handler, outcome.duration_s, outcome.reason))
