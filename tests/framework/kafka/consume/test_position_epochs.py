"""The epoch of a position to go on at: the client's own, or the one known from before."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer, TopicPartition

from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.kafka.consume.position_epochs import PositionEpochs
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.testing import KafkaCluster
from tests.framework.kafka.wire import Listener, fresh, make_topic, options, produce, pump

PLACE = ("orders", 0)
#: What a client says before its first record.
NOWHERE = -1001


class Client:
    """Says where it is."""

    def __init__(self) -> None:
        self.is_at = TopicPartition(*PLACE, NOWHERE)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The next position of each."""
        return [self.is_at for _ in partitions]

    def reads_to(self, offset: int, epoch: int) -> None:
        """It has fetched records."""
        self.is_at = TopicPartition(*PLACE, offset, leader_epoch=epoch)


def epoch_at(epochs: PositionEpochs, offset: int) -> int | None:
    """The epoch with which the client is told to go on at an offset."""
    target = epochs.with_epoch(TopicPartition(*PLACE, offset))
    assert (target.topic, target.partition, target.offset) == (*PLACE, offset)
    return target.leader_epoch


def test_it_is_that_of_what_was_fetched_and_outlives_a_seek() -> None:
    """The client forgets where it was when it is told where to go on."""
    client = Client()
    epochs = PositionEpochs(client.position)
    client.reads_to(7, 3)
    assert epoch_at(epochs, 7) == 3
    client.is_at = TopicPartition(*PLACE, NOWHERE)
    assert epoch_at(epochs, 7) == 3
    client.reads_to(9, 5)
    assert epoch_at(epochs, 9) == 5


def test_it_is_that_of_the_start_before_the_first_record() -> None:
    """A worker that has read nothing yet notices, too, what takes the place of what is below."""
    epochs = PositionEpochs(Client().position)
    epochs.began(PLACE, 30, 2)
    assert epoch_at(epochs, 30) == 2


@pytest.mark.parametrize("lower", [0, 6])
def test_it_does_for_a_lower_position_as_well(lower: int) -> None:
    """A partition that is read again from an earlier record: the epoch ends above it."""
    client = Client()
    client.reads_to(7, 3)
    assert epoch_at(PositionEpochs(client.position), lower) == 3


def test_a_higher_position_has_none() -> None:
    """What is between may be of a newer epoch: of a whole log the broker would say it was cut."""
    client = Client()
    epochs = PositionEpochs(client.position)
    client.reads_to(7, 3)
    assert epoch_at(epochs, 8) is None


def test_where_no_epoch_is_known_none_is_given() -> None:
    """Old records have none, nor has a log that was replaced since."""
    client = Client()
    epochs = PositionEpochs(client.position)
    assert epoch_at(epochs, 7) is None
    epochs.began(PLACE, 7, -1)
    assert epoch_at(epochs, 7) is None
    epochs.began(PLACE, 7, 2)
    epochs.forget([PLACE])
    assert epoch_at(epochs, 7) is None


@pytest.mark.kafka
def test_a_marker_of_a_newer_epoch_is_no_truncation() -> None:
    """It is the last thing below the position, and no record: the whole log would be read again."""
    with KafkaCluster() as cluster:
        servers = cluster.bootstrap_servers
        topic = make_topic(servers)
        producer = Producer({"bootstrap.servers": servers, "transactional.id": fresh("slot")})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, b"of the first leader")
        producer.flush(60)
        [node] = cluster.pids
        cluster.kill(node)
        cluster.start_nodes([node])
        producer.commit_transaction(60)
        source, listener = KafkaSource(options(servers), fresh("g")), Listener()
        source.subscribe([topic], listener)
        pump(source, lambda: source.positions() == {(topic, 0): 2})
        for _ in range(2):
            source.pause([Partition(topic, 0)])
            source.resume([(Partition(topic, 0), 2)])
        produce(servers, topic, 1)
        pump(source, lambda: len(listener.records) == 2)
        source.close()
    assert listener.offsets == [0, 2]
    assert len(listener.starts) == 1
    first, later = (record.leader_epoch() for record in listener.records)
    assert first is not None
    assert later is not None
    assert first < later
