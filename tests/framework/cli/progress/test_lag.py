"""`ackfloor lag` on a real broker: what Kafka counts, what is open, and what is odd."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from ackfloor.cli.main import cli
from ackfloor.cli.progress.lag import SUMMED, _for_people
from ackfloor.core.acks.gap_set import GapSet, encode, topic_hash
from ackfloor.core.acks.progress import Progress
from ackfloor.core.parking.topic_names import tier_topic
from ackfloor.errors import AckfloorError, KafkaUnreachable
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.inspection.group_progress import ProgressReader
from ackfloor.kafka.topics.topic_ids import TopicIds
from ackfloor.redrive import select
from tests.framework.cli.command import PATIENCE_S, environment
from tests.framework.kafka.wire import (
    Listener,
    commit,
    fresh,
    join,
    make_topic,
    options,
    produce,
    until,
)
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def here(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings are the environment's alone."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.chdir(tmp_path)


def ended(*arguments: str) -> Result:
    """The command, run to its end."""
    return CliRunner().invoke(cli, ["lag", *arguments])


def rows(*arguments: str) -> dict[tuple[str, int], dict[str, object]]:
    """What it prints as JSON, by topic and partition."""
    done = ended(*arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    return {(row["topic"], row["partition"]): row for row in json.loads(done.stdout)}


def committed(servers: str, group: str, *commits: TopicPartition) -> None:
    """Commit as anybody can."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=list(commits), asynchronous=False)
    consumer.close()


def metadata(servers: str, topic: str, partition: int, gaps: GapSet) -> str:
    """What a worker would write beside its floor."""
    ids = TopicIds(options(servers))
    topic_id = ids.learn([topic])[topic].topic_id
    ids.close()
    return encode(GapSet(gaps.floor, gaps.runs, topic_hash(topic_id), 0), topic, partition)[0]


def test_source_tiers_and_dead_letters_of_a_group(bootstrap_servers: str) -> None:
    """Gap sets and dispositions are settled; foreign metadata is not believed."""
    stage = Stage(bootstrap_servers)
    for partition in (0, 1):
        produce(bootstrap_servers, stage.source, 10, partition)
    produce(bootstrap_servers, stage.tier, 3)
    stage.bury([(b"k%d" % n, b"{}", []) for n in range(5)])
    assert stage.job().run(select(stage.places[:2])).sent == 2
    gaps = metadata(bootstrap_servers, stage.source, 0, GapSet(4, [(5, 7), (8, 9)]))
    committed(
        bootstrap_servers,
        stage.group,
        TopicPartition(stage.source, 0, 4, metadata=gaps),
        TopicPartition(stage.source, 1, 10, metadata="somebody else's"),
        TopicPartition(stage.tier, 0, 1),
    )
    found = rows("--group", stage.group)
    seen = found[stage.source, 0]
    assert [seen[name] for name in ("kind", "floor", "end", "lag", "settled", "open")] == [
        "source", 4, 10, 6, 3, 3,
    ]  # fmt: skip
    assert (seen["owner"], seen["note"]) == ("", "")
    other = found[stage.source, 1]
    assert (other["lag"], other["open"]) == (0, 0)
    assert "metadata is ignored: it was written by another tool" in str(other["note"])
    tier = found[stage.tier, 0]
    assert (tier["kind"], tier["floor"]) == ("retry", 1)
    assert tier["open"] == tier["lag"]
    assert int(str(tier["lag"])) >= 2
    assert found[stage.tier, 1]["note"] == "no commit yet"
    letters = [row for (topic, _), row in found.items() if topic == stage.dlq]
    assert sum(int(str(row["open"])) for row in letters) == 3
    assert sum(int(str(row["settled"])) for row in letters) == 2
    assert {row["floor"] for row in letters} == {None}
    assert "has no members" in ended("--group", stage.group).stderr
    assert [topic for topic, _ in found][:2] == [stage.source] * 2
    reader = ProgressReader(options(bootstrap_servers))
    assert stage.group in reader.groups()
    reader.close()


@pytest.mark.parametrize("delay_s", [60.0, 0.1])
def test_who_has_the_source_has_its_retry_topics(bootstrap_servers: str, delay_s: float) -> None:
    """The group does not share them out; also where they have more partitions than the source."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("members")
    tier = tier_topic(topic, group, delay_s)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(tier, 3, 1)])[tier].result(60)
    sources: list[KafkaSource] = []
    try:
        for name in ("first", "second"):
            sources.append(KafkaSource(options(bootstrap_servers, **{"client.id": name}), group))
            sources[-1].subscribe([topic], Listener())

        def shared() -> bool:
            for source in sources:
                source.poll(0.05)
            return all(len(source._membership.partitions()) == 1 for source in sources)

        until(shared)
        seen = rows("--group", group)
        owners = {place: str(row["owner"]).partition("@")[0] for place, row in seen.items()}
        assert {owners[topic, 0], owners[topic, 1]} == {"first", "second"}
        for number in range(3):
            assert owners[tier, number] == owners[topic, number % 2]
    finally:
        for source in sources:
            source.close()


def test_who_has_a_retry_topic_that_the_group_shares_out_is_told(bootstrap_servers: str) -> None:
    """Nobody has a partition of it that nobody was given, whoever has the source's."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("members")
    tier = tier_topic(topic, group, 0.1)
    place = (tier, 1)
    owners = {(topic, 0): "first", (topic, 1): "first", (tier, 0): "second"}
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(tier, 2, 1)])[tier].result(60)
    reader = ProgressReader(options(bootstrap_servers))
    try:
        found = {(p.topic, p.partition): p.owner for p in reader.of(group, owners)}
    finally:
        reader.close()
    assert found == {**owners, place: ""}


def test_who_has_a_partition_is_told_while_somebody_has(bootstrap_servers: str) -> None:
    """Also of a group that another tool works for: it has no topics of ours."""
    topic, group = make_topic(bootstrap_servers), fresh("members")
    produce(bootstrap_servers, topic, 2)
    sources: list[KafkaSource] = []
    try:
        join(sources, bootstrap_servers, group, topic, **{"client.id": "somebody"})
        (seen,) = rows("--group", group).values()
        assert str(seen["owner"]).startswith("somebody@")
        assert (seen["kind"], seen["lag"], seen["note"]) == ("source", None, "no commit yet")
        commit(sources[0], topic, 1)
    finally:
        for source in sources:
            source.close()
    (seen,) = rows("--group", group).values()
    assert (seen["owner"], seen["lag"], seen["open"]) == ("", 1, 1)


def test_a_topic_that_was_made_anew_has_settled_nothing(bootstrap_servers: str) -> None:
    """A commit that speaks of the earlier one is not believed; a floor beyond the end is odd."""
    topic, group = make_topic(bootstrap_servers), fresh("anew")
    produce(bootstrap_servers, topic, 5)
    text, _ = encode(GapSet(1, [(2, 4)], topic_hash("another"), 0), topic, 0)
    committed(bootstrap_servers, group, TopicPartition(topic, 0, 1, metadata=text))
    (seen,) = rows("--group", group).values()
    assert (seen["lag"], seen["settled"], seen["open"]) == (4, 0, 4)
    assert "it belongs to an earlier topic of this name" in str(seen["note"])
    committed(bootstrap_servers, group, TopicPartition(topic, 0, 9))
    (seen,) = rows("--group", group).values()
    assert (seen["lag"], seen["open"]) == (0, 0)
    assert "4 beyond the log's end" in str(seen["note"])


def test_a_group_that_nobody_knows_is_refused() -> None:
    """A misspelt name must not look like no lag."""
    done = ended("--group", fresh("nobody"))
    assert isinstance(done.exception, AckfloorError)
    assert done.exception.exit_code == 2
    assert "nothing is known of group" in str(done.exception)


def test_without_a_broker_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bounded time, with exit code 4."""
    monkeypatch.setattr("ackfloor.kafka.client.admin_client.PATIENCE_S", 0.5)
    done = ended("--group", "g", "--bootstrap-servers", "127.0.0.1:1")
    assert isinstance(done.exception, KafkaUnreachable)
    assert done.exception.exit_code == 4


@pytest.fixture
def watching(bootstrap_servers: str, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A watch in a process of its own, and the topic it looks at."""
    topic, group = make_topic(bootstrap_servers), fresh("watched")
    committed(bootstrap_servers, group, TopicPartition(topic, 0, 0))
    words = ["lag", "--group", group, "--watch", "-o", "jsonl"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ackfloor.cli.main", *words],
        cwd=tmp_path,
        env=environment({"ACKFLOOR_BOOTSTRAP_SERVERS": bootstrap_servers, "PYTHONUNBUFFERED": "1"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, topic
    finally:
        process.kill()
        process.communicate()


def test_a_watch_goes_on_until_it_is_told_to_stop(
    watching: tuple[subprocess.Popen[str], str], bootstrap_servers: str
) -> None:
    """Each look is a line a partition; Ctrl-C is its ordinary end."""
    process, topic = watching
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["open"] == 0
    produce(bootstrap_servers, topic, 3)
    while json.loads(process.stdout.readline())["open"] != 3:
        pass
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    assert process.wait(PATIENCE_S) == 0


def test_only_what_can_go_on_is_watched() -> None:
    """A JSON document would never end."""
    done = ended("--group", fresh("g"), "--watch", "-o", "json")
    assert done.exit_code == 2
    assert "-o table or jsonl" in done.stderr


def test_a_table_shows_what_is_behind_and_the_totals(bootstrap_servers: str) -> None:
    """Totals are of all that was asked for; JSON has every row and no totals."""
    topic, group = make_topic(bootstrap_servers, 3), fresh("totals")
    _make_tier(bootstrap_servers, topic, group)
    for partition, count in enumerate((5, 2, 4)):
        produce(bootstrap_servers, topic, count, partition)
    floors = [TopicPartition(topic, partition, at) for partition, at in enumerate((0, 2, 3))]
    committed(bootstrap_servers, group, *floors)
    group_of = ("--group", group)
    short = _cells(ended(topic, *group_of))
    assert [row[2:3] for row in short] == [["0"], ["2"], ["-"]]
    assert short[-1][:2] == [group, "total"]
    assert "6" in short[-1]
    assert [row[2] for row in _cells(ended(topic, "--all", *group_of))] == ["0", "1", "2", "-"]
    assert [row[2] for row in _cells(ended(topic, "--min-lag", "2", *group_of))] == ["0", "-"]
    (alone,) = _cells(ended(f"{topic}/1", *group_of))
    assert alone[:2] == [group, "total"]
    assert list(rows(topic, *group_of)) == [(topic, partition) for partition in range(3)]
    assert list(rows(topic, "--min-lag", "2", *group_of)) == [(topic, 0)]
    assert list(rows(f"{topic}/2", *group_of)) == [(topic, 2)]
    assert "no partition 7" in str(ended(f"{topic}/7", *group_of).exception)


def _make_tier(servers: str, topic: str, group: str) -> None:
    """A retry topic, by which the group is found."""
    admin, tier = AdminClient({"bootstrap.servers": servers}), tier_topic(topic, group, 60.0)
    admin.create_topics([NewTopic(tier, 1, 1)])[tier].result(60)
    until(lambda: tier in admin.list_topics(timeout=60).topics)


def _cells(done: Result) -> list[list[str]]:
    """The rows of a table, without its head."""
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    return [line for line in lines[1:] if not set("".join(line)) <= {"─", " "}]


@pytest.mark.parametrize("command", ["lag", "acks"])
def test_only_groups_of_the_named_topic_are_told_of(bootstrap_servers: str, command: str) -> None:
    """Another group without members is no matter of who asks for a topic."""
    names = []
    for _ in range(2):
        topic, group = make_topic(bootstrap_servers, 1), fresh("asked")
        _make_tier(bootstrap_servers, topic, group)
        committed(bootstrap_servers, group, TopicPartition(topic, 0, 0))
        names.append((topic, group))
    (topic, asked), (_, other) = names
    done = CliRunner().invoke(cli, [command, topic, "-o", "json"])
    assert {row["group"] for row in json.loads(done.stdout)} == {asked}
    assert f"group {asked} has no members" in done.stderr
    assert other not in done.output


def test_several_groups_have_a_total_of_all() -> None:
    """Each group its own, and a last one."""
    seen = [Progress(group, "t", 0, "source", 0, 5, floor=3) for group in ("a", "b")]
    *_, first, second, last = _for_people(seen, every=False)
    assert [(row["group"], row["lag"]) for row in (first, second)] == [("a", 2), ("b", 2)]
    assert (last["group"], last["topic"], last["lag"], last["open"]) == (
        "all groups",
        "total",
        4,
        4,
    )
    assert _for_people([], every=False) == []


def test_rows_of_a_table_add_up_to_its_total() -> None:
    """Settled dead letters too, where none is open."""
    seen = [
        Progress("g", "t--g--dlq", 0, "dlq", 0, 3, disposed=3),
        Progress("g", "t--g--dlq", 1, "dlq", 0, 0),
        Progress("g", "t", 0, "source", 0, 5, floor=3),
    ]
    *shown, total = _for_people(seen, every=False)
    assert [(row["topic"], row["settled"]) for row in shown] == [("t--g--dlq", 3), ("t", 0)]
    for name in SUMMED:
        assert total[name] == sum(row[name] or 0 for row in shown), name
