"""Where logs begin and end, asked for together on a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from ackfloor.kafka.log_ranges import log_ranges
from tests.framework.kafka.wire import fresh, make_topic, produce

pytestmark = pytest.mark.kafka


def test_each_log_has_its_own_range_and_what_is_not_there_has_none(bootstrap_servers: str) -> None:
    """A topic or a partition that is gone keeps no other from being told."""
    few, more = make_topic(bootstrap_servers, 2), make_topic(bootstrap_servers)
    produce(bootstrap_servers, few, 3, 1)
    produce(bootstrap_servers, more, 5)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(more, 0, 2)]).values():
        future.result(60)
    known = {(few, 0): (0, 0), (few, 1): (0, 3), (more, 0): (2, 5)}
    unknown = [(few, 2), (fresh("nowhere"), 0)]
    assert log_ranges(admin, [*known, *unknown], 30.0) == known


def test_a_broker_that_does_not_answer_is_waited_for_that_long() -> None:
    """Nothing is told then, and nothing raised."""
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    assert log_ranges(admin, [("orders", 0)], 0.2) == {}
    assert log_ranges(admin, [], 30.0) == {}, "no question is asked"
