"""Where logs begin and end, asked for together on a real broker."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ackfloor.kafka.inspection.group_progress import ProgressReader
from ackfloor.kafka.topics.log_ranges import log_ranges
from tests.framework.kafka.wire import fresh, make_topic, options, produce

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


#: Asks again and again for so short a time that its end and the answer meet.
IMPATIENT = """
import sys
from confluent_kafka.admin import AdminClient
from ackfloor.kafka.topics.log_ranges import log_tips

for _ in range(150):
    admin = AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0})
    log_tips(admin, [(sys.argv[2], 0), (sys.argv[2], 1)], 0.002)
"""


def test_an_answer_that_comes_when_its_time_is_over_ends_no_process(bootstrap_servers: str) -> None:
    """librdkafka frees it twice where a request's own time ends in that moment."""
    topic = make_topic(bootstrap_servers, 2)
    command = [sys.executable, "-c", IMPATIENT, bootstrap_servers, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


class Quiet:
    """An administrative client as it is where one broker of two does not answer, at first."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []

    def list_offsets(
        self, asked: dict[TopicPartition, OffsetSpec], **_: object
    ) -> dict[TopicPartition, Future[SimpleNamespace]]:
        """Of the silent one's partitions no error is told, but an offset that is none."""
        self.asked.append({partition.topic for partition in asked})
        answers = {}
        for partition in asked:
            silent = partition.topic == "silent" and len(self.asked) <= 2
            answers[partition] = future = Future[SimpleNamespace]()
            future.set_result(SimpleNamespace(offset=OFFSET_INVALID if silent else 7))
        return answers


def test_an_offset_that_is_none_is_no_end_of_a_log() -> None:
    """Taken for one, everything would be read from nowhere; it is asked for once more."""
    admin = Quiet()
    ranges = log_ranges(cast("AdminClient", admin), [("told", 0), ("silent", 0)], 1.0)
    assert ranges == {("told", 0): (7, 7), ("silent", 0): (7, 7)}
    assert admin.asked == [{"told", "silent"}, {"told", "silent"}, {"silent"}, {"silent"}]


def test_nor_is_it_one_for_who_looks_at_a_group() -> None:
    """What is not known is said to be not known."""
    reader = ProgressReader(options("127.0.0.1:1"))
    reader._admin = cast("AdminClient", Quiet())
    assert reader._ends([("told", 0), ("silent", 0)], OffsetSpec.latest()) == {("told", 0): 7}
    reader.close()
