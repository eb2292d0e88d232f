"""What the look at topics says: which are gone, and which may be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ackfloor.kafka.topics import topic_ids
from ackfloor.kafka.topics.topic_ids import Described, TopicIds
from ackfloor.testing import KafkaCluster
from tests.framework.kafka.wire import fresh, make_topic, options, until

pytestmark = [pytest.mark.kafka]


def test_a_topic_that_is_gone_is_in_the_way_unless_nothing_new_goes_there(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was there is named at once, one that never was at the second look."""
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 0.1)
    source, spare = (make_topic(bootstrap_servers, 1) for _ in range(2))
    never = f"{fresh('never')}--g--dlq"
    ids = TopicIds(options(bootstrap_servers), {source, spare, never}, {spare})
    until(lambda: ids.look([]))
    assert ids.troubles == {}
    until(lambda: ids.look([]) and ids.troubles)
    assert ids.troubles.keys() == {never}
    trouble = ids.troubles[never]
    assert (trouble.cause, trouble.unwritable) == ("missing", True)
    assert trouble.text == "the topic does not exist; `ackfloor topics apply` makes the topic"
    known = ids.learn({source})[source].topic_id
    assert known
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_topics([source, spare]).values():
        future.result(60)
    until(lambda: ids.look([]) and ids.gone(source) and ids.gone(spare))
    assert ids.troubles.keys() == {never, source}
    assert ids.troubles[source].text == "the topic does not exist; create it"
    assert not ids.troubles[source].unwritable
    # Until a topic of another id is there, the records that were read have the id that they had.
    told = ids.learn({source})[source]
    assert (told.absent, told.topic_id) == (True, known)
    ids.close()


def test_the_next_look_comes_soon_where_it_is_asked_for(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something can't be written, or seems so."""
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 1e9)
    topic = make_topic(bootstrap_servers, 1)
    ids = TopicIds(options(bootstrap_servers), {topic})
    until(lambda: ids.look([]))
    ids.hurry()
    until(lambda: ids.look([]))
    ids.close()


@pytest.mark.e2e
@pytest.mark.xdist_group("cluster faults")
def test_the_broker_that_was_asked_may_be_gone_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client waits for the controller that it knew; a worker would never know the topic's id."""
    monkeypatch.setattr(topic_ids, "RENEW_S", 0.0)
    monkeypatch.setattr(topic_ids, "REQUEST_S", 2.0)
    with KafkaCluster(nodes=3, config={"broker.session.timeout.ms": "3000"}) as cluster:
        topic = make_topic(cluster.bootstrap_servers)
        ids = TopicIds(options(cluster.bootstrap_servers))
        assert ids._admin is not None
        cluster.kill(ids._admin.list_topics(timeout=60).controller_id)
        # Those of before may be answered yet.
        until(lambda: _described(ids, topic).silent)
        until(lambda: (found := _described(ids, topic)).topic_id and found.partitions == (0,))
        ids.close()


def _described(ids: TopicIds, topic: str) -> Described:
    """The next answer to a look."""
    found: list[Described] = []
    until(lambda: found.extend(ids.look([], (), {topic}).values()) or found)
    return found[-1]


def test_a_client_that_is_not_answered_is_replaced_once_it_is_old_enough(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at every question: all brokers may be away for hours."""
    made: list[object] = []
    quiet_admin = topic_ids.quiet_admin

    def counted(config: dict[str, object]) -> object:
        made.append(config)
        return quiet_admin(config)

    def unanswered(
        self: TopicIds, topics: Collection[str], within_s: float = 0.0
    ) -> Mapping[str, Future[Any]]:
        silence: Mapping[str, Future[Any]] = {each: Future() for each in topics}
        for future in silence.values():
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return silence

    monkeypatch.setattr(topic_ids, "LOOK_SOON_S", 0.0)
    monkeypatch.setattr(topic_ids, "quiet_admin", counted)
    monkeypatch.setattr(TopicIds, "_ask", unanswered)
    ids = TopicIds(options(bootstrap_servers))
    for _ in range(3):
        assert _described(ids, "orders").silent
    assert len(made) == 1
    monkeypatch.setattr(topic_ids, "RENEW_S", 0.0)
    assert _described(ids, "orders").silent
    assert len(made) == 2
    ids.close()
    assert _is_closed(ids)


def _is_closed(ids: TopicIds) -> bool:
    """Whether nothing asks any more, also not after an unanswered question."""
    ids._renew()
    return ids._admin is None
