"""Tally and Preview: a redrive job's counts, and the result of its dry run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ackfloor.dead_letters.rules.record_size import Fit
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, Left, Target

#: Handler, reason and error type; "" where one is not known.
Cause = tuple[str, str, str]
SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of a job or a dry run.

    Attributes:
        sent: records written (in a dry run: that would be written).
        left: why others were not, and how many.
        stopped: why it ended early; "" where it did not.
        remaining: how many are still to be sent, as far as is known; 0 at its end.
    """

    sent: int = 0
    left: Mapping[Left, int] = field(default_factory=dict)
    stopped: str = ""
    remaining: int = 0

    def leave(self, why: Left, count: int = 1) -> Tally:
        """Count one that is not sent."""
        return replace(self, left={**self.left, why: self.left.get(why, 0) + count})

    def send(self, count: int) -> Tally:
        """Count so many that are sent."""
        return replace(self, sent=self.sent + count)

    def of(self, asked: int, limit: int | None) -> Tally:
        """The same, with what is still to be sent of so many that were asked for."""
        remaining = asked - self.sent - sum(self.left.values())
        if limit is not None:
            remaining = min(remaining, limit - self.sent)
        return replace(self, remaining=remaining)

    @property
    def complete(self) -> bool:
        """Whether everything asked for has been sent, now or before."""
        return not self.stopped and not self.left.keys() - {Left.DISPOSED}


@dataclass(slots=True)
class Preview:
    """What a job would do.

    Attributes:
        causes: how many would be sent, by cause.
        samples: the first few that would be sent.
        perhaps: how many of them are larger than the target allows, unless compression makes them
            fit.
        edited: how many of them an edit changes.
        changes: the first few of these, before and after.
    """

    target: Target
    tally: Tally = field(default_factory=Tally)
    causes: Counter[Cause] = field(default_factory=Counter)
    samples: list[DeadLetter] = field(default_factory=list)
    perhaps: int = 0
    edited: int = 0
    changes: list[tuple[DeadLetter, DeadLetter]] = field(default_factory=list)

    @property
    def perhaps_text(self) -> str:
        """What is said of those that may not fit, after their number."""
        limits, topic = self.target.limits, self.target.topic
        if limits.topic is None:
            return (
                f"larger than {limits.batch:,} bytes; what {topic} allows is not known (grant "
                "DESCRIBE_CONFIGS on it): what does not fit will be left out"
            )
        return (
            f"larger than the {limits.batch:,} bytes that {topic} allows: what compression does "
            "not make fit will be left out"
        )

    def add(
        self, dead_letter: DeadLetter, after: DeadLetter | None = None, fit: Fit = Fit.YES
    ) -> None:
        """Count one that would be sent.

        Args:
            after: as it would be sent; None where that is as it is.
            fit: whether it fits into the target.
        """
        self.perhaps += fit is Fit.PERHAPS
        envelope = dead_letter.envelope
        self.causes[envelope.handler or "", envelope.reason or "", envelope.error_type or ""] += 1
        if len(self.samples) < SAMPLES:
            self.samples.append(dead_letter)
        if after is not None and after is not dead_letter:
            self.edited += 1
            if len(self.changes) < SAMPLES:
                self.changes.append((dead_letter, after))
