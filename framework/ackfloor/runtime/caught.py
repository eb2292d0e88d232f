"""What an exception that left a handler means for its delivery, in either executor."""

from __future__ import annotations

from ackfloor.core.delivery import TrackedDelivery
from ackfloor.core.outcomes import Outcome
from ackfloor.runtime.inbox import Inbox
from ackfloor.runtime.invoke import Invocation


def outcome_of(
    exc: BaseException, delivery: TrackedDelivery, invocation: Invocation, inbox: Inbox
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
