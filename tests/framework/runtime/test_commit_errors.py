"""Every error that a commit can get: recorded, survived, and never taken for a success.

The errors are put into the client's answers; what a broker can be made to refuse for real is in
test_hostile_broker.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ackfloor import App, Delivery
from ackfloor.core.messages.events import CommitFailed
from ackfloor.core.records.record import CommitPosition
from ackfloor.kafka.consume.committer import AGAIN_S, Committer, Result
from tests.framework.runtime.on_kafka import Crowd, OnKafka, on_kafka

ERRORS = {
    name: getattr(KafkaError, name)
    for name in (
        "REBALANCE_IN_PROGRESS",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "FENCED_INSTANCE_ID",
        "INVALID_GROUP_ID",
        "GROUP_ID_NOT_FOUND",
        "OFFSET_METADATA_TOO_LARGE",
        "INVALID_COMMIT_OFFSET_SIZE",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "GROUP_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_ID",
        "UNSTABLE_OFFSET_COMMIT",
        "REQUEST_TIMED_OUT",
        "UNKNOWN",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_TRANSPORT",
        "_WAIT_COORD",
        "_STATE",
        "_DESTROY",
        "_NO_OFFSET",
    )
}
#: What a client tells of a member that the group knows.
MEMBER = b"CGMDv2:" + struct.pack("<i", 7) + b"billing\0member\0\1"
EVERY_ERROR = pytest.mark.parametrize("name", ERRORS)


@dataclass(slots=True)
class Answered:
    """A partition of an answer, as the client would have it; its own can't be given an error."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = None
    error: KafkaError | None = None


@dataclass(slots=True)
class Trouble:
    """What the next answer to a commit says in place of the truth."""

    whole: KafkaError | None = None
    each: KafkaError | None = None
    met: int = 0


@dataclass(slots=True)
class Scene:
    """A worker on a real broker whose answers to commits can be troubled."""

    crowd: Crowd
    worker: OnKafka
    trouble: Trouble
    handled: list[int] = field(default_factory=list)


@pytest.fixture(scope="module")
def scene(bootstrap_servers: str) -> Iterator[Scene]:
    """One worker for all the errors."""
    trouble = Trouble()
    original = Committer.on_commit

    def answered(self: Committer, error: KafkaError | None, found: list[Any]) -> None:
        if error is None and (trouble.whole or trouble.each):
            error, each = trouble.whole, trouble.each
            trouble.whole = trouble.each = None
            trouble.met += 1
            found = [Answered(p.topic, p.partition, p.offset, p.metadata, each) for p in found]
        original(self, error, found)

    with pytest.MonkeyPatch.context() as patched, on_kafka(bootstrap_servers) as crowd:
        patched.setattr(Committer, "on_commit", answered)
        app = App(crowd.place.group)
        handled: list[int] = []

        @app.handler(crowd.place.topic)
        async def handle(delivery: Delivery) -> None:
            handled.append(delivery.offset)

        worker = crowd.start(app)
        crowd.until(lambda: worker.floor(crowd.place.topic) == 0)
        yield Scene(crowd, worker, trouble, handled)


@pytest.mark.kafka
@pytest.mark.parametrize("where", ["whole", "each"])
@EVERY_ERROR
def test_a_commit_that_is_refused_is_recorded_and_made_again(
    scene: Scene, name: str, where: str
) -> None:
    """The whole request or one partition of it: work goes on, and the next commit is complete."""
    crowd, place, engine = scene.crowd, scene.crowd.place, scene.worker.loop.engine
    assignment = engine.assignments[place.topic, 0]
    crowd.until(lambda: not assignment.commit.outstanding)
    committed, told = assignment.commit.position, len(scene.worker.watcher.told(CommitFailed))
    met, epoch = scene.trouble.met, assignment.epoch
    seen: list[tuple[int, str]] = []

    def refused() -> bool:
        failed = scene.worker.watcher.told(CommitFailed)
        if len(failed) > told and not seen:
            seen.append((assignment.commit.position, scene.worker.faults()))
        return bool(seen)

    setattr(scene.trouble, where, KafkaError(ERRORS[name]))
    place.send()
    end = place.end(place.topic)
    crowd.until(refused, "the refusal")
    assert scene.trouble.met == met + 1
    assert seen[0][0] == committed, "counted as a success"
    assert f"commit {place.topic}: partition 0: " in seen[0][1]
    assert name.strip("_") in scene.worker.watcher.told(CommitFailed)[-1].reason
    crowd.until(lambda: assignment.commit.position == end, "the next commit")
    crowd.until(lambda: scene.worker.faults() == "")
    assert place.committed() == end
    assert engine.assignments[place.topic, 0].epoch == epoch
    assert scene.handled == list(range(end)), "a refused commit loses and repeats nothing"


class Refusing:
    """A client that refuses a commit at once, or can't say what the group has."""

    def __init__(self, *, commit: KafkaError | None = None, ask: Any = None) -> None:
        self._commit = commit
        self._ask = ask

    def consumer_group_metadata(self) -> bytes:
        return MEMBER

    def commit(self, **_: object) -> None:
        if self._commit is not None:
            raise KafkaException(self._commit)

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[Any]:
        assert timeout > 0
        if isinstance(self._ask, KafkaError):
            raise KafkaException(self._ask)
        return [Answered(p.topic, p.partition, -1001, None, self._ask["error"]) for p in partitions]


def told_by(consumer: Refusing, *, now: bool) -> list[Result]:
    """What a committer tells of one position."""
    told: list[Result] = []
    committer, wanted = Committer(told.extend), [CommitPosition("orders", 0, 5, "", 1)]
    client: Consumer = consumer  # type: ignore[assignment]
    if now:
        # Too short for a second attempt.
        committer.commit_now(client, wanted, 0.05)
    else:
        committer.commit(client, wanted)
    return told


@EVERY_ERROR
def test_a_commit_that_the_client_refuses_at_once_is_a_refused_commit(name: str) -> None:
    """Nothing is raised, whether or not the answer is waited for."""
    error = KafkaError(ERRORS[name])
    for now in (False, True):
        [(position, why)] = told_by(Refusing(commit=error), now=now)
        assert position.position == 5
        assert name.strip("_") in str(why)


def test_an_error_of_one_partition_is_that_partitions_alone() -> None:
    """The client tells it of the whole request as well, although the others are committed."""
    told: list[Result] = []
    committer = Committer(told.extend)
    client: Any = Refusing()
    wanted = [CommitPosition(topic, 0, 5, "", 1) for topic in ("orders", "orders--g--retry-1h")]
    committer.commit(client, wanted)
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    answer: list[Any] = [
        Answered("orders", 0, 5),
        Answered("orders--g--retry-1h", 0, 5, error=error),
    ]
    committer.on_commit(error, answer)
    assert [(p.topic, why is None) for p, why in told] == [
        ("orders", True),
        ("orders--g--retry-1h", False),
    ]


class Stale:
    """A group that refuses some commits, as it does while it gives a member a new epoch."""

    def __init__(self, refusals: int) -> None:
        self.sent: list[int] = []
        self._refusals = refusals
        self._has: list[TopicPartition] = []

    def consumer_group_metadata(self) -> bytes:
        return MEMBER

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self.sent.append(len(offsets))
        if len(self.sent) > self._refusals:
            self._has += offsets
        elif not self._has:
            # One of them is stored all the same.
            self._has = offsets[1:]

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        has = {p.partition: p for p in self._has}
        return [has.get(p.partition, TopicPartition(p.topic, p.partition)) for p in partitions]


@pytest.mark.parametrize(("refusals", "sent"), [(0, [2]), (1, [2, 1]), (2, [2, 1, 1])])
def test_a_last_commit_that_meets_a_new_epoch_is_sent_again(refusals: int, sent: list[int]) -> None:
    """KIP-848: what is refused in this moment is taken in the next, and no later one comes."""
    told: list[Result] = []
    group: Any = Stale(refusals)
    wanted = [CommitPosition("orders", n, 5, "", 1) for n in (0, 1)]
    Committer(told.extend).commit_now(group, wanted, 10.0)
    assert sorted(told) == [(position, None) for position in wanted]
    assert group.sent == sent


@pytest.mark.parametrize("bound_s", [0.05, 10.0])
def test_a_last_commit_is_not_sent_for_ever(bound_s: float) -> None:
    """Nor beyond its bound: then it is told that it was refused."""
    told: list[Result] = []
    group: Any = Stale(1_000)
    Committer(told.extend).commit_now(group, [CommitPosition("orders", 0, 5, "", 1)], bound_s)
    [(_, why)] = told
    assert "refused: the group has no position afterwards" in str(why)
    assert len(group.sent) == (1 if bound_s < 1 else 1 + len(AGAIN_S))


@EVERY_ERROR
def test_the_last_commit_before_a_partition_leaves_is_not_taken_for_confirmed(name: str) -> None:
    """Inside the revoke the group is asked: whatever keeps it from answering is a refusal."""
    error = KafkaError(ERRORS[name])
    for ask in (error, {"error": error}):
        [(position, why)] = told_by(Refusing(ask=ask), now=True)
        assert position.position == 5
        assert name.strip("_") in str(why)
