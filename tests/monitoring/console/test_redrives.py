"""Redriving and discarding in the console, on a real broker: judged, noted, each once in effect."""

from __future__ import annotations

import html
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor.errors import KafkaUnreachable
from ackfloor.operations import ActionLog, ActionNote
from ackfloor.redrive import JobNote, JobState
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.index import follower
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from tests.framework.kafka.wire import options, recreate, until
from tests.monitoring.console.page_text import words
from tests.monitoring.console.served_console import Answer, Console, console_of, named_by
from tests.redrive_stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("console")]

PAGE, REDRIVES = "/c/kafka/dead-letters", "/c/kafka/redrives"


@pytest.fixture
def stage(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Two hundred dead letters of a group."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(follower, "EVERY_S", 0.2)
    made = Stage(bootstrap_servers)
    made.bury([(b"k%d" % (n % 4), b'{"total": %d}' % n, []) for n in range(200)])
    return made


@pytest.fixture
def index(stage: Stage, tmp_path: Path) -> Iterator[DeadLetterIndex]:
    """An index that follows that broker."""
    path = tmp_path / "kafka.sqlite"
    made = DeadLetterIndex(options(stage.servers), path, Redaction(), 100_000)
    with made.following():
        yield made


@pytest.fixture
def console(stage: Stage, index: DeadLetterIndex) -> Iterator[Console]:
    """A console whose index has all of them."""
    with console_of(servers=stage.servers, index=index, role=Role.operator) as served:
        all_there(served, stage)
        yield served


def all_there(console: Console, stage: Stage) -> None:
    """Wait until its index has all dead letters."""
    found, said = f"{PAGE}?list=1&topic={stage.dlq}", ""
    for _ in range(600):
        said = words(console.ask(found).text)
        if "200 match" in said:
            return
        time.sleep(0.1)
    pytest.fail(said[:2_000])


def asked(console: Console, stage: Stage, *fields: tuple[str, str]) -> str:
    """The address of a redrive that was judged."""
    answer = console.send(REDRIVES, ("topic", stage.dlq), *fields)
    assert answer.status == 303, words(answer.text)
    return answer.headers["location"]


def confirm(console: Console, address: str, reason: str = "the bank is back") -> Answer:
    """Confirm it."""
    answer = console.send(address, ("reason", reason))
    assert answer.status == 303, words(answer.text)
    return answer


def stop(console: Console, address: str, reason: str) -> Answer:
    """Have a job that runs end after its transaction, on the page that asks why."""
    answer = console.send(f"{address}?stop=yes", ("stop", "yes"), ("reason", reason))
    assert (answer.status, answer.headers["location"]) == (303, address), words(answer.text)
    return answer


def sent(console: Console, address: str) -> int:
    """How many its page says are sent: to read the topic would wait for its transactions."""
    found = re.search(r"([\d,]+) of 200 sent", words(console.ask(address).text))
    return int(found[1].replace(",", "")) if found else 0


def ended(console: Console, address: str) -> str:
    """What its page says once it has ended."""
    until(lambda: "It runs" not in words(console.ask(address).text))
    return html.unescape(words(console.ask(address).text))


def noted() -> list[dict[str, object]]:
    """What `ackfloor actions ls` lists."""
    listed = CliRunner().invoke(cli, ["actions", "ls", "-o", "json", "--limit", "500"])
    found: list[dict[str, object]] = json.loads(listed.stdout)
    return found


def test_what_matches_is_redriven_once(stage: Stage, console: Console) -> None:
    """Counted first, without an effect; each in the retry topic; the command line sees the job."""
    form = console.ask(f"{PAGE}?topic={stage.dlq}&key=k1").text
    assert "all 50 that match" in words(form)
    address = asked(console, stage, ("action", "replay"), ("key", "k1"), ("all", "yes"))
    judged = words(console.ask(address).text)
    assert f"Redrive 50 dead letters of {stage.dlq}" in judged
    assert f"50 would be sent to {stage.tier}" in judged
    assert console.send(address).status == 400, "so many need a reason"
    assert stage.read(stage.tier) == []
    # What comes later is not meant: nobody has seen it.
    stage.bury([(b"k1", b"late", [])])
    for _ in range(3):
        confirm(console, address)
    assert "50 of 50 sent" in ended(console, address)
    assert stage.sent_once() == 50
    assert {message.key() for message in stage.read(stage.tier)} == {b"k1"}
    [job] = json.loads(CliRunner().invoke(dlq_app, ["jobs", stage.dlq, "-o", "json"]).stdout)
    assert (job["state"], job["done"], job["of"]) == ("done", 50, 50)
    [note] = [each for each in noted() if stage.dlq in str(each["targets"])]
    assert (note["action"], note["state"], note["program"], note["reason"], note["counts"]) == (
        "dlq replay", "done", "console", "the bank is back", {"done": 50},
    )  # fmt: skip
    page = f"{PAGE}?topic={stage.dlq}&list=1"
    until(lambda: "151 match" in words(console.ask(page).text))


def test_single_ones_are_discarded(
    stage: Stage, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were ticked, with a reason; nothing is sent, and they are open no more."""
    header = named_by(monkeypatch)
    places = [f"{stage.dlq}/{partition}/{offset}" for partition, offset in stage.places[:3]]
    ticked = [("place", each) for each in places]
    address = asked(console, stage, ("action", "discard"), *ticked)
    told = words(console.ask(address).text)
    assert "3 would be discarded" in told
    assert "No redrive sends them any more." in told
    assert console.send(address).status == 400, "what is given up needs a reason"
    confirmed = console.send(address, ("reason", "test orders"), **{header: "10.0.0.9"})
    assert confirmed.status == 303, words(confirmed.text)
    assert "3 of 3 discarded" in ended(console, address)
    assert len(stage.notes()) == 3
    assert stage.read(stage.tier) == []
    [note] = [each for each in noted() if stage.dlq in str(each["targets"])]
    arguments: Any = note["arguments"]
    assert arguments["from"] == "10.0.0.9"
    again = words(console.ask(asked(console, stage, ("action", "discard"), *ticked)).text)
    assert "3 left out: replayed, discarded or archived before" in again
    assert "nothing to do" in again


def test_a_note_holds_no_header_and_a_job_selects_what_was_shown(
    stage: Stage, console: Console
) -> None:
    """Nor what the job keeps: that says where dead letters are, and no more."""
    stage.bury([(b"k9", b"v", [("trace", b"secret"), ("shop", b"7")])])
    until(lambda: "201 match" in words(console.ask(f"{PAGE}?list=1&topic={stage.dlq}").text))
    for given in (("header", "trace=secret"), ("header", "shop")):
        address = asked(console, stage, ("action", "replay"), given, ("all", "yes"))
        page = words(console.ask(address).text)
        assert "1 would be sent" in page, page
    confirm(console, address)
    assert "1 of 1 sent" in ended(console, address)
    confirm(console, asked(console, stage, ("action", "discard"), ("key", "k1"), ("all", "yes")))
    until(lambda: len([n for n in noted() if stage.dlq in str(n["targets"])]) == 2)
    for note in noted():
        assert "secret" not in json.dumps(note)
    stored = [b"%s %s" % (m.key(), m.value() or b"") for m in stage.read(stage.dispositions)]
    assert any(b'"selection_kept": true' in each for each in stored)
    assert not any(b"secret" in each or b"trace" in each for each in stored)


def test_two_operators_at_once_send_each_once(stage: Stage, console: Console) -> None:
    """Each with an order of their own for the same dead letters."""
    orders = [asked(console, stage, ("action", "replay"), ("all", "yes")) for _ in range(2)]
    answers: list[Answer] = []
    both = [
        threading.Thread(
            target=lambda at: answers.append(console.send(at, ("reason", "both"))), args=(each,)
        )
        for each in orders
    ]
    for each in both:
        each.start()
    for each in both:
        each.join(60)
    said = [ended(console, each) for each in orders]
    assert any("200 of 200 sent" in text for text in said), said
    assert {answer.status for answer in answers} <= {303, 400}
    assert stage.sent_once() == 200


def test_a_job_that_is_stopped_is_gone_on_with_by_the_command_line(
    stage: Stage, console: Console
) -> None:
    """At a rate; what it was asked for is in its note, up to what was there when it was judged."""
    address = asked(
        console, stage, ("action", "replay"), ("all", "yes"), ("rate", "5/s"), ("error", "Boom")
    )
    stage.bury([(b"late", b"v", [])])
    confirm(console, address)
    until(lambda: sent(console, address))
    stop(console, address, "the bank is down again")
    page = ended(console, address)
    assert "Stopped: it was told to stop (the bank is down again)." in page
    count = stage.sent_once()
    assert 0 < count < 200
    [command] = [
        part for part in page.split("To go on: ")[1:] if part.startswith("ackfloor dlq replay")
    ]
    words_ = command.split()[2:6]
    resumed = CliRunner().invoke(dlq_app, [*words_, "--yes"])
    assert resumed.exit_code == 0, resumed.output
    assert stage.sent_once() == 200


def test_why_a_job_is_stopped_is_asked_and_noted(
    stage: Stage, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that asks is not loaded again; what can't be noted is not done, and is done once."""
    address = asked(console, stage, ("action", "replay"), ("all", "yes"), ("rate", "5/s"))
    confirm(console, address)
    until(lambda: sent(console, address))
    refresh, field = '<meta http-equiv="refresh"', 'name="reason"'
    running, asking = console.ask(address).text, console.ask(f"{address}?stop=yes").text
    assert [each in running for each in (refresh, field)] == [True, False]
    assert [each in asking for each in (refresh, field)] == [False, True]
    for reason, says in (("", "say why"), (" ", "say why"), ("x" * 201, "at most 200")):
        refused = console.send(f"{address}?stop=yes", ("stop", "yes"), ("reason", reason))
        assert (refused.status, says in words(refused.text)) == (400, True), words(refused.text)
        assert field in refused.text

    def away(_log: ActionLog, _note: ActionNote) -> None:
        raise KafkaUnreachable("may not be written")

    with monkeypatch.context() as without:
        without.setattr(ActionLog, "write", away)
        refused = console.send(f"{address}?stop=yes", ("stop", "yes"), ("reason", "INC-17"))
    assert (refused.status, "it can't be noted" in html.unescape(refused.text)) == (400, True)

    def broken(_log: ActionLog, _note: ActionNote) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as without:
        without.setattr(ActionLog, "write", broken)
        assert console.send(f"{address}?stop=yes", ("stop", "yes"), ("reason", "x")).status == 500
    before = sent(console, address)
    until(lambda: sent(console, address) > before)
    for reason in ("INC-17, the bank is down", "again"):
        stop(console, address, reason)
    assert "(INC-17, the bank is down)" in ended(console, address)
    noted_ = [each for each in noted() if stage.dlq in str(each["targets"])]
    assert sorted(str(each["action"]) for each in noted_) == ["dlq replay", "dlq stop"]
    [stopped] = [each for each in noted_ if each["action"] == "dlq stop"]
    assert (stopped["reason"], stopped["state"]) == ("INC-17, the bank is down", "done")
    arguments: Any = stopped["arguments"]
    assert (arguments["from"], f"Job {arguments['job']}" in words(running)) == ("127.0.0.1", True)


class Unread(dict[str, object]):
    """Jobs of an index that has read no note: not of this test's job, nor of jobs of others."""

    def __setitem__(self, topic: str, notes: object) -> None:
        """It reads none later either."""


def test_a_job_is_listed_before_its_note_is_read(
    stage: Stage, index: DeadLetterIndex, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks at once is not told that there is none; the page asks again until it is read."""
    jobs, refresh = "/c/kafka/jobs", '<meta http-equiv="refresh"'
    monkeypatch.setattr(index.follower, "jobs", Unread())
    assert refresh not in console.ask(jobs).text
    address = asked(console, stage, ("action", "replay"), ("all", "yes"))
    confirm(console, address)
    assert "200 of 200 sent" in ended(console, address)
    page = console.ask(jobs).text
    assert f"This console has begun it on {stage.dlq}" in words(page)
    assert refresh in page


def test_a_page_of_a_topic_that_was_created_anew_orders_nothing(
    stage: Stage, console: Console
) -> None:
    """What was ticked there are other dead letters by now, which nobody has seen."""
    page = console.ask(f"{PAGE}?topic={stage.dlq}&list=1").text
    [topic_id] = re.findall('name="topic_id" value="([^"]+)"', page)
    shown = ("topic_id", topic_id), ("place", f"{stage.dlq}/0/0")
    assert asked(console, stage, ("action", "discard"), *shown)
    recreate(stage.servers, stage.dlq)
    stage.bury([(b"new", b"another", [])] * 2, partition=0)

    def refused() -> bool:
        fields = ("topic", stage.dlq), ("action", "discard"), *shown
        return console.send(REDRIVES, *fields).status == 409

    until(refused)
    fields = ("topic", stage.dlq), *shown
    until(lambda: console.send("/c/kafka/exports", *fields).status == 409)


def test_a_job_is_ended_by_another_operator(
    stage: Stage, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs anywhere, with a reason; it is in the list, and what it sent stays sent."""
    header = named_by(monkeypatch)
    address = asked(console, stage, ("action", "replay"), ("all", "yes"), ("rate", "5/s"))
    confirm(console, address)
    jobs = "/c/kafka/jobs"
    button = rf'value="{stage.dlq}">\s*<button name="job" value="([^"]+)"'
    until(lambda: re.search(button, console.ask(jobs).text))
    [name] = re.findall(button, console.ask(jobs).text)
    busy = words(console.ask(asked(console, stage, ("action", "replay"), ("all", "yes"))).text)
    assert f"Job {name} of" in busy
    assert "Redrive them" not in busy
    fields = (("topic", stage.dlq), ("job", name))
    cancel = console.send("/c/kafka/cancels", *fields).headers["location"]
    assert f"End job {name}" in words(console.ask(cancel).text)
    assert console.send(cancel, ("reason", "")).status == 400
    for _ in range(2):
        why = ("reason", "the bank is down again")
        assert console.send(cancel, why, **{header: "10.0.0.9"}).status == 303
    assert "It is stopped: cancelled by" in words(console.ask(cancel).text)
    assert "cancelled by" in ended(console, address)
    assert 0 < stage.sent_once() < 200
    until(lambda: f"dlq replay {stage.dlq} --resume={name}" in words(console.ask(jobs).text))
    of_it = [each for each in noted() if stage.dlq in str(each["targets"])]
    came_from: Any = {str(each["action"]): each["arguments"] for each in of_it}
    assert {action: given["from"] for action, given in came_from.items()} == {
        "dlq cancel": "10.0.0.9", "dlq replay": "127.0.0.1",
    }  # fmt: skip
    unknown = console.send("/c/kafka/cancels", ("topic", stage.dlq), ("job", "none"))
    assert (unknown.status, "no job" in words(unknown.text)) == (404, True)


def test_a_silent_job_is_not_ended_at_the_cost_of_another(stage: Stage, console: Console) -> None:
    """The id that would be taken is the other one's; here and on the command line."""
    address = asked(console, stage, ("action", "replay"), ("all", "yes"), ("rate", "1/s"))
    confirm(console, address)
    until(lambda: sent(console, address))
    at_ms = time.time_ns() // 1_000_000 - 3_600_000
    killed = JobNote(
        "killed", "replayed", JobState.RUNNING, "bob@elsewhere", "elsewhere", 1, stage.tier, 3, 9,
        at_ms, at_ms, at_ms,
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": stage.servers})
    producer.produce(stage.dispositions, killed.to_bytes(), killed.key, partition=0)
    assert producer.flush(60) == 0
    silent = ("topic", stage.dlq), ("job", "killed")
    until(lambda: console.send("/c/kafka/cancels", *silent).status == 303)
    jobs = console.ask("/c/kafka/jobs").text
    assert 'value="killed"' not in jobs
    cancel = console.send("/c/kafka/cancels", *silent).headers["location"]
    assert console.send(cancel, ("reason", "it is dead")).status == 303
    assert "is silent, and job" in words(console.ask(cancel).text)
    refused = CliRunner().invoke(cli, ["dlq", "cancel", stage.dlq, "killed", "--yes"])
    assert (refused.exit_code, "is silent, and job" in str(refused.exception)) == (1, True)
    before = sent(console, address)
    until(lambda: sent(console, address) > before)
    stop(console, address, "enough")
    ended(console, address)


def test_a_job_whose_settings_are_broken_meanwhile_ends(
    stage: Stage, console: Console, tmp_path: Path
) -> None:
    """Its page says why; so does that of a job that was to be ended."""
    address = asked(console, stage, ("action", "discard"), ("all", "yes"))
    (tmp_path / "ackfloor.toml").write_text("[app\n")
    confirm(console, address)
    assert "ackfloor.toml" in ended(console, address)
    assert stage.read(stage.tier) == []


def test_a_console_that_ends_ends_its_jobs_in_order(stage: Stage, index: DeadLetterIndex) -> None:
    """None is sent twice, none is half sent, and the note says how far it came."""
    with console_of(servers=stage.servers, index=index, role=Role.operator) as served:
        all_there(served, stage)
        address = asked(served, stage, ("action", "replay"), ("all", "yes"), ("rate", "5/s"))
        confirm(served, address)
        until(lambda: sent(served, address))
    count = stage.sent_once()
    assert 0 < count < 200
    [note] = [each for each in noted() if stage.dlq in str(each["targets"])]
    assert (note["state"], note["counts"]["done"]) == ("partial", count)  # type: ignore[index]


def test_nothing_is_sent_that_can_not_be_noted(
    stage: Stage, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says so."""

    def refused(_log: ActionLog, _note: ActionNote) -> None:
        raise KafkaUnreachable("may not be written")

    monkeypatch.setattr(ActionLog, "write", refused)
    address = asked(console, stage, ("action", "replay"), ("all", "yes"))
    confirm(console, address)
    assert "nothing was done: it can't be noted" in ended(console, address)
    assert stage.read(stage.tier) == []


def test_a_topic_that_was_created_anew_is_searched_again(stage: Stage, console: Console) -> None:
    """Its offsets are other dead letters."""
    address = asked(console, stage, ("action", "replay"), ("all", "yes"))
    recreate(stage.servers, stage.dlq)
    confirm(console, address)
    assert "was deleted and created anew" in ended(console, address)
    assert stage.read(stage.tier) == []


def test_a_form_that_asks_for_nothing_sensible_is_refused(
    stage: Stage, console: Console, index: DeadLetterIndex
) -> None:
    """With the field; and whoever may not act is refused whatever they ask."""
    place = f"{stage.dlq}/0/0"
    for fields, says in (
        ((("action", "explode"), ("topic", stage.dlq), ("all", "yes")), "no such action"),
        ((("action", "replay"), ("topic", stage.source), ("all", "yes")), "no dead-letter topic"),
        ((("action", "replay"), ("topic", stage.dlq)), "tick dead letters"),
        ((("action", "replay"), ("topic", stage.dlq), ("all", "y"), ("place", place)), "tick"),
        ((("action", "replay"), ("topic", stage.dlq), ("place", "x")), "place"),
        ((("action", "replay"), ("topic", stage.dlq), ("place", "a--b--dlq/0/0")), "is not in"),
        ((("action", "replay"), ("topic", stage.dlq), ("all", "y"), ("rate", "soon")), "rate"),
        ((("action", "replay"), ("topic", stage.dlq), ("all", "y"), ("to", "x")), "target"),
        ((("action", "replay"), ("topic", stage.dlq), ("all", "y"), ("since", "x")), "since"),
        ((("action", "replay"), ("topic", "a--b--dlq"), ("all", "y")), "does not know"),
    ):
        refused = console.send(REDRIVES, *fields)
        assert refused.status in {400, 404}, fields
        assert says in words(refused.text), fields
    with console_of(servers=stage.servers, index=index, role=Role.reader) as looking:
        assert "<button name=" not in looking.ask(f"{PAGE}?topic={stage.dlq}").text
        answer = looking.send(REDRIVES, ("action", "replay"), ("topic", stage.dlq), ("all", "yes"))
        assert answer.status == 403
