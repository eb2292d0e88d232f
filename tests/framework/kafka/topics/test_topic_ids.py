"""What the look at topics says: which are gone, and which may be."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from ackfloor.kafka.topics import topic_ids
from ackfloor.kafka.topics.topic_ids import TopicIds
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
