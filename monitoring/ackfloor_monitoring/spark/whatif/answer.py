"""The answer in plain Python: what was, what would have been, and the assumptions.

Needs no PySpark. Durations in seconds. The JSON is this tree, name for name: fields are added,
never renamed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number that is an expectation, and the bounds that hold for every recovery in between."""

    likely: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Policy:
    """A retry policy. `waits_s` are the schedule's nominal ones."""

    max_redeliveries: int
    waits_s: tuple[float, ...]
    jitter: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One handler, or all of them; `_then` is under the other policy.

    Attributes:
        messages: that failed and whose end is known; `recovered` + `dead`.
        dead_anyway: dead letters under any policy: dead-lettered by the handler, not decodable,
            or crashed.
        redeliveries: after a failure; the first delivery is none.
        to_recovery_s: the mean from the first failure, None where nothing recovered.
        sooner_s: of those that recover under both, by how much on average; negative: later.
        to_death_s: the mean from the first failure to the last, of those that retries gave up.
        tried_later: dead letters that the other policy had tried clearly later than they were.
        to_recovery_p50_s: half of those that recovered did so within this time; to 0.1 percent.
        to_recovery_p99_s: 99 of 100 did.
        policy: the other policy; None for all handlers together.
        in_force: the policy that the records were retried under, as far as they say.
    """

    group: str | None
    handler: str | None
    messages: int
    recovered: int
    recovered_then: Estimate
    dead: int
    dead_then: Estimate
    dead_anyway: int
    redeliveries: int
    redeliveries_then: Estimate
    to_recovery_s: float | None
    to_recovery_then_s: float | None
    sooner_s: float | None
    to_death_s: float | None
    to_death_then_s: float | None
    tried_later: int
    to_recovery_p50_s: float | None = None
    to_recovery_p50_then_s: float | None = None
    to_recovery_p99_s: float | None = None
    to_recovery_p99_then_s: float | None = None
    policy: Policy | None = None
    in_force: Policy | None = None


@dataclass(frozen=True, slots=True)
class Examples:
    """One message of each kind that can't be known, as TOPIC/PARTITION/OFFSET; None for none.

    Attributes:
        tried_later: a dead letter that the other policy had tried clearly later than it was.
    """

    waiting: str | None = None
    own_waits: str | None = None
    tried_later: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What the answer does not cover.

    Attributes:
        waiting: messages whose retries are not over.
        own_waits: messages whose handler, not the policy, set the wait.
        replays: lives of replayed dead letters; the message's first life is counted.
        without_origin: failures whose message is not known.
    """

    waiting: int
    own_waits: int
    replays: int
    without_origin: int


@dataclass(frozen=True, slots=True)
class WhatIf:
    """All of it.

    Attributes:
        commits_known: else it is presumed that what was due before the table ends recovered.
        policy: of every handler, or of the first of `handlers`, each of which has its own.
        handlers: most messages first.
        assumptions: sentences, to be shown with the numbers.
        messages: that failed and whose origin is known, counted as in the report: those of `total`,
            and those left out because they wait or had waits of their own.
    """

    table: str
    policy: Policy
    commits_known: bool
    total: Outcome
    handlers: tuple[Outcome, ...]
    left_out: LeftOut
    assumptions: tuple[str, ...]
    messages: int = 0
    examples: Examples = Examples()

    def to_json(self) -> str:
        """The answer as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2)


ASSUMPTIONS = (
    (
        "A message fails until its cause is over and succeeds from then on. It is over between the "
        "last failure and the first success of the same handler and cause around the message's "
        "recovery; where these lie apart, any moment between them is as likely. Bounds: the "
        "message's own last failure and its own success."
    ),
    (
        "What died at the end of its retries stays dead: what a later attempt would have done is "
        "unknown. The lower bound of the dead letters is for all of it recovering at the first "
        "redelivery that is clearly later than its last one."
    ),
    (
        "What the handler dead-lettered itself, and what could not be decoded or crashed, dies "
        "under any policy, at its first call that is not earlier than the one that ended it."
    ),
    (
        "Waits have the jitter, and calls the length, that the message's own of the same number "
        "had; where there was none, their mean."
    ),
    (
        "More or fewer retries change nothing about how long the cause lasts, and no circuit "
        "breaker withholds failures."
    ),
)
PRESUMED = (
    "The groups' commits are not known: a message counts as recovered when its last wait was over "
    "before the table's last record and nothing later came of it."
)
