"""A job that has ended before its end goes on in the console: once in effect, and no other's."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor.dead_letters.commands.dlq_replay import Replay
from ackfloor.dead_letters.commands.selection import Places
from ackfloor.dead_letters.kafka import redrive_job
from ackfloor.dead_letters.kafka.redrive_job import RedriveJob
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor.errors import RedriveRefused
from ackfloor.redrive import JobNote, JobState
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.acts.resumes import _refuse_busy
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from tests.framework.kafka.wire import options, until
from tests.monitoring.console.page_text import words
from tests.monitoring.console.served_console import Answer, Console, console_of
from tests.monitoring.console.test_redrives import (
    PAGE,
    asked,
    confirm,
    console,
    ended,
    index,
    noted,
    sent,
    stage,
    stop,
)
from tests.redrive_stage import Stage

__all__ = ["console", "index", "stage"]

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("console")]

JOBS, RESUMES = "/c/kafka/jobs", "/c/kafka/resumes"


def resume(console: Console, stage: Stage, job: str, *fields: tuple[str, str]) -> Answer:
    """What is answered to who asks for it."""
    return console.send(RESUMES, ("topic", stage.dlq), ("job", job), *fields)


@contextmanager
def served(stage: Stage, folder: Path) -> Iterator[Console]:
    """A console of its own, and its index: whoever serves another one has restarted it."""
    path = folder / "restarted.sqlite"
    index = DeadLetterIndex(options(stage.servers), path, Redaction(), 100_000)
    with (
        index.following(),
        console_of(servers=stage.servers, index=index, role=Role.operator) as console,
    ):
        yield console


def killed(
    stage: Stage,
    job: str,
    *,
    done: int = 0,
    age_s: int = 3_600,
    action: str = "replayed",
    asked: Mapping[str, Any] | None = None,
    **asked_for: Any,
) -> None:
    """Write the note of a job that ran on another machine until it was killed.

    Args:
        asked: what it says that it was asked for; None for what `asked_for` makes of the usual.
    """
    given = {
        "places": Places(stage.dlq), "wanted": DeadLetterFilter(key="k1"), "to": "retry",
        "limit": None, "max_replays": 5, "ends": {0: 100, 1: 100}, **asked_for,
    }  # fmt: skip
    at_ms = time.time_ns() // 1_000_000 - age_s * 1_000
    note = JobNote(
        job, action, JobState.RUNNING, "bob@elsewhere", "elsewhere", 1, stage.tier, done, 50,
        at_ms, at_ms, at_ms + 60_000, Replay(**given).to_dict() if asked is None else asked,
    )  # fmt: skip
    if stage.dispositions not in stage.admin.list_topics(timeout=60).topics:
        stage.topic(stage.dispositions, **{"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": stage.servers})
    producer.produce(stage.dispositions, note.to_bytes(), note.key, partition=0)
    assert producer.flush(60) == 0


def shown(console: Console, stage: Stage) -> str:
    """What the page has of jobs of this stage: others share its broker."""
    sections = re.findall("<section.*?</section>", console.ask(JOBS).text, re.DOTALL)
    return "".join(each for each in sections if stage.dlq in each)


def test_a_job_that_was_stopped_goes_on(stage: Stage, console: Console) -> None:
    """Confirmed with a reason, at a rate, as the same job: each is sent once."""
    address = asked(console, stage, ("action", "replay"), ("all", "yes"), ("rate", "5/s"))
    stage.bury([(b"late", b"v", [])])
    confirm(console, address)
    until(lambda: sent(console, address))
    stop(console, address, "the bank is down again")
    ended(console, address)
    before = stage.sent_once()
    assert 0 < before < 200
    button = r'<button name="job" value="([^"]+)">Go on with it'
    until(lambda: re.search(button, shown(console, stage)))
    [name] = re.findall(button, shown(console, stage))
    judged = resume(console, stage, name, ("rate", "1000/s"))
    assert judged.status == 303, words(judged.text)
    order = judged.headers["location"]
    page = words(console.ask(order).text)
    assert f"Go on with job {name}" in page
    assert f"replayed {before} of 200 dead letters of {stage.dlq}; it was told to stop" in page
    assert f"at most {200 - before}." in page
    assert "1000/s" in page
    assert stage.sent_once() == before
    assert console.send(order, ("reason", "")).status == 400
    for _ in range(2):
        confirm(console, order, "the bank is back, really")
    assert f"200 of 200 sent, {200 - before} of them now." in ended(console, order)
    assert stage.sent_once() == 200
    [job] = json.loads(CliRunner().invoke(dlq_app, ["jobs", stage.dlq, "-o", "json"]).stdout)
    assert (job["job"], job["state"], job["done"], job["of"]) == (name, "done", 200, 200)
    last, *before_it = (each for each in noted() if stage.dlq in str(each["targets"]))
    assert sorted(str(each["action"]) for each in before_it) == ["dlq replay", "dlq stop"]
    assert (last["action"], last["state"]) == ("dlq replay", "done")
    arguments: Any = last["arguments"]
    assert (arguments["resumed"], arguments["rate"]) == (name, "1000/s")
    assert last["reason"] == "the bank is back, really"
    again = resume(console, stage, name)
    assert (again.status, "has done what it was asked for" in words(again.text)) == (400, True)


def test_a_job_whose_note_is_gone_is_refused() -> None:
    """The dispositions topic may have lost it between two looks."""
    job: Any = SimpleNamespace(active=lambda: None, jobs=list, order=SimpleNamespace(job="j1"))
    with pytest.raises(RedriveRefused, match="has no note of job j1 any more"):
        _refuse_busy(job, "orders--billing--dlq")


def test_a_job_that_was_killed_elsewhere_goes_on(stage: Stage, console: Console) -> None:
    """What its note says is sent, and no more."""
    killed(stage, "killed")
    until(lambda: 'value="killed">Go on with it' in shown(console, stage))
    order = resume(console, stage, "killed").headers["location"]
    confirm(console, order)
    ended(console, order)
    assert {message.key() for message in stage.read(stage.tier)} == {b"k1"}
    assert stage.sent_once() == 50


def test_a_job_that_runs_is_nobody_elses(stage: Stage, console: Console) -> None:
    """Here, on another machine, or another one on the same topic; nor is it shown to go on."""
    killed(stage, "elsewhere", age_s=0)
    killed(stage, "dead")
    for job in ("elsewhere", "dead"):
        refused = resume(console, stage, job)
        assert refused.status == 400
        assert "job elsewhere of bob@elsewhere" in words(refused.text), words(refused.text)
    until(lambda: "elsewhere" in shown(console, stage))
    assert "Go on with it" not in shown(console, stage)
    assert stage.read(stage.tier) == []


def test_another_job_that_has_begun_meanwhile_is_left_alone(stage: Stage, console: Console) -> None:
    """Whoever confirmed did not know of it."""
    killed(stage, "dead")
    order = resume(console, stage, "dead").headers["location"]
    killed(stage, "elsewhere", age_s=0)
    confirm(console, order)
    assert "nothing was done: " in ended(console, order)
    assert stage.read(stage.tier) == []


@pytest.mark.parametrize("selects", [("text", "Paid"), ("header", "shop=7"), ("header", "shop")])
def test_a_selection_by_text_or_header_goes_on_after_a_restart(
    stage: Stage, tmp_path: Path, selects: tuple[str, str]
) -> None:
    """By its note and the places that it keeps, whoever asks: each once, and no others."""
    stage.died = stage.died._replace(error_message="it was paid before")
    stage.bury([(b"paid", b"v", [("shop", b"7")])] * 30)
    with served(stage, tmp_path) as console:
        until(lambda: "230 match" in words(console.ask(f"{PAGE}?list=1&topic={stage.dlq}").text))
        rate = ("rate", "5/s")
        address = asked(console, stage, ("action", "replay"), ("all", "yes"), rate, selects)
        assert "30 would be sent" in words(console.ask(address).text)
        confirm(console, address)
        until(lambda: "0 of 30 sent" not in words(console.ask(address).text))
        stop(console, address, "the bank is down again")
        assert "--resume" in ended(console, address)
    before = stage.sent_once()
    assert 0 < before < 30
    # It would match as well, and nobody has seen it.
    stage.bury([(b"late", b"v", [("shop", b"7")])])
    with served(stage, tmp_path) as console:
        until(lambda: "Go on with it" in shown(console, stage))
        [name] = re.findall('name="job" value="([^"]+)">Go on with it', shown(console, stage))
        order = resume(console, stage, name).headers["location"]
        assert f"at most {30 - before}." in words(console.ask(order).text)
        confirm(console, order)
        assert f"30 of 30 sent, {30 - before} of them now." in ended(console, order)
    assert stage.sent_once() == 30
    assert {message.key() for message in stage.read(stage.tier)} == {b"paid"}
    assert kept_parts(stage) == set()


def test_a_job_goes_on_with_what_the_index_found_and_not_with_what_the_filter_finds(
    stage: Stage, tmp_path: Path
) -> None:
    """They differ: no calendar has some of the times that a header may have."""
    late_ms, never_ms = 7_258_118_400_000, 10**15
    for key, failed_ms, count in ((b"late", late_ms, 30), (b"never", never_ms, 5)):
        stage.died = stage.died._replace(failed_at_ms=failed_ms)
        stage.bury([(key, b"v", [])] * count)
    fields = ("action", "replay"), ("all", "yes"), ("rate", "5/s"), ("since", "2100-01-01")
    with served(stage, tmp_path) as console:
        until(lambda: "235 match" in words(console.ask(f"{PAGE}?list=1&topic={stage.dlq}").text))
        address = asked(console, stage, *fields)
        assert "30 would be sent" in words(console.ask(address).text)
        confirm(console, address)
        until(lambda: "0 of 30 sent" not in words(console.ask(address).text))
        stop(console, address, "the bank is down again")
        page = ended(console, address)
    assert 0 < stage.sent_once() < 30
    command = page.split("To go on: ")[1].split()[:6]
    assert CliRunner().invoke(dlq_app, [*command[2:], "--yes"]).exit_code == 0
    assert stage.sent_once() == 30
    assert {message.key() for message in stage.read(stage.tier)} == {b"late"}


def test_a_job_that_could_not_keep_its_selection_is_not_to_be_gone_on_with(
    stage: Stage, console: Console
) -> None:
    """It has no note: nobody would find it."""
    stage.topic(stage.dispositions, **{"cleanup.policy": "compact", "max.message.bytes": "100"})
    address = asked(console, stage, ("action", "replay"), ("all", "yes"), ("key", "k1"))
    confirm(console, address)
    page = ended(console, address)
    assert "allows no record as large as a part of this selection" in page
    assert "To go on, ask for the same again." in page
    assert "--resume" not in page
    assert stage.read(stage.tier) == []


def test_discards_that_were_stopped_go_on_after_a_restart(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Selected by a filter or by a text; what they did is not done twice, and nothing is sent."""
    monkeypatch.setattr(redrive_job, "BATCH", 5)
    goes_on, begun = threading.Event(), set[str]()

    def slowly(job: RedriveJob, _count: int, _stopping: object) -> None:
        if job.order.job in begun:
            assert goes_on.wait(120)
        begun.add(job.order.job)

    for selects, count in ((("key", "k1"), 50), (("text", "paid"), 30)):
        with served(stage, tmp_path) as console, monkeypatch.context() as slow:
            slow.setattr(RedriveJob, "_keep_to_rate", slowly)
            if count == 30:
                stage.died = stage.died._replace(error_message="it was paid before")
                stage.bury([(b"k9", b"v", [])] * count)
            page = f"{PAGE}?{selects[0]}={selects[1]}&topic={stage.dlq}"
            until(lambda: f"{count} match" in words(console.ask(page).text))  # noqa: B023
            address = asked(console, stage, ("action", "discard"), ("all", "yes"), selects)
            confirm(console, address)
            until(lambda: f"5 of {count} discarded" in words(console.ask(address).text))  # noqa: B023
            stop(console, address, "not now")
            goes_on.set()
            assert "--resume" in ended(console, address)
            goes_on.clear()
        done = len(stage.notes())
        with served(stage, tmp_path) as console:
            until(lambda: "Go on with it" in shown(console, stage))
            [name] = re.findall('name="job" value="([^"]+)">Go on with it', shown(console, stage))
            order = resume(console, stage, name, ("rate", "5/s")).headers["location"]
            page = words(console.ask(order).text)
            assert f"discarded 5 of {count} dead letters" in page
            assert f"is discarded: at most {count - 5}." in page
            confirm(console, order)
            said = ended(console, order)
            assert f"{count} of {count} discarded, {count - 5} of them now." in said
        assert len(stage.notes()) == done + count - 5
        last = next(each for each in noted() if stage.dlq in str(each["targets"]))
        assert (last["action"], last["state"]) == ("dlq discard", "done")
    assert (stage.read(stage.tier), kept_parts(stage)) == ([], set())


def kept_parts(stage: Stage) -> set[str]:
    """The jobs of which parts of a selection are kept."""
    disposed = Disposed()
    for message in stage.read(stage.dispositions):
        disposed.note(message.key(), message.value())  # type: ignore[arg-type]
    return set(disposed.selections)


def test_a_job_whose_note_does_not_say_enough_says_so(stage: Stage, console: Console) -> None:
    """With what is to be done instead; one without a selection any more is refused."""
    killed(stage, "older", asked={})
    killed(stage, "archive", action="archived", asked={})
    killed(stage, "edited", edit="corrected.jsonl")
    killed(stage, "of-spark", asked={"where": "x", "table": "t"})
    killed(stage, "without", selection_kept=True)
    until(lambda: 'value="without">Go on with it' in shown(console, stage))
    said = words(shown(console, stage))
    for why in (
        "its note does not say which dead letters it was about",
        "its file is where it ran: give ackfloor dlq archive there again",
        "it edited what it sent, and kept none of that",
        "ackfloor spark replay goes on with it: --table TABLE --resume of-spark",
    ):
        assert f"It can't be gone on with here: {why}" in said
    assert shown(console, stage).count("Go on with it") == 1
    order = resume(console, stage, "without").headers["location"]
    confirm(console, order)
    assert "job without keeps no selection any more" in ended(console, order)
    assert stage.read(stage.tier) == []


def test_what_no_longer_fits_is_refused(
    stage: Stage, console: Console, index: DeadLetterIndex
) -> None:
    """With what is to be done instead; whoever may not act is refused whatever they ask."""
    killed(stage, "edited", edit="corrected.jsonl")
    killed(stage, "older", topic_id="another-topic")
    killed(stage, "all-sent", done=10, limit=10)
    for job, fields, status, says in (
        ("edited", (), 400, "it edited what it sent"),
        ("older", (), 400, "was deleted and created anew"),
        ("all-sent", (), 400, "has sent its 10"),
        ("unknown", (), 400, "no such job"),
        ("edited", (("rate", "soon"),), 400, "rate"),
    ):
        refused = resume(console, stage, job, *fields)
        assert (refused.status, says in words(refused.text)) == (status, True), words(refused.text)
    elsewhere = console.send(RESUMES, ("topic", stage.source), ("job", "killed"))
    assert elsewhere.status == 404
    with console_of(servers=stage.servers, index=index, role=Role.reader) as looking:
        assert "Go on with it" not in looking.ask(JOBS).text
        assert resume(looking, stage, "older").status == 403
    assert stage.read(stage.tier) == []
