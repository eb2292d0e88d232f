"""SplitConsumer: what a group's consumer reads, its retry topics through a client of their own.

A fetch names every partition that is read, whether or not there is something in it, and is
answered as soon as one of them has a record. Of a topic with a record each millisecond that is a
thousand fetches a second, and the idle partitions of six retry tiers are named in each: most of
what the broker does then is to read names and throw them away, and its garbage collector stops
everything for that. So the tiers have a client of their own, whose fetches wait at the broker
until something was parked.

The group knows nothing of it. Its consumer is given all partitions, reads those of other topics
and commits for all; the reader belongs to no group and is told what to read. Both belong to the
thread that polls. Only the group's consumer is waited for: the reader is asked whenever the
thread comes by, so its topics must be in no hurry.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

#: Seconds that the brokers have to say where a tier is, before anything is read.
LEARN_S = 2.0


class SplitConsumer:
    """Reads for two clients as if they were one.

    Args:
        group: the member of the group.
        reader: reads `tiers`; None where the group's consumer reads everything.
        tiers: the topics that are the reader's.
    """

    def __init__(
        self, group: Consumer, reader: Consumer | None = None, tiers: Collection[str] = ()
    ) -> None:
        self._group = group
        self._reader = reader
        self._tiers = frozenset(tiers if reader is not None else ())
        #: Of the tiers, what is not fetched at the moment, as (topic, partition).
        self.resting: set[tuple[str, int]] = set()

    def learn(self, topics: Collection[str]) -> None:
        """Let the reader look up its topics among these, as the group's consumer does by itself.

        It would look for one that it is given for the first time within a second, and not before;
        for partitions that were added, within minutes.
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
        # Also with nothing: the group's consumer takes it for the end of the callback.
        self._group.incremental_assign(groups)
        if self._reader is not None and readers:
            self._reader.incremental_assign(readers)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these no more."""
        self._wake(partitions)
        groups, readers = self._split(partitions)
        self._group.incremental_unassign(_of_those_read(self._group, groups))
        if self._reader is not None and (read := _of_those_read(self._reader, readers)):
            self._reader.incremental_unassign(read)

    def follow(self, came: list[TopicPartition]) -> None:
        """Read these of the reader's as well; the group's consumer is told nothing."""
        assert self._reader is not None, "what follows is read by a client of its own"
        self._reader.incremental_assign(came)

    def forget(self, gone: list[TopicPartition]) -> None:
        """Read these of the reader's no more; the group's consumer is told nothing."""
        assert self._reader is not None, "what follows is read by a client of its own"
        self._wake(gone)
        self._reader.incremental_unassign(gone)

    def move(self, partitions: list[TopicPartition]) -> None:
        """Read these from other positions; outside of a callback.

        By the client that reads them alone: the group's consumer would take any assignment, be it
        empty, for the answer to a revoke that waits to be told.
        """
        for client, some in self._each(partitions):
            client.incremental_unassign(some)
            client.incremental_assign(some)

    def move_beside(
        self, partitions: list[TopicPartition], others: Sequence[TopicPartition]
    ) -> None:
        """The same where a client takes all its partitions at once: `others` are read, too."""
        groups, readers = self._split(others)
        for client, some in self._each(partitions):
            client.assign([*(groups if client is self._group else readers), *some])

    def _split(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """What the group's consumer reads of these, and what the reader does."""
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
        """Each client with what it reads of these; left out where that is nothing."""
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
        """These rest no longer: they are fetched again, or are not ours any more."""
        self.resting.difference_update((p.topic, p.partition) for p in partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Go on at another position."""
        self.reads(partition.topic).seek(partition)

    # What has been read.

    def poll(self, timeout_s: float) -> Message | None:
        """The group's next record where it comes in time, else the reader's where it is here."""
        found: Message | None = self._group.poll(timeout_s)
        # Not `or`: a record without a value has no length, and would be passed over.
        return found if found is not None or self._reader is None else self._reader.poll(0)

    def consume(self, most: int) -> list[Message]:
        """What is here, of each client at most so many records."""
        found: list[Message] = self._group.consume(most, 0)
        return found if self._reader is None else found + self._reader.consume(most, 0)

    def consume_tiers(self, most: int) -> list[Message]:
        """What is here of the tiers that are read by a client of their own."""
        return [] if self._reader is None else self._reader.consume(most, 0)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The next positions, in any order."""
        return [p for client, some in self._each(partitions) for p in client.position(some)]

    def known_end(self, partition: TopicPartition) -> int:
        """Where the log of a partition ends as far as is known, else negative."""
        end: int = self.reads(partition.topic).get_watermark_offsets(partition, cached=True)[1]
        return end

    def close(self) -> None:
        """Leave the group."""
        # In this order: leaving the group takes partitions from the reader.
        self._group.close()
        if self._reader is not None:
            self._reader.close()


def _of_those_read(client: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The partitions among these that a client reads.

    The group takes back what a member that leaves has declined as well, and a client refuses all
    of it where one is not read.
    """
    read = {(p.topic, p.partition) for p in client.assignment()} if partitions else set()
    return [p for p in partitions if (p.topic, p.partition) in read]
