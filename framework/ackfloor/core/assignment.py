"""Assignment and HandlerState: the mutable state the engine owns.

An `Assignment` is one partition for one epoch. A partition that is revoked and given back is a
new assignment with a new epoch and a new tracker: nothing of the old one can reach the new
one, because every delivery points at the assignment it came from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ackfloor.core.delivery import Delivery
from ackfloor.core.flow import Gate
from ackfloor.core.lanes import Lanes
from ackfloor.core.retry import RetryPolicy
from ackfloor.core.tracker import AckTracker


@dataclass(frozen=True, slots=True)
class HandlerRules:
    """What the engine must know of a handler; replaced whole when settings are reloaded.

    Attributes:
        name: unique in the app; header, metric label and settings key.
        ordering: "unordered", "key" or "partition".
        concurrency: how many deliveries run at once.
        consume_timeout_s: from handler start to answer, None for no limit.
        policy: the retry policy.
        manual: answers come through the delivery, not by return.
        max_extend_s: how far after its start a delivery's deadline may be moved.
    """

    name: str
    ordering: str = "unordered"
    concurrency: int = 64
    consume_timeout_s: float | None = 60.0
    policy: RetryPolicy = RetryPolicy()
    manual: bool = False
    max_extend_s: float | None = None


class HandlerState:
    """One handler's rules, its lanes, and what holds it."""

    __slots__ = ("held_reason", "held_until_s", "lanes", "open_retries", "rules")

    def __init__(self, rules: HandlerRules) -> None:
        self.rules = rules
        self.lanes = Lanes()
        self.held_until_s = 0.0
        self.held_reason = ""
        #: Deliveries from retry tiers that are dispatched and not answered.
        self.open_retries = 0

    def retry_room(self) -> int:
        """How many more redeliveries may be dispatched.

        At most half of the slots: what fails again and again must not take every slot from
        what has not been tried yet.
        """
        return max(1, self.rules.concurrency // 2) - self.open_retries


class AckStats:
    """What was handled of one source topic since the last look, kept raw until then."""

    __slots__ = ("acked", "attempts", "handler", "late", "late_answers", "lateness_s", "topic")

    def __init__(self, topic: str, handler: str) -> None:
        self.topic = topic
        self.handler = handler
        self.acked: list[Delivery] = []
        #: Of redeliveries: attempt number, and seconds from due time to handler start.
        self.attempts: list[int] = []
        self.lateness_s: list[float] = []
        self.late = 0
        #: One entry for each manual answer that came too late; any thread appends.
        self.late_answers: deque[None] = deque()


class Assignment:
    """One partition during one epoch."""

    __slots__ = (
        "bytes_gate",
        "clock",
        "closed",
        "commit_outstanding",
        "commit_sent_s",
        "committed",
        "epoch",
        "floor_advanced_ms",
        "handler",
        "inbox",
        "last_floor",
        "parking",
        "partition",
        "paused",
        "source_topic",
        "span_gate",
        "stats",
        "stopping",
        "tier_s",
        "topic",
        "tracker",
        "waiting",
        "waiting_bytes",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        epoch: int,
        position: int,
        *,
        handler: HandlerState,
        source_topic: str,
        tier_s: float | None,
        span_gate: Gate,
        stats: AckStats,
        inbox: deque[Delivery],
        clock: Callable[[], float],
        now_ms: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.epoch = epoch
        self.handler = handler
        self.source_topic = source_topic
        #: The nominal delay in seconds where the topic is a retry tier.
        self.tier_s = tier_s
        self.tracker: AckTracker[Delivery] = AckTracker(position)
        self.inbox = inbox
        self.clock = clock
        #: Records written to a retry or dead-letter topic whose report is outstanding.
        self.parking = 0
        #: Tier records that are not due: (due in wall-clock ms, delivery), in due order.
        self.waiting: deque[tuple[int, Delivery]] = deque()
        #: Bytes of their values.
        self.waiting_bytes = 0
        self.span_gate = span_gate
        #: Of the waiting bytes.
        self.bytes_gate = Gate(1)
        self.stats = stats
        self.paused = False
        #: No further delivery may start (revoke or shutdown is under way).
        self.stopping = False
        #: The assignment has ended: everything that still comes is stale.
        self.closed = False
        self.committed: int | None = None
        self.commit_outstanding = False
        #: Monotonic seconds at which the outstanding commit was sent.
        self.commit_sent_s = 0.0
        self.last_floor = position
        self.floor_advanced_ms = now_ms

    def floor(self, now_ms: int) -> int:
        """The floor, noting when it last moved."""
        floor = self.tracker.floor()
        if floor != self.last_floor:
            self.last_floor = floor
            self.floor_advanced_ms = now_ms
        return floor
