"""CommitSchedule: when floors are committed, and what a commit's answer means.

One at a time per partition: while a commit of a partition is outstanding no other is sent for it,
and one that failed is never sent again as it was; the next is made from the state of its own
time. A commit carries the epoch it was made in, and an answer from an older epoch is ignored.

A commit stores the floor, and in its metadata what is settled above it (`gap_set`). So it is due
when anything was settled, not only when the floor moved: behind one stuck record ten thousand
others may be done, and a crash must not repeat them.

A broker forgets what a group has committed of a topic that nobody in it subscribes to, after a week
by default (`offsets.retention.minutes`, KIP-211), and retry topics are such, see
kafka/consume/copartitioned_retry_topics.py. So theirs are committed again at their start and every
six hours, changed or not: settled records that are still in the log must not come again. Not all at
once: a request has to fit into a broker's message.

Commits never fail the worker. A refused one leaves the floor to be committed later; what that
costs is redelivery after a crash, never loss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ackfloor.core.acks.gap_set import decode, encode
from ackfloor.core.messages.commands import Command, Commit
from ackfloor.core.records.record import CommitPosition, Now
from ackfloor.core.state.assignment import Assignment

#: Intervals between two looks at the floors where nothing is settled.
QUIET = 5
#: Seconds after which a commit without an answer is worth a fault.
UNANSWERED_S = 5.0
#: Seconds after which a commit of a retry topic is repeated, changed or not.
REPEAT_S = 6 * 3_600.0
#: So many of them go with one commit at most.
REPEATED_AT_ONCE = 100
#: How the text of a refusal begins when the broker takes less metadata than was sent.
METADATA_TOO_LARGE = "OFFSET_METADATA_TOO_LARGE"


class CommitSchedule:
    """Commits by time and by count, whichever comes first.

    Args:
        interval_s: seconds between commits.
        count: settled records that bring a commit forward.
    """

    __slots__ = ("_count", "_interval_s", "_settled", "_soon_s", "next_s")

    def __init__(self, interval_s: float, count: int) -> None:
        self._interval_s = interval_s
        self._count = count
        self._settled = 0
        #: Monotonic seconds of the next look at the floors, and at which it is one interval after
        #: the last: where nothing is settled, only what never arrives could move them.
        self.next_s = 0.0
        self._soon_s = 0.0

    def replan(self, interval_s: float, count: int, now: Now) -> None:
        """Apply other settings: the next commit is at most one interval away."""
        self._interval_s = interval_s
        self._count = count
        self._soon_s = min(self._soon_s, now.mono_s + interval_s)
        self.next_s = min(self.next_s, self._soon_s)

    def hurry(self) -> None:
        """A partition has no commit at all: commit at the next opportunity."""
        self.next_s = 0.0

    def settled(self, count: int) -> None:
        """Records were settled."""
        self._settled += count
        if self.next_s > self._soon_s:
            self.next_s = self._soon_s

    def due(self, now: Now) -> bool:
        """Whether `tick` will look at the floors."""
        return now.mono_s >= self.next_s or self._settled >= self._count

    def tick(self, assignments: Iterable[Assignment], now: Now, commands: list[Command]) -> None:
        """Command a commit of what has changed; call it when one is `due`."""
        self.next_s = self._soon_s = now.mono_s + self._interval_s
        self._settled = 0
        waits = False
        positions: list[CommitPosition] = []
        repeated = 0
        for assignment in assignments:
            assignment.floor(now.wall_ms)
            if assignment.orphaned:
                continue
            if assignment.stopping or assignment.commit.outstanding:
                waits = True
                continue
            changed = is_uncommitted(assignment) or assignment.commit.in_doubt
            if changed or (repeated < REPEATED_AT_ONCE and _may_expire(assignment, now)):
                repeated += not changed
                assignment.commit.outstanding = True
                assignment.commit.sent_s = now.mono_s
                positions.append(commit_position(assignment))
        if positions:
            commands.append(Commit(tuple(positions)))
        elif not waits:
            self.next_s = now.mono_s + QUIET * self._interval_s

    @staticmethod
    def unanswered(
        assignments: Iterable[Assignment], now: Now
    ) -> Iterator[tuple[Assignment, float]]:
        """Partitions whose commit is unanswered for long, and for how many seconds."""
        for assignment in assignments:
            waited_s = now.mono_s - assignment.commit.sent_s
            if assignment.commit.outstanding and waited_s >= UNANSWERED_S:
                yield assignment, waited_s

    def final(self, assignments: Iterable[Assignment]) -> tuple[CommitPosition, ...]:
        """The last commit of partitions that are about to leave."""
        return tuple(
            commit_position(assignment)
            for assignment in assignments
            if not (assignment.commit.transacting or assignment.orphaned)
            and (
                is_uncommitted(assignment)
                or assignment.commit.outstanding
                or assignment.commit.in_doubt
            )
        )

    def answered(
        self,
        assignments: Mapping[tuple[str, int], Assignment],
        position: CommitPosition,
        error: str | None,
    ) -> bool:
        """A commit came back; False where its epoch has ended."""
        assignment = assignments.get((position.topic, position.partition))
        if (
            assignment is None
            or assignment.epoch != position.epoch
            or assignment.commit.transacting
        ):
            return False
        assignment.commit.outstanding = False
        assignment.commit.in_doubt = error is not None
        self.next_s = min(self.next_s, self._soon_s)
        if error is None:
            assignment.commit.position = position.position
            assignment.commit.settled_count = position.settled_count
        elif error.startswith(METADATA_TOO_LARGE):
            assignment.commit.limit_metadata(len(position.metadata) // 2)
        return True


def is_uncommitted(assignment: Assignment) -> bool:
    """Whether a commit made now would differ from the last confirmed one."""
    tracker = assignment.tracker
    return (
        tracker.floor() != assignment.commit.position
        or tracker.settled_count() != assignment.commit.settled_count
    )


def _may_expire(assignment: Assignment, now: Now) -> bool:
    """Whether the commit must be repeated before the broker forgets it."""
    return assignment.tier_s is not None and now.mono_s - assignment.commit.sent_s >= REPEAT_S


def commit_position(assignment: Assignment, settling: Collection[int] = ()) -> CommitPosition:
    """What to commit of a partition now: its floor, and what is settled above it.

    Args:
        settling: open offsets to take for settled.
    """
    gaps = assignment.gap_set(settling)
    metadata, assignment.commit.metadata_length = encode(
        gaps, assignment.topic, assignment.partition, assignment.commit.longest_metadata
    )
    return CommitPosition(
        assignment.topic,
        assignment.partition,
        gaps.floor,
        metadata,
        assignment.epoch,
        assignment.tracker.settled_count() + len(settling),
        assignment.leader_epoch_at(gaps.floor),
    )


def foreseen(assignment: Assignment, settling: Collection[int]) -> tuple[CommitPosition, int]:
    """The commit as it will be once these open offsets are settled too.

    Returns:
        The commit, and the offset from which on it covers nothing: where not all of the gap set
        fits, its upper part is left out.
    """
    position = commit_position(assignment, settling)
    if not position.metadata:
        return position, position.position
    if assignment.commit.metadata_length <= assignment.commit.longest_metadata:
        return position, assignment.tracker.position
    runs = decode(position.metadata, position.topic, position.partition).runs
    return position, runs[-1][1] if runs else position.position
