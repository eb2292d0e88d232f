"""The index and pages of dead letters on a real broker: found, opened, disposed of, made anew."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from typer.testing import CliRunner

from ackfloor.core.records.envelope import Reason, write_headers
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor.dead_letters.kafka import disposition_reading, followed_topics
from ackfloor.dead_letters.kafka.followed_topics import FollowedTopic, FollowedTopics
from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor.kafka.topics.log_ranges import log_ranges
from ackfloor.kafka.topics.topic_ids import printed
from ackfloor.redrive import operator
from ackfloor_monitoring.console.index import follower
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from ackfloor_monitoring.console.reads import cluster_facts
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from tests.framework.kafka.wire import options, recreate, until
from tests.monitoring.console.page_text import words
from tests.monitoring.console.served_console import Console, console_of
from tests.redrive_stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("console")]

PAGE = "/c/kafka/dead-letters"


@pytest.fixture
def stage(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Three hundred dead letters of a group, and some at the end of a transaction."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(follower, "EVERY_S", 0.2)
    made = Stage(bootstrap_servers)
    made.bury([(b"k%d" % n, b'{"total": %d}' % n, [("own", b"1")]) for n in range(300)])
    made.bury_in_transaction(5)
    return made


@pytest.fixture
def console(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """A console whose index follows that broker, and which knows a run of the group."""
    monkeypatch.setattr(cluster_facts, "KAFKA_EVERY_S", 0.2)
    path, metrics = tmp_path / "kafka.sqlite", RunMetrics(stage.group, 1)
    index = DeadLetterIndex(options(stage.servers), path, Redaction(), 100_000)
    # So it asks for this group, and not for all on the broker.
    run = metrics.start("127.0.0.1:0")
    with index.following(), console_of(run, servers=stage.servers, index=index) as served:
        yield served
    metrics.stop()


def matches(console: Console, query: str) -> int:
    """How many dead letters match, as a page says; -1 while it says nothing."""
    found = re.search(r"([\d,]+) match", words(console.ask(f"{PAGE}?{query}").text))
    return int(found[1].replace(",", "")) if found else -1


def test_an_index_follows_its_broker(stage: Stage, console: Console) -> None:
    """What is written, disposed of, or in a topic that is created anew; one is read from there."""
    topic = f"list=1&topic={stage.dlq}"
    until(lambda: matches(console, topic) == 305)
    assert matches(console, f"{topic}&key=k7") == 1
    page = console.ask(f"{PAGE}?{topic}&error=shop.Boom").text
    command = shlex.split(html.unescape(re.findall("<code>(.*?)</code>", page)[0]))
    said = CliRunner().invoke(dlq_app, [*command[2:], "-o", "json"])
    assert said.exit_code == 0, said.output
    assert [each["would_send"] for each in json.loads(said.stdout)] == [305]

    partition, offset = stage.places[7]
    opened = console.ask(f"{PAGE}/{stage.dlq}/{partition}/{offset}")
    assert opened.status == 200
    text = html.unescape(words(opened.text))
    assert '{"total": 7}' in text
    assert f"written as {stage.source}/1/7" in text
    assert console.ask(f"{PAGE}/{stage.dlq}/{partition}/9999").status == 404
    # A source topic has no dead letters: what is in it is nobody's to see here.
    assert console.ask(f"{PAGE}/{stage.source}/0/0").status == 404

    discarded = CliRunner().invoke(dlq_app, ["discard", stage.dlq, "--key", "k7", "--yes"])
    assert discarded.exit_code == 0, discarded.output
    until(lambda: matches(console, topic) == 304)
    assert matches(console, f"{topic}&key=k7") == 0
    opened = console.ask(f"{PAGE}/{stage.dlq}/{partition}/{offset}")
    assert "it is not open" in words(opened.text)
    listed = json.loads(
        CliRunner().invoke(dlq_app, ["ls", stage.dlq, "-o", "json", "--limit", "999"]).stdout
    )
    assert len(listed) == 304

    stage.bury([(b"new", b"v", [])])
    until(lambda: matches(console, topic) == 305)
    recreate(stage.servers, stage.dlq)
    # No letter matches either while the topic is gone; the list names it once it is there again.
    until(lambda: f">{stage.dlq}<" in console.ask(PAGE).text and matches(console, topic) == 0)


def test_the_index_follows_retry_topics_and_who_disposed(stage: Stage, console: Console) -> None:
    """A record is found by its source place: in its retry topic, worked off, dead, redriven."""
    record = f"/c/kafka/records/{stage.source}/1"
    parked = stage.died._replace(
        origin_offset=7, attempt=2, reason=Reason.ERROR, not_before_ms=1, failed_at_ms=1
    )
    producer = Producer({"bootstrap.servers": stage.servers})
    producer.produce(stage.tier, b"v", b"k7", headers=write_headers(parked, []), partition=0)
    assert producer.flush(60) == 0

    def says(text: str, offset: int = 7) -> bool:
        return text in words(console.ask(f"{record}/{offset}").text)

    partition, offset = stage.places[7]
    died = f"written as {stage.dlq}/{partition}/{offset}"
    until(lambda: says(f"written as {stage.tier}/0/0") and says(died))
    assert says(f"It is in the dead-letter topic {stage.dlq}, and open")

    alone = stage.died._replace(
        origin_offset=900, attempt=2, reason=Reason.ERROR, not_before_ms=1, failed_at_ms=1
    )
    producer.produce(stage.tier, b"v", b"k", headers=write_headers(alone, []), partition=1)
    assert producer.flush(60) == 0
    commit(stage, 0)
    until(lambda: says(f"It waits in {stage.tier}", 900))
    commit(stage, 1)
    until(lambda: says(f"It is worked off: the group has settled it in {stage.tier}", 900))

    sent = CliRunner().invoke(dlq_app, ["replay", stage.dlq, "--key", "k7", "--yes"])
    assert sent.exit_code == 0, sent.output
    until(lambda: says(f"replayed to {stage.tier} by {operator()}, job"))
    until(lambda: says("redriven, once: written as") and says(f"It waits in {stage.tier}"))
    dead_letter = words(console.ask(f"{PAGE}/{stage.dlq}/{partition}/{offset}").text)
    assert f"replayed to {stage.tier} by {operator()}" in dead_letter
    # A retry topic that is made anew has other records at the same offsets.
    recreate(stage.servers, stage.tier)
    until(lambda: not says(f"written as {stage.tier}"))
    assert says(died)


def commit(stage: Stage, offset: int) -> None:
    """The group has settled what is below this in the second partition of its first retry topic."""
    consumer = Consumer({"bootstrap.servers": stage.servers, "group.id": stage.group})
    place = TopicPartition(stage.tier, 1, offset)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def test_a_look_says_whose_records_they_are_and_what_is_late(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source topic's id, as its records carry it; partitions whose broker does not answer."""
    asked = stage.admin.describe_topics(TopicCollection([stage.source]))[stage.source]
    topics, ranges = FollowedTopics(options(stage.servers)), log_ranges

    def of_stage() -> list[FollowedTopic]:
        return [each for each in topics.look()[1] if each.source == stage.source]

    whole = of_stage()
    assert {each.name for each in whole} >= {stage.dlq, stage.tier}
    assert {each.source_id for each in whole} == {printed(asked.result(60).topic_id)}
    assert {tuple(each.late) for each in whole} == {()}
    one = stage.dlq, 1
    monkeypatch.setattr(
        followed_topics,
        "log_ranges",
        lambda admin, places, s: ranges(admin, [p for p in places if p != one], s),
    )
    assert {each.name: each.late for each in of_stage() if each.late} == {stage.dlq: [1]}


def test_dispositions_are_read_where_there_are_new_ones(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at a cluster where nothing happens makes no client; each is read once."""
    made = list[object]()
    reading_consumer = disposition_reading.reading_consumer

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return reading_consumer(*arguments)

    monkeypatch.setattr(disposition_reading, "reading_consumer", counted)
    topics, disposed = FollowedTopics(options(stage.servers)), Disposed()

    def look() -> int:
        [topic] = [each for each in topics.look()[1] if each.name == stage.dlq]
        topics.note_disposed(topic, disposed)
        return len(disposed)

    assert (look(), look(), len(made)) == (0, 0, 0)
    for n, key in ((1, "k1"), (2, "k2")):
        done = CliRunner().invoke(dlq_app, ["discard", stage.dlq, "--key", key, "--yes"])
        assert done.exit_code == 0, done.output
        made.clear()
        assert (look(), look(), len(made)) == (n, n, 1)
