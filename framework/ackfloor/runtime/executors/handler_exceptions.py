"""What an exception that left a handler means for its delivery, in either executor."""

from __future__ import annotations

from ackfloor.core.records.outcomes import Outcome
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.calls.invoke import Invocation
from ackfloor.runtime.executors.inbox import Inbox


def outcome_of(
    exc: BaseException, delivery: TrackedDelivery, invocation: Invocation, inbox: Inbox
) -> Outcome | None:
    """The outcome of a delivery whose handler raised; None where it has ended already.

    Whatever it is: SystemExit and KeyboardInterrupt are that record's failure as well, and end no
    worker. What is raised after an answer by hand changes nothing: it is posted to be logged, and
    counted like any other late answer. What is raised after the deadline is late, and nothing more.
    """
    invocation.publishes.drop(delivery)
    if not invocation.manual or delivery.claim():
        outcome = invocation.outcome_of(exc)
        inbox.note_failure(delivery, outcome, exc)
        return outcome
    delivery.assignment.stats.late_answers.append(None)
    if delivery.outcome is not None:
        inbox.errors.append((delivery, exc))
    return None
