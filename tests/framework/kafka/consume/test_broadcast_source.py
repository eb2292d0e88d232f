"""What a reader without a group knows of its log: the epoch at its start, and no topic id."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from ackfloor.kafka.consume import broadcast_source
from ackfloor.kafka.consume.broadcast_source import KafkaBroadcastSource
from tests.framework.kafka.wire import Listener, fresh, make_topic, options, produce, pump

pytestmark = [pytest.mark.kafka]


@pytest.fixture
def reader(bootstrap_servers: str) -> Iterator[KafkaBroadcastSource]:
    """Closed at the end."""
    source = KafkaBroadcastSource(options(bootstrap_servers), fresh("g"))
    yield source
    source.close()


def test_it_starts_at_the_end_with_the_epoch_there(
    bootstrap_servers: str, reader: KafkaBroadcastSource
) -> None:
    """So the client notices, too, that the log below was cut while nothing had been read."""
    topic, listener = make_topic(bootstrap_servers, 2), Listener()
    produce(bootstrap_servers, topic, 3, 1)
    reader.subscribe([topic], listener)
    pump(reader, lambda: listener.starts)
    assert [(s.partition, s.position, s.leader_epoch) for s in listener.starts] == [
        (0, 0, 0),
        (1, 3, 0),
    ]


def test_it_starts_where_no_broker_tells_the_epochs(
    bootstrap_servers: str, reader: KafkaBroadcastSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is slow to answer for all at once is asked for each; nothing is noticed then."""
    monkeypatch.setattr(broadcast_source, "TIPS_S", 0.0)
    topic, listener = make_topic(bootstrap_servers), Listener()
    produce(bootstrap_servers, topic, 3)
    reader.subscribe([topic], listener)
    pump(reader, lambda: listener.starts)
    [start] = listener.starts
    assert start.position == 3


def test_what_is_read_again_after_a_truncation_keeps_its_key(
    bootstrap_servers: str, reader: KafkaBroadcastSource
) -> None:
    """Its records have no topic id at first, and must not have one the second time."""
    topic, listener = make_topic(bootstrap_servers), Listener()
    reader.subscribe([topic], listener)
    pump(reader, lambda: listener.starts)
    produce(bootstrap_servers, topic, 3)
    pump(reader, lambda: len(listener.records) == 3)
    # As where the log ends below the position.
    reader._reading.seek(TopicPartition(topic, 0, 100))
    pump(reader, lambda: len(listener.records) == 6)
    assert listener.offsets == [0, 1, 2, 0, 1, 2]
    assert [(start.position, start.topic_id) for start in listener.starts] == [(0, ""), (0, "")]
