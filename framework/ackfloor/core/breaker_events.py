"""Events of the circuit breaker; they belong to the catalogue in `messages`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BreakerOpened:
    """So many different records of a handler failed in a row that only trials are started.

    Attributes:
        failing: how many did; 0 where an operator opened it.
    """

    handler: str
    failing: int
    error_type: str
    error_message: str

    @property
    def sample(self) -> int:
        """As `failing`: none of them succeeded. For one release, from the flood guard."""
        return self.failing


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A trial of a handler whose breaker is not closed ended; without an error type it succeeded.

    Topic, partition and offset are its record's origin.
    """

    topic: str
    partition: int
    offset: int
    handler: str
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class BreakerClosed:
    """A handler goes on with everything.

    Attributes:
        after_s: seconds since its breaker opened.
        why: "recovered", "operator", "gave in" (nothing but redeliveries for long), "disabled",
            "left" (its partitions have gone).
    """

    handler: str
    after_s: float
    why: str = "recovered"


@dataclass(frozen=True, slots=True)
class RecordWithheld:
    """A delivery failed while its handler's breaker was not closed: the same attempt comes again.

    Attributes:
        topic: the source topic.
        read_from: the topic that the record was read from.
    """

    topic: str
    partition: int
    offset: int
    handler: str
    attempt: int
    read_from: str


#: Their names before there was a circuit breaker, for one release.
GuardTripped = BreakerOpened
GuardProbed = TrialEnded
GuardReset = BreakerClosed
RecordPutBack = RecordWithheld
