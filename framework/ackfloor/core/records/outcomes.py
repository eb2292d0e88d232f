"""Outcomes: how a delivery can end, and what follows from each.

An outcome is a value. Exceptions become outcomes around the user's function, in
`runtime/calls/invoke.py`; from there on nothing is raised. `judge` turns an outcome into a verdict
by the retry policy: settle now, park for another delivery, dead-letter, or keep it open.

These spend the redelivery budget: an error, an explicit retry, a timeout, a crash of the process
that handled it. These don't: a release at shutdown or rebalance, a `Pause`, a hop between tiers,
and a crash with several records in flight: only the next one, alone, shows which caused it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.record import Failure
from ackfloor.core.records.retry_policy import RetryPolicy

#: How often a record may take a process down with it before it is given up.
CONDEMNED: Final = 3
#: The error type of a delivery whose own process died (the process executor).
PROCESS_CRASH: Final = "ProcessCrash"
#: The error type of a delivery that outlived its consume timeout.
CONSUME_TIMEOUT: Final = "ConsumeTimeout"


@dataclass(frozen=True, slots=True)
class Acked:
    """Handled."""


ACKED: Final = Acked()


@dataclass(frozen=True, slots=True)
class Discarded:
    """Dropped explicitly by the handler."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """Not handled, and worth another delivery if the budget allows.

    Attributes:
        failure: what went wrong, for the record's headers.
        reason: `error`, `retry`, `timeout` or `crash`.
        after_s: an explicit wait that replaces the policy's, in seconds.
    """

    failure: Failure
    reason: Reason = Reason.ERROR
    after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Not handled, and no redelivery will help: straight to the dead-letter queue."""

    failure: Failure
    reason: Reason = Reason.DEAD_LETTER


@dataclass(frozen=True, slots=True)
class Paused:
    """Not handled because a dependency is unavailable: stays open, no budget spent.

    Attributes:
        duration_s: how long the handler takes no further records.
    """

    duration_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """Cut short by a shutdown or a rebalance: stays open for the partition's next owner."""


RELEASED: Final = Released()


@dataclass(frozen=True, slots=True)
class Apart:
    """Its process died, or its call failed, with other records: the same attempt again, alone."""


APART: Final = Apart()

Outcome = Acked | Discarded | Failed | Rejected | Paused | Released | Apart


class Park(NamedTuple):
    """Write the record to a retry tier, due after `delay_s`.

    `exact` marks an explicit wait: it is reached by hops and never early.
    """

    delay_s: float
    exact: bool
    reason: Reason
    failure: Failure


@dataclass(frozen=True, slots=True)
class Bury:
    """Write the record to the dead-letter queue."""

    reason: Reason
    failure: Failure
    by_operator: bool = False


Verdict = Park | Bury


def judge(
    outcome: Failed | Rejected, policy: RetryPolicy, attempt: int, last_error: str | None = None
) -> Verdict:
    """What becomes of a record whose delivery number `attempt` (1 = first) failed.

    Args:
        outcome: how it failed.
        policy: the handler's.
        attempt: which delivery of the record it was.
        last_error: the error type of the delivery before, None where there was none.
    """
    if isinstance(outcome, Rejected):
        return Bury(outcome.reason, outcome.failure)
    if outcome.reason is Reason.CRASH and last_error == PROCESS_CRASH and attempt >= CONDEMNED:
        return Bury(Reason.CRASH, outcome.failure)
    delay_s = policy.delay_s(attempt)
    if delay_s is None:
        return Bury(Reason.EXHAUSTED, outcome.failure)
    if outcome.after_s is not None:
        return Park(outcome.after_s, True, outcome.reason, outcome.failure)
    return Park(delay_s, False, outcome.reason, outcome.failure)
