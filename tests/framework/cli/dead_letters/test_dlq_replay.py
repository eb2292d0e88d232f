"""`ackfloor dlq replay` on a real broker: what is sent, what is left, what is refused in words."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from socket import gethostname

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from ackfloor.core.records.envelope import read_envelope
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor.dead_letters.commands.dlq_replay import Replay
from ackfloor.dead_letters.commands.selection import Places
from ackfloor.dead_letters.kafka.dead_letter_topic import DeadLetterTopics
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState
from ackfloor.dead_letters.rules.redrive_tally import Tally
from ackfloor.errors import RedriveBusy, RedriveRefused
from ackfloor.redrive import select
from tests.framework.kafka.wire import fresh, options, recreate
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Six dead letters of one cause, two of another, one of another tool."""
    stage.bury([(b"k%d" % n, b"v%d" % n, [("tenant", b"a" if n else b"b")]) for n in range(6)])
    stage.died = stage.died._replace(
        error_type="shop.Bad", error_fingerprint="f00d", attempt=2, handler="ship"
    )
    stage.bury([(b"bad", b"x", [])] * 2)
    stage.bury([(b"foreign", b"x", [("h", b"1")])], foreign=True)
    return stage


def dlq(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(dlq_app, list(arguments))


def replay(stage: Stage, *arguments: str) -> Result:
    """`dlq replay` of the stage's topic."""
    return dlq("replay", stage.dlq, *arguments)


def keys(stage: Stage, topic: str = "") -> list[str]:
    """The keys of what is in the tier, or in another topic."""
    return sorted(bytes(m.key() or b"").decode() for m in stage.read(topic or stage.tier))  # type: ignore[arg-type]


def jobs(stage: Stage) -> list[dict[str, object]]:
    """What `dlq jobs` says."""
    rows: list[dict[str, object]] = json.loads(dlq("jobs", stage.dlq, "-o", "json").stdout)
    return rows


def test_it_shows_asks_and_sends_once(stage: Stage) -> None:
    """A dry run, no confirmation, a part, the rest, and again."""
    dry = replay(stage, "--error", "Boom", "--dry-run")
    assert f"{stage.dlq} to {stage.tier}: 6 would be sent" in dry.stdout
    assert "bill, exhausted, shop.Boom" in dry.stdout
    unasked = replay(stage, "--error", "Boom")
    assert (unasked.exit_code, stage.read(stage.tier)) == (2, [])
    assert "6 dead letters would be sent: confirm with --yes" in unasked.stderr
    some = replay(stage, "--error", "Boom", "--max", "4", "--rate", "6000/m", "--yes", "-o", "json")
    [told] = json.loads(some.stdout)
    assert (some.exit_code, told["sent"], told["target"]) == (0, 4, stage.tier)
    rest = replay(stage, "--error", "Boom", "--yes")
    assert (rest.exit_code, stage.sent_once()) == (0, 6)
    assert "2 sent" in rest.stdout
    assert "4  left out: replayed, discarded or archived before" in rest.stdout
    again = replay(stage, "--error", "Boom", "--yes")
    assert (again.exit_code, "0 sent" in again.stdout) == (0, True)
    assert [(row["state"], row["done"], row["of"]) for row in jobs(stage)] == [
        ("done", 2, 2),
        ("done", 4, 4),
    ]
    sent = {read_envelope(m.headers()).replays for m in stage.read(stage.tier)}
    assert sent == {1}


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        (["--key", "k3"], ["k3"]),
        (["--header", "tenant=b"], ["k0"]),
        (["--header", "tenant", "--attempts", "3+"], [f"k{n}" for n in range(6)]),
        (["--attempts", "1-2"], ["bad", "bad"]),
        (["--error", "f00d", "--handler", "ship", "--reason", "exhausted"], ["bad", "bad"]),
        (["--since", "1d", "--until", "2100-01-01", "--error", "Boom"], []),
    ],
)
def test_each_option_narrows_it_down(stage: Stage, wanted: Sequence[str], sent: list[str]) -> None:
    """What is meant goes, nothing else; where nothing is meant that is said."""
    ended = replay(stage, *wanted, "--yes")
    assert (ended.exit_code, keys(stage)) == (0, sent)
    assert ("no dead letter matches" in ended.stderr) is not bool(sent)


def test_a_dry_run_says_how_a_time_was_understood(stage: Stage) -> None:
    """With its zone: what names none is UTC."""
    given = ["--since", "2023-01-01", "--until", "2033-01-01T12:00+02:00"]
    told = replay(stage, *given, "--dry-run").stderr
    assert "failed from 2023-01-01T00:00:00Z and before 2033-01-01T10:00:00Z (UTC)" in told


def test_single_dead_letters_are_named_by_their_places(stage: Stage) -> None:
    """What is not there is said, and the rest goes."""
    partition, offset = stage.places[1]
    places = [f"{stage.dlq}/{partition}/{offset}", f"{stage.dlq}/0/999", f"{stage.dlq}/0/99999"]
    ended = dlq("replay", *places, "--yes")
    assert (ended.exit_code, keys(stage)) == (5, ["k1"])
    assert "2  left out: not in the topic" in ended.stdout
    assert json.loads(dlq("replay", *places, "--key", "k", "--dry-run", "-o", "json").stdout)[0][
        "left"
    ] == {"gone": 2}
    two = dlq("replay", places[0], "other/0/1")
    assert (two.exit_code, "places of one topic" in _words(two)) == (2, True)


def test_a_dead_letter_of_another_tool_goes_where_it_is_told(stage: Stage) -> None:
    """Nowhere by itself; to a topic that is named, with its headers and the count."""
    left = replay(stage, "--key", "foreign", "--yes")
    assert (left.exit_code, "without ackfloor's headers" in left.stdout) == (1, True)
    other = stage.topic("other")
    dry = replay(stage, "--key", "foreign", "--to", other, "--dry-run")
    assert "no header of ours" in dry.stdout
    assert replay(stage, "--key", "foreign", "--to", other, "--yes").exit_code == 0
    [message] = stage.read(other)
    assert message.headers() == [("h", b"1"), ("ackfloor.replays", b"1")]


def test_a_whole_topic_of_another_tool(stage: Stage) -> None:
    """Listed, shown, replayed to a named topic, with dispositions of its own."""
    theirs = stage.topic("orders.DLT")
    producer = Producer({"bootstrap.servers": stage.servers})
    headers = [
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", b"\0\0\0\3"),
        ("kafka_dlt-exception-fqcn", b"shop.Bad"),
    ]
    producer.produce(theirs, b"v", b"k", headers=headers, partition=0)
    assert producer.flush(60) == 0
    [group] = json.loads(dlq("groups", theirs, "-o", "json").stdout)
    assert (group["error"], group["count"]) == ("shop.Bad", 1)
    assert len(json.loads(dlq("ls", theirs, "--error", "Bad", "-o", "json").stdout)) == 1
    shown = json.loads(dlq("show", f"{theirs}/0/0", "-o", "json").stdout)
    assert (shown["origin"], shown["error_type"]) == ("orders/3", "shop.Bad")
    refused = dlq("replay", theirs, "--yes")
    assert isinstance(refused.exception, RedriveRefused)
    assert "name the target: --to TOPIC" in str(refused.exception)
    assert dlq("replay", theirs, "--to", stage.source, "--yes").exit_code == 0
    [sent] = stage.read(stage.source)
    assert sent.headers() == [*headers, ("ackfloor.replays", b"1")]
    assert json.loads(dlq("ls", theirs, "-o", "json").stdout) == []


def test_a_source_topic_is_not_replayed_by_mistake(stage: Stage) -> None:
    """Its records would all be handled once more; --foreign says that it is a dead-letter topic."""
    other = stage.topic("other")
    producer = Producer({"bootstrap.servers": stage.servers})
    producer.produce(stage.source, b"v", b"k", partition=0)
    assert producer.flush(60) == 0
    for more in (["--yes"], ["--dry-run"]):
        refused = dlq("replay", stage.source, "--to", other, *more)
        assert isinstance(refused.exception, RedriveRefused)
        assert "1 of 1 records have no header that any tool gives" in str(refused.exception)
        assert "say --foreign" in str(refused.exception)
    assert stage.read(other) == []
    assert dlq("replay", stage.source, "--to", other, "--foreign", "--yes").exit_code == 0
    assert [message.value() for message in stage.read(other)] == [b"v"]


def test_a_job_that_was_ended_is_resumed_by_its_name(stage: Stage) -> None:
    """It sends what it was asked for, and no more: not what died since, not beyond its maximum."""
    _interrupted(stage, "--error", "Boom", "--max", "5")
    [stopped] = jobs(stage)
    assert (stopped["state"], stopped["done"], stopped["of"]) == ("stopped", 1, 5)
    stage.died = stage.died._replace(error_type="shop.Boom", handler="bill")
    stage.bury([(b"later", b"v", [])])
    resumed = replay(stage, "--resume", str(stopped["job"]), "--yes")
    assert (resumed.exit_code, "4 sent" in resumed.stdout) == (0, True)
    assert (stage.sent_once(), "later" in keys(stage)) == (5, False)
    [done] = jobs(stage)
    assert (done["job"], done["state"], done["done"]) == (stopped["job"], "done", 5)
    full = replay(stage, "--resume", str(stopped["job"]), "--yes")
    assert "the job has sent its 5" in str(full.exception)


def test_a_job_is_not_resumed_on_another_topic_of_that_name(stage: Stage) -> None:
    """The same offsets are other dead letters there."""
    assert replay(stage, "--error", "Boom", "--yes").exit_code == 0
    recreate(stage.servers, stage.dlq)
    refused = replay(stage, "--resume", str(jobs(stage)[0]["job"]), "--yes")
    assert "was deleted and created anew since" in str(refused.exception)


def test_a_job_that_was_ended_says_what_is_left_and_how_to_go_on(stage: Stage) -> None:
    """To people and to programs; what was sent before is not among it."""
    assert replay(stage, "--error", "Boom", "--max", "2", "--yes").exit_code == 0
    text = _interrupted(stage, "--error", "Boom").stdout
    [stopped, _] = jobs(stage)
    assert (stopped["state"], stopped["done"], stopped["of"]) == ("stopped", 1, 4)
    assert "        2  left out: replayed, discarded or archived before\n" in text
    assert "        3  not sent\n" in text
    assert f"stopped: it was told to stop (job {stopped['job']})\n" in text
    assert f"to go on: ackfloor dlq replay {stage.dlq} --resume {stopped['job']} --yes\n" in text
    ended = _interrupted(stage, "--error", "Boom", "--max", "2", "-o", "json")
    [told] = json.loads(ended.stdout)
    assert (told["sent"], told["remaining"], told["left"]) == (1, 1, {"disposed": 3})
    assert told["resume"] == f"ackfloor dlq replay {stage.dlq} --resume {told['job']} --yes"


def _interrupted(stage: Stage, *arguments: str) -> Result:
    """A replay of one record a minute that gets a Ctrl-C after its first."""
    me, before = os.getpid(), len(stage.read(stage.tier))

    def interrupt() -> None:
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            # Only then the command has its handler in place.
            if len(stage.read(stage.tier)) > before:
                os.kill(me, signal.SIGINT)
                return
            time.sleep(0.02)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    ended = replay(stage, *arguments, "--rate", "1/m", "--yes")
    interrupter.join(60)
    assert (ended.exit_code, "it was told to stop" in ended.stdout) == (5, True)
    return ended


def test_one_job_at_a_time(stage: Stage) -> None:
    """Another that is at work is named; ended by `cancel`, it makes room and stays ended."""
    _note(stage, host="elsewhere")
    busy = replay(stage, "--yes")
    assert isinstance(busy.exception, RedriveBusy)
    assert busy.exception.exit_code == 1
    assert "job other of ann@elsewhere runs" in str(busy.exception)
    assert len(stage.read(stage.tier)) == 1
    unasked = dlq("cancel", stage.dlq, "other")
    assert (unasked.exit_code, "confirm with --yes" in unasked.stderr) == (2, True)
    ended = dlq("cancel", stage.dlq, "other", "--yes")
    assert (ended.exit_code, ended.stdout) == (0, "other: stopped, 1 of 9 replayed\n")
    assert dlq("cancel", stage.dlq, "other", "--yes").stdout == ended.stdout
    [row] = [row for row in jobs(stage) if row["job"] == "other"]
    assert (row["state"], str(row["why"]).startswith("cancelled by")) == ("stopped", True)
    assert replay(stage, "--error", "Boom", "--yes").exit_code == 0
    assert stage.sent_once() == 6


def test_a_job_whose_process_is_gone_holds_up_nobody(stage: Stage) -> None:
    """On this host it is looked for; `jobs` calls it silent."""
    _note(stage, host=gethostname(), pid=2**22 + 1)
    assert {row["job"]: row["state"] for row in jobs(stage)} == {"job": "done", "other": "silent"}
    assert replay(stage, "--error", "Boom", "--yes").exit_code == 0


def _note(stage: Stage, *, host: str, pid: int = 1) -> None:
    """One dead letter is sent; and the note of a running job, as its last transaction left it."""
    assert stage.job().run(select(stage.places[:1])) == Tally(sent=1)
    now_ms = time.time_ns() // 1_000_000
    note = JobNote(
        "other", "replayed", JobState.RUNNING, "ann@elsewhere", host, pid, stage.tier, 1, 9,
        now_ms, now_ms, now_ms + 600_000,
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": stage.servers})
    producer.produce(stage.dispositions, note.to_bytes(), note.key, partition=0)
    assert producer.flush(60) == 0


def test_what_is_wrong_gets_a_sentence(stage: Stage) -> None:
    """Before anything is sent."""
    for arguments, text in (
        (["--to", fresh("nowhere"), "--yes"], "the topic does not exist"),
        (["--to", stage.dlq, "--yes"], "a dlq topic is not read by any handler"),
        (["--resume", "no-such", "--yes"], "no such job"),
    ):
        refused = replay(stage, *arguments)
        assert isinstance(refused.exception, RedriveRefused)
        assert refused.exception.exit_code == 2
        assert text in str(refused.exception)
    for arguments, text in (
        (["--rate", "50"], '"50/s"'),
        (["--since", "yesterday"], "neither a time nor a duration"),
        (["--attempts", "many"], "write 7, 3+ or 1-3"),
        (["--attempts", "3-1"], "write 7, 3+ or 1-3"),
        (["--header", "=x"], "names no header"),
        (["--tenant", "a"], "No such option"),
        (["--resume", "job", "--key", "k"], "the job says what is meant"),
    ):
        ended = replay(stage, *arguments)
        assert (ended.exit_code, text in _words(ended)) == (2, True), ended.stderr
    gone = dlq("replay", "no-such-topic", "--yes")
    assert "no-such-topic does not exist" in str(gone.exception)
    assert stage.read(stage.tier) == []


def test_a_job_of_another_command_is_resumed_by_that_one(stage: Stage) -> None:
    """What it was asked for is not known here."""
    stage.job().run(select(stage.places[:1]))
    refused = replay(stage, "--resume", "job")
    assert "give the command that began it again" in str(refused.exception)


def test_a_note_that_asks_for_another_topic_is_not_followed() -> None:
    """Nor is one that holds what this command never writes."""
    places = Places("d", select([(0, 3)]))
    asked = Replay(places, DeadLetterFilter(), "retry", None, 5, {0: 9}).to_dict()
    note = JobNote("j", "replayed", JobState.STOPPED, "me", "h", 1, "t", 0, 0, 0, 0, 0, asked)
    assert Replay.of("d", note).places == places
    with pytest.raises(RedriveRefused, match="not a job of this command"):
        Replay.of("other", note)
    for name, wrong in (("places", ["d/0"]), ("max", "5"), ("ends", []), ("to", None)):
        with pytest.raises(RedriveRefused, match="not a job of this command"):
            Replay.of("d", replace(note, asked={**note.asked, name: wrong}))


def _words(ended: Result) -> str:
    return " ".join(ended.stderr.replace("│", " ").split())


@pytest.fixture
def second(stage: Stage) -> str:
    """Another dead-letter topic of the same group, with three dead letters of one handler."""
    first, source = stage.dlq, fresh("redrive")
    names = [f"{source}--{stage.group}--{kind}" for kind in ("retry-1s", "dlq")]
    for name in (source, *names):
        stage.topic(name)
    stage.died = stage.died._replace(handler="label", origin_topic=source)
    stage.dlq = names[1]
    stage.bury([(b"l%d" % n, b"v", []) for n in range(3)])
    stage.dlq = first
    return names[1]


def test_all_topics_of_a_group_are_redriven_in_one_account(stage: Stage, second: str) -> None:
    """Shown together, confirmed once, sent once; a filter says which of them are meant."""
    tier = second.replace("--dlq", "--retry-1s")
    dry = dlq("replay", "--group", stage.group, "--dry-run")
    assert dry.exit_code == 0, dry.exception
    assert f"{second} to {tier}: 3 would be sent" in dry.stdout
    assert f"{stage.dlq} to {stage.tier}: 8 would be sent" in dry.stdout
    assert dry.stdout.endswith("in all: 11 would be sent\n")
    unasked = dlq("replay", "--group", stage.group)
    assert (unasked.exit_code, stage.read(stage.tier), stage.read(tier)) == (2, [], [])
    assert "11 dead letters would be sent: confirm with --yes" in unasked.stderr
    one = dlq("replay", "--group", stage.group, "--handler", "label", "--error", "Bad", "--yes")
    assert (one.exit_code, keys(stage), keys(stage, tier)) == (0, [], ["l0", "l1", "l2"])
    assert "nothing has" not in one.stderr
    rest = dlq("replay", "--group", stage.group, "--yes")
    assert (rest.exit_code, len(keys(stage)), len(keys(stage, tier))) == (5, 8, 3)
    assert "1  left out: without ackfloor's headers" in rest.stdout
    none = dlq("replay", "--group", stage.group, "--handler", "label", "--yes")
    assert (none.exit_code, none.stdout) == (0, "")
    assert "3 were replayed, discarded or archived before" in none.stderr


@pytest.fixture
def in_place(stage: Stage) -> str:
    """A dead-letter topic of the same group whose handler retries in place: no retry topic."""
    first, source = stage.dlq, fresh("redrive")
    topic = f"{source}--{stage.group}--dlq"
    for name in (source, topic):
        stage.topic(name)
    stage.died = stage.died._replace(handler="pack", origin_topic=source)
    stage.dlq = topic
    stage.bury([(b"p%d" % n, b"v", []) for n in range(2)])
    stage.dlq = first
    return topic


def test_a_topic_without_a_retry_topic_is_left_out_of_a_group(
    stage: Stage, second: str, in_place: str
) -> None:
    """It is named with the reason, in a dry run as well; the others are sent, and exit code 5."""
    told = (
        f"{in_place}: 0 would be sent\n          2  left out: no topic to go to\n  --to='retry': "
    )
    asked = ("replay", "--group", stage.group, "--reason", "exhausted")
    dry = dlq(*asked, "--dry-run")
    assert (dry.exit_code, told in dry.stdout) == (5, True), dry.output
    assert "use --to source or --to TOPIC" in dry.stdout
    [report] = [
        each
        for each in json.loads(dlq(*asked, "--dry-run", "-o", "json").stdout)
        if each["dlq"] == in_place
    ]
    assert (report["would_send"], report["left"]) == (0, {"no_target": 2})
    sent = dlq(*asked, "--yes")
    assert sent.exit_code == 5
    assert f"{in_place}: 0 sent\n          2  left out: no topic to go to\n" in sent.stdout
    assert sorted(keys(stage, second.replace("--dlq", "--retry-1s"))) == ["l0", "l1", "l2"]
    assert len(keys(stage)) == 8
    alone = dlq(*asked, "--yes")
    assert isinstance(alone.exception, RedriveRefused)
    assert f"{in_place}: --to='retry': " in str(alone.exception)


def test_a_topic_without_a_retry_topic_is_refused_where_it_is_named(
    stage: Stage, in_place: str
) -> None:
    """Alone; to its source it goes, with those of the group as well."""
    refused = dlq("replay", in_place, "--yes")
    assert isinstance(refused.exception, RedriveRefused)
    assert "has no retry topic for" in str(refused.exception)
    sent = dlq("replay", "--group", stage.group, "--handler", "pack", "--to", "source", "--yes")
    assert (sent.exit_code, sent.stdout.endswith(": 2 sent\n")) == (0, True), sent.output


def test_a_maximum_holds_for_all_topics_of_a_group(stage: Stage, second: str) -> None:
    """Also for whoever resumes the job of one of them."""
    tier = second.replace("--dlq", "--retry-1s")
    ended = dlq("replay", "--group", stage.group, "--max", "9", "--error", "redrive", "--yes")
    assert "nothing has --error 'redrive'" in ended.stderr
    ended = dlq("replay", "--group", stage.group, "--max", "9", "--reason", "exhausted", "--yes")
    assert ended.stdout.endswith("in all: 9 sent\n"), ended.output
    assert len(keys(stage)) + len(keys(stage, tier)) == 9
    reading = DeadLetterTopics(options(stage.servers))
    bounds = [note.asked["max"] for topic in (stage.dlq, second) for note in reading.jobs(topic)]
    assert sorted(bounds) in ([1, 9], [6, 9])


def test_without_a_topic_a_group_is_demanded(stage: Stage) -> None:
    """And what is about one topic is refused, before anything is asked."""
    none = dlq("replay", "--yes")
    assert (none.exit_code, "all of a consumer group with --group" in _words(none)) == (2, True)
    for given in (["--resume", "j"], ["--edit", "f.jsonl"]):
        refused = dlq("replay", "--group", stage.group, *given)
        assert (refused.exit_code, "it is about one topic: name it" in _words(refused)) == (2, True)
