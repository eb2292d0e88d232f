"""The record itself on its page, where it is in flight: for whom, how much, and from where."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import KafkaUnreachable, RedriveRefused
from ackfloor.observe import BlockedLanes
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.access.shares import Busy
from ackfloor_monitoring.console.pages.records import source_record
from ackfloor_monitoring.console.reads.one_dead_letter import one_source_record
from tests.framework.kafka.wire import options
from tests.monitoring.console.page_text import SCRIPT, Tags, words
from tests.monitoring.console.shown_cluster import Kafka, Run
from tests.monitoring.console.test_partition_pages import has, in_flight
from tests.monitoring.console.test_record_page import Serve, quick, serve, source
from tests.monitoring.samples import HANDLER, NOW_MS, partition
from tests.redrive_stage import Stage

__all__ = ["quick", "serve", "source"]


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> dict[int, DeadLetter]:
    """Offset -> what is there in the first partition of the source topic; a test writes it."""
    found: dict[int, DeadLetter] = {}

    def one(_options: object, topic: str, partition: int, offset: int) -> DeadLetter:
        assert (topic, partition) == ("orders", 0)
        if offset not in found:
            raise RedriveRefused(f"orders/0/{offset} is not there: removed by retention")
        return found[offset]

    monkeypatch.setattr(source_record, "one_source_record", one)
    return found


def written(offset: int, **more: Any) -> DeadLetter:
    """A record of a source topic."""
    headers = [("shop", b"7"), ("auth", b"Bearer s3cret")]
    return replace(DeadLetter("orders", 0, offset, b"k-1", b'{"total": 4711}', headers), **more)


def test_what_is_in_flight_is_shown(
    serve: Serve, run: Run, kafka: Kafka, orders: dict[int, DeadLetter], tmp_path: Path
) -> None:
    """Read when the page is loaded, for readers, as [redaction] leaves it; not what is settled."""
    kafka.looks = []
    rule = '[redaction]\nheaders = ["auth"]\n'
    (tmp_path / "ackfloor.toml").write_text(rule)
    orders |= {offset: written(offset) for offset in (7, 8, 9)}
    lane = replace(HANDLER.blocked.oldest[0], topic="orders", partition=0, offset=8)
    has(
        run, partition(), oldest=(in_flight(7, 5.0, 1.0),), running=1,
        blocked=BlockedLanes(1, 5, NOW_MS, (lane,)),
    )  # fmt: skip
    secrets = ("k-1", "4711", "shop", "s3cret")
    for role, shown in ((Role.reader, 3), (Role.viewer, 0)):
        with serve(run.listen, role=role) as console:
            for offset in (7, 8):
                page = console.ask(f"/c/kafka/records/orders/0/{offset}").text
                assert [each in page for each in secrets] == [bool(shown)] * 3 + [False], role
                assert ("that takes a reader" in page) is not bool(shown)
            assert not any(
                each in console.ask("/c/kafka/records/orders/0/9").text for each in secrets
            )
            with console.events("/c/kafka/records/orders/0/7/events") as events:
                assert not any(each in next(events)[1] for each in secrets)


def test_a_record_in_flight_is_shown_in_part(
    serve: Serve, run: Run, kafka: Kafka, orders: dict[int, DeadLetter]
) -> None:
    """A large one to its limits; no tombstone, no script, and nothing that retention removed."""
    kafka.looks = []
    running = tuple(in_flight(offset, 5.0, 1.0) for offset in (5, 6, 7, 8))
    has(run, partition(), oldest=running, running=4)
    many = [(f"h{n}", b"x" * 600) for n in range(60)]
    orders |= {
        5: written(5, key=b"k" * 600, value=b"v" * 30_000, headers=many),
        6: written(6, key=None, value=None, headers=None),
        7: written(7, key=SCRIPT.encode(), value=SCRIPT.encode(), headers=[(SCRIPT, SCRIPT)]),
    }
    with serve(run.listen) as console:
        pages = [console.ask(f"/c/kafka/records/orders/0/{n}").text for n in (5, 6, 7, 8)]
    large, tombstone, script, gone = (words(page) for page in pages)
    assert f"{'k' * 500} … (600 characters)" in large
    assert "10 more headers are not shown." in large
    assert "10,000 more characters are not shown." in large
    assert len(pages[0]) < 120_000
    assert "None: a tombstone." in tombstone
    assert "its headers can't be read" in html.unescape(tombstone)
    assert not Tags(pages[2]).scripts
    assert "It is in flight" in script
    said = html.unescape(gone)
    assert "can't be shown: orders/0/8 is not there: removed by retention" in said
    assert "It is in flight" in said


def test_a_source_that_is_not_read_in_time_leaves_the_rest_of_the_page(
    serve: Serve, run: Run, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is now is known all the same; so it is where the broker says nothing."""
    kafka.looks = []
    has(run, partition(), oldest=(in_flight(7, 5.0, 1.0),), running=1)
    for error in (Busy(504, "no answer came in time"), KafkaUnreachable("no broker has answered")):

        def fails(*_: object, error: Exception = error) -> DeadLetter:
            raise error

        monkeypatch.setattr(source_record, "one_source_record", fails)
        with serve(run.listen) as console:
            page = html.unescape(words(console.ask("/c/kafka/records/orders/0/7").text))
        assert "It is in flight" in page
        assert f"can't be shown: {error}" in page


@pytest.mark.kafka
def test_a_record_is_read_from_its_source_topic(bootstrap_servers: str) -> None:
    """Byte for byte; one that is not there any more says so."""
    stage = Stage(bootstrap_servers)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for value in (b"first", b"second"):
        producer.produce(stage.source, value, b"k", headers=[("shop", b"7")], partition=1)
    assert producer.flush(60) == 0
    found = one_source_record(options(bootstrap_servers), stage.source, 1, 1)
    assert (found.key, found.value, found.headers) == (b"k", b"second", [("shop", b"7")])
    [future] = stage.admin.delete_records([TopicPartition(stage.source, 1, 2)]).values()
    future.result(60)
    for offset in (0, 1, 2):
        with pytest.raises(RedriveRefused, match="is not there: removed by retention, or never"):
            one_source_record(options(bootstrap_servers), stage.source, 1, offset)
