"""Facts: everything that is known of a soak when it is over; what the oracle judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.soak.audit import Audited
from tests.soak.cluster import DeadLetter
from tests.soak.commit_log import Written
from tests.soak.ledger import Call, Turn
from tests.soak.producer import Produced
from tests.soak.sampler import Samples


@dataclass(frozen=True, slots=True)
class Frozen:
    """A process stood still (SIGSTOP to SIGCONT)."""

    pid: int
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Recreated:
    """A topic was deleted and created again between these times, with another id."""

    topic: str
    from_s: float
    to_s: float
    topic_id: str


@dataclass(slots=True)
class Facts:
    """One soak.

    Attributes:
        calls, turns: what all handlers and workers wrote down, in the order of time.
        written: the group's commits, in the order in which they were written.
        left: unsettled records at the end, by partition; empty where all was settled in time.
        not_ready: why a run was not ready at the end.
        troubles: runs that did not end as they should.
        transactional: whether parks and their commits were one transaction.
        audited: what the audit of retry and dead-letter topics found, where it was asked for.
    """

    produced: Produced
    calls: Sequence[Call]
    turns: Sequence[Turn]
    dead_letters: Sequence[DeadLetter]
    samples: Samples
    written: Sequence[Written]
    frozen: Sequence[Frozen] = ()
    recreated: Sequence[Recreated] = ()
    left: Mapping[tuple[str, int], int] = field(default_factory=dict)
    not_ready: Sequence[str] = ()
    troubles: Sequence[str] = ()
    transactional: bool = False
    audited: Audited | None = None
