"""Consumer groups in memory: who owns which partition, and what was committed.

A partition moves in two steps, as in Kafka's cooperative protocol: its owner gives it up inside
its own poll, and only then can the next one take it. An expelled member loses everything at once;
its next poll reports that.

Commits work as in Kafka: any live member may commit for any partition; an expelled one is refused
until it has joined again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ackfloor.core.records.record import TopicPartition


class Committed(NamedTuple):
    """What a group has stored for a partition: the next offset to read, and a text."""

    position: int
    metadata: str


class Member:
    """One consumer of a group.

    Attributes:
        topics: what it subscribes to.
        lost: partitions taken from it and not yet reported to it.
        expelled: whether it must join again.
        joins: how often it has joined; what it began before the last time is refused.
    """

    __slots__ = ("expelled", "joins", "lost", "topics")

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self.lost: list[TopicPartition] = []
        self.expelled = False
        self.joins = 0


class Generation(NamedTuple):
    """A member and what it owned at a moment.

    Kafka refuses the offsets of a transaction that is of an earlier generation, also where the
    partitions have come back to the same member since.
    """

    member: Member
    joins: int
    claims: Mapping[TopicPartition, int]


class Group:
    """The members of one group, what they own, and the committed positions."""

    __slots__ = ("_moving", "_owners", "_targets", "claims", "committed", "members")

    def __init__(self) -> None:
        #: How often each partition was taken over.
        self.claims: Counter[TopicPartition] = Counter()
        self.committed: dict[TopicPartition, Committed] = {}
        self.members: list[Member] = []
        self._owners: dict[TopicPartition, Member] = {}
        self._targets: dict[TopicPartition, Member] = {}
        #: Owned partitions that must be given up even if they come back to their owner.
        self._moving: set[TopicPartition] = set()

    def join(self, member: Member, partitions: Mapping[str, int]) -> None:
        """A member joins, or joins again."""
        member.expelled = False
        member.joins += 1
        self.members.append(member)
        self.plan(partitions)

    def leave(self, member: Member, partitions: Mapping[str, int]) -> None:
        """A member leaves (or is dead); what it owned is free."""
        if member in self.members:
            self.members.remove(member)
        self.release(self.owned(member))
        self.plan(partitions)

    def expel(self, member: Member, partitions: Mapping[str, int]) -> None:
        """A member's session timed out: its partitions go to others at once."""
        member.lost.extend(self.owned(member))
        member.expelled = True
        self.leave(member, partitions)

    def plan(self, partitions: Mapping[str, int]) -> None:
        """Work out who should own what: each topic in even ranges, in order of joining."""
        self._targets = {}
        for topic, count in partitions.items():
            takers = [member for member in self.members if topic in member.topics]
            for partition in range(count if takers else 0):
                owner = takers[partition * len(takers) // count]
                self._targets[TopicPartition(topic, partition)] = owner

    def rebalance(self) -> None:
        """Every partition is given up once and assigned anew."""
        self._moving.update(self._owners)

    def owned(self, member: Member) -> list[TopicPartition]:
        """What a member owns."""
        return [key for key, owner in self._owners.items() if owner is member]

    def generation(self, member: Member) -> Generation:
        """What a member is now."""
        return Generation(
            member, member.joins, {key: self.claims[key] for key in self.owned(member)}
        )

    def to_revoke(self, member: Member) -> list[TopicPartition]:
        """What a member owns and must give up."""
        return [
            key
            for key in self.owned(member)
            if key in self._moving or self._targets.get(key) is not member
        ]

    def to_assign(self, member: Member) -> list[TopicPartition]:
        """What is free and planned for a member."""
        return [
            key
            for key, target in self._targets.items()
            if target is member and key not in self._owners
        ]

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions have been given up."""
        for key in partitions:
            self._owners.pop(key, None)
            self._moving.discard(key)

    def claim(self, member: Member, partitions: Iterable[TopicPartition]) -> None:
        """A member takes partitions over."""
        for key in partitions:
            self._owners[key] = member
            self.claims[key] += 1
