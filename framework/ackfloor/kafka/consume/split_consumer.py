"""SplitConsumer: reads a member's partitions with two clients, one of them for its retry topics.

A fetch names every partition that is read, idle or not, and is answered as soon as one of them has
a record. With a record each millisecond that is a thousand fetches a second, and each names the
idle partitions of six retry tiers: the broker then spends most of its work on reading names, and
its garbage collector stops everything for that. So a client of their own reads the tiers; its
fetches wait at the broker until a record is parked.

The group does not know the second client, the reader. The group's consumer is assigned all
partitions, reads those of other topics and commits for all; the reader belongs to no group and is
assigned its partitions here. Both belong to the thread that polls. A poll waits only for the
group's consumer and takes from the reader what is there, so the reader's topics must be of low
priority.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

#: Seconds that the brokers have to tell a tier's leaders, before anything is read.
LEARN_S = 2.0


class SplitConsumer:
    """Reads for two clients as if they were one.

    Args:
        group: the member of the group.
        reader: reads `tiers`; None where the group's consumer reads everything.
        tiers: the topics that the reader reads.
    """

    def __init__(
        self, group: Consumer, reader: Consumer | None = None, tiers: Collection[str] = ()
    ) -> None:
        self._group = group
        self._reader = reader
        self._tiers = frozenset(tiers if reader is not None else ())
        #: The paused partitions of tiers, as (topic, partition).
        self.resting: set[tuple[str, int]] = set()

    def learn(self, topics: Collection[str]) -> None:
        """Let the reader look up its topics among these, as the group's consumer does by itself.

        On its own it looks up a new topic only within a second, and added partitions only within
        minutes.
        """
        if self._reader is None:
            return
        with suppress(KafkaException):
            for tier in sorted(self._tiers.intersection(topics)):
                self._reader.list_topics(tier, timeout=LEARN_S)

    # What is read.

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these and nothing else."""
        groups, readers = self._split(partitions)
        self._group.assign(groups)
        if self._reader is not None:
            self._reader.assign(readers)

    def unassign(self) -> None:
        """Read nothing."""
        self.resting.clear()
        self._group.unassign()
        if self._reader is not None:
            self._reader.unassign()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these as well."""
        groups, readers = self._split(partitions)
        # Also with an empty list: for the group's consumer this ends the callback.
        self._group.incremental_assign(groups)
        if self._reader is not None and readers:
            self._reader.incremental_assign(readers)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop reading these."""
        self._wake(partitions)
        groups, readers = self._split(partitions)
        self._group.incremental_unassign(_of_those_read(self._group, groups))
        if self._reader is not None and (read := _of_those_read(self._reader, readers)):
            self._reader.incremental_unassign(read)

    def follow(self, came: list[TopicPartition]) -> None:
        """Let the reader read these as well, without the group's consumer."""
        assert self._reader is not None, "retry topics are read by a client of their own"
        self._reader.incremental_assign(came)

    def forget(self, gone: list[TopicPartition]) -> None:
        """Let the reader stop reading these, without the group's consumer."""
        assert self._reader is not None, "retry topics are read by a client of their own"
        self._wake(gone)
        self._reader.incremental_unassign(gone)

    def move(self, partitions: list[TopicPartition]) -> None:
        """Read these from other positions; outside of a callback.

        Only the client that reads them is called: the group's consumer would take any assignment,
        even an empty one, for the answer to a pending revoke.
        """
        for client, some in self._each(partitions):
            client.incremental_unassign(some)
            client.incremental_assign(some)

    def move_beside(
        self, partitions: list[TopicPartition], others: Sequence[TopicPartition]
    ) -> None:
        """The same for a client that is assigned everything at once: `others` are read, too."""
        groups, readers = self._split(others)
        for client, some in self._each(partitions):
            client.assign([*(groups if client is self._group else readers), *some])

    def _split(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Those that the group's consumer reads, and those that the reader reads."""
        groups = [partition for partition in partitions if partition.topic not in self._tiers]
        readers = [partition for partition in partitions if partition.topic in self._tiers]
        return groups, readers

    def reads(self, topic: str) -> Consumer:
        """The client that reads a topic."""
        if self._reader is not None and topic in self._tiers:
            return self._reader
        return self._group

    def _each(
        self, partitions: Sequence[TopicPartition]
    ) -> list[tuple[Consumer, list[TopicPartition]]]:
        """Each client with those it reads, without a client that reads none of them."""
        groups, readers = self._split(partitions)
        each = [(self._group, groups)] if groups else []
        return [*each, (self._reader, readers)] if self._reader is not None and readers else each

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching partitions."""
        self.resting.update((p.topic, p.partition) for p in partitions if p.topic in self._tiers)
        for client, some in self._each(partitions):
            client.pause(some)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Fetch partitions again."""
        self._wake(partitions)
        for client, some in self._each(partitions):
            client.resume(some)

    def _wake(self, partitions: list[TopicPartition]) -> None:
        """These are no longer paused: they are fetched again, or were taken away."""
        self.resting.difference_update((p.topic, p.partition) for p in partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Go on at another position."""
        self.reads(partition.topic).seek(partition)

    # What has been read.

    def poll(self, timeout_s: float) -> Message | None:
        """The group's next record if it comes in time, else one that the reader has queued."""
        found: Message | None = self._group.poll(timeout_s)
        # Not `or`: a record without a value has length 0 and is falsy.
        return found if found is not None or self._reader is None else self._reader.poll(0)

    def consume(self, most: int) -> list[Message]:
        """The queued records, at most so many of each client."""
        found: list[Message] = self._group.consume(most, 0)
        return found if self._reader is None else found + self._reader.consume(most, 0)

    def consume_tiers(self, most: int) -> list[Message]:
        """The reader's queued records."""
        return [] if self._reader is None else self._reader.consume(most, 0)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The next positions, in any order."""
        return [p for client, some in self._each(partitions) for p in client.position(some)]

    def known_end(self, partition: TopicPartition) -> int:
        """The last known end of a partition's log, negative if it is unknown."""
        end: int = self.reads(partition.topic).get_watermark_offsets(partition, cached=True)[1]
        return end

    def close(self) -> None:
        """Leave the group."""
        # In this order: leaving the group revokes partitions of the reader.
        self._group.close()
        if self._reader is not None:
            self._reader.close()


def _of_those_read(client: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The partitions among these that a client reads.

    The group also revokes partitions that a leaving member has declined, and a client refuses the
    whole call if it does not read one of them.
    """
    read = {(p.topic, p.partition) for p in client.assignment()} if partitions else set()
    return [p for p in partitions if (p.topic, p.partition) in read]
