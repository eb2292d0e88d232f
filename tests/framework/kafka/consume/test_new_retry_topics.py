"""NewTiers: a retry topic that another worker has made is found, and ends this one."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ackfloor.core.parking.topic_names import tier_topic
from ackfloor.errors import TopicAppeared
from ackfloor.kafka.consume import new_retry_topics as new_tiers
from ackfloor.kafka.consume.copartitioned_retry_topics import CopartitionedRetryTopics
from ackfloor.kafka.consume.new_retry_topics import NewTiers
from ackfloor.kafka.consume.source import KafkaSource
from tests.framework.kafka.wire import Listener, fresh, make_topic, options, produce, pump

pytestmark = [pytest.mark.kafka]


def make(servers: str, name: str) -> str:
    """A topic of this name.

    Its client is gone afterwards: the test's frame outlives the test, together with the exception
    that it caught, and a client that is collected inside another one's callback aborts the process.
    """
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


@pytest.mark.parametrize("quarantines", [False, True])
def test_a_retry_topic_that_nobody_knew_ends_the_worker(
    bootstrap_servers: str,
    sources: list[KafkaSource],
    monkeypatch: pytest.MonkeyPatch,
    quarantines: bool,
) -> None:
    """Only one that it should read: of its group and source, slow enough, and not known.

    Of a source whose handler quarantines, a quick one as well.
    """
    monkeypatch.setattr(new_tiers, "BETWEEN_S", (0.05, 0.1))
    topic, group, other = make_topic(bootstrap_servers), fresh("g"), make_topic(bootstrap_servers)

    known = make(bootstrap_servers, tier_topic(topic, group, 60.0))
    source = KafkaSource(
        options(bootstrap_servers),
        group,
        low_priority_topics=[known],
        copartitioned=CopartitionedRetryTopics({known: topic}, {topic: 1, known: 1}),
        new_tiers=NewTiers(options(bootstrap_servers), group, [topic] if quarantines else [other]),
    )
    sources.append(source)
    listener = Listener()
    source.subscribe([topic, known], listener)
    make(bootstrap_servers, tier_topic(topic, fresh("g"), 60.0))
    make(bootstrap_servers, tier_topic(other, group, 60.0))
    if not quarantines:
        make(bootstrap_servers, tier_topic(topic, group, 0.5))
    produce(bootstrap_servers, topic, 3)
    pump(source, lambda: len(listener.records) == 3)
    pump(source, lambda: source._new_tiers is not None and source._new_tiers.looks > 5)
    delay_s = 0.5 if quarantines else 30.0
    new = make(bootstrap_servers, tier_topic(topic, group, delay_s))
    with pytest.raises(TopicAppeared, match=f"retry topic {new} is new") as ended:
        pump(source, lambda: False)
    assert ended.value.exit_code == 75
