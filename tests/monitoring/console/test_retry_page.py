"""Retry topics in the console, on a real broker: what is due when, and what an operator does."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from markupsafe import escape
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.core.records.envelope import read_envelope
from ackfloor.errors import KafkaUnreachable
from ackfloor.operations import TOPIC, ActionFilter, ActionLog, ActionNote, ActionState
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.acts import retry_forms
from ackfloor_monitoring.console.reads import waiting_records
from tests.e2e.conftest import make_stage  # noqa: F401 -- a fixture of this file, too
from tests.e2e.stage import Stage as RealStage
from tests.e2e.stage import ready
from tests.e2e.test_retry_early import WAITING
from tests.framework.kafka.wire import committed_records, options, until
from tests.monitoring.console.page_text import SCRIPT, Tags, words
from tests.monitoring.console.served_console import Answer, Console, console_of
from tests.monitoring.console.waiting_stage import WaitingRun, WaitingStage, run_of

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("console")]

PAGE, ORDERS = "/c/kafka/retry", "/c/kafka/orders"


@pytest.fixture
def stage(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WaitingStage:
    """A group whose records wait."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    return WaitingStage(bootstrap_servers)


@pytest.fixture
def run(stage: WaitingStage, tmp_path: Path) -> Iterator[WaitingRun]:
    """The run that has them."""
    with run_of(stage, tmp_path) as made:
        yield made


@pytest.fixture
def console(stage: WaitingStage, run: WaitingRun) -> Iterator[Console]:
    """An operator's."""
    files = {run.listen: Path("token")}
    with console_of(
        run.listen, servers=stage.servers, role=Role.operator, token_files=files
    ) as served:
        yield served


def text_of(answer: Answer) -> str:
    """What a person reads."""
    return html.unescape(words(answer.text))


def asked(console: Console, stage: WaitingStage, *fields: tuple[str, str]) -> str:
    """The address of an order that was judged."""
    answer = console.send(ORDERS, ("topic", stage.tier), *fields)
    assert answer.status == 303, text_of(answer)
    return answer.headers["location"]


def confirmed(console: Console, order: str, reason: str = "the bank is back") -> str:
    """What came of it."""
    answer = console.send(order, ("reason", reason))
    assert answer.status == 303, text_of(answer)
    return text_of(console.ask(order))


def notes(stage: WaitingStage) -> list[ActionNote]:
    """Of what was done to the group."""
    return ActionLog(options(stage.servers)).newest(ActionFilter(group=stage.group), 20)


def test_one_record_is_shown_in_full(stage: WaitingStage, console: Console) -> None:
    """As `retry show` shows it; of a viewer neither key, headers nor payload."""
    place = f"{stage.tier}/0/0"
    path = f"/c/kafka/retry/{place}"
    # Others share the broker: of all that wait, the page has those that are due first.
    assert f'href="{path}"' in console.ask(f"{PAGE}?group={stage.group}").text
    page = text_of(console.ask(path))
    for text in (f"written as {place}", f"Group {stage.group}", '{"card": 1}', "k0", "Header own"):
        assert text in page, text
    assert "2023-11-14 22:13:20 UTC" in page, "when it is due"
    assert "Reveal it" not in page
    behind = text_of(console.ask(f"/c/kafka/retry/{stage.tier}/1/0"))
    assert "which waits for another one of its key" in behind
    for other in (f"{stage.tier}/0/99", f"{stage.source}/0/0", f"{stage.dlq}/0/0", f"{place}x"):
        assert console.ask(f"/c/kafka/retry/{other}").status == 404, other
    with console_of(servers=stage.servers, role=Role.viewer) as looking:
        seen = text_of(looking.ask(path))
    assert "that takes a reader" in seen
    assert "card" not in seen
    assert "k0" not in seen


def test_a_page_of_a_topic_that_was_made_anew_orders_nothing(
    stage: WaitingStage, console: Console
) -> None:
    """Its places are those of other records by now; the page says which topic it has shown."""
    page = console.ask(f"{PAGE}?topic={stage.tier}").text
    [topic_id] = re.findall('name="topic_id" value="([^"]+)"', page)
    fields = ("topic", stage.tier), ("action", "promote"), ("place", f"{stage.tier}/0/3")
    assert console.send(ORDERS, *fields, ("topic_id", topic_id)).status == 303
    refused = console.send(ORDERS, *fields, ("topic_id", "another"))
    assert (refused.status, "made anew" in text_of(refused)) == (400, True)


def test_what_is_due_when_is_shown(stage: WaitingStage, console: Console) -> None:
    """By topic, by cause, and one by one, the earliest first; what is behind another one last."""
    page = console.ask(f"{PAGE}?topic={stage.tier}")
    text = text_of(page)
    assert f"{stage.tier} 7 3 " in text
    assert "7 match" in text
    assert "bill shop.Boom 4 " in text
    assert "bill shop.Other 2 " in text
    places = re.findall(r'aria-label="Choose ([^"]*)"', page.text)
    assert places == [
        f"{stage.tier}/{n}" for n in ("0/0", "0/1", "0/2", "0/5", "0/4", "0/3", "1/0")
    ]
    assert f"2023-11-14 22:13:20 UTC {stage.source}/1/0 bill error 2 shop.Boom k0 " in text
    assert f"after another {stage.source}/1/9 " in text
    assert f'<a href="/c/kafka/records/{stage.source}/1/9">' in page.text
    listed = json.loads(CliRunner().invoke(cli, ["retry", "ls", stage.tier, "-o", "json"]).stdout)
    assert [(row["waiting"], row["due"], row["behind"]) for row in listed] == [(3, 3, 1)]


def test_all_topics_of_a_group_are_shown(stage: WaitingStage, console: Console) -> None:
    """One of them is chosen before anything is done to its records."""
    page = console.ask(f"{PAGE}?group={stage.group}")
    text = text_of(page)
    assert f"{stage.tier} 7 3 " in text
    assert "--retry-5s 0 0 - - - 0 5s " in text
    assert "choose a retry topic" in text
    assert "Make due now" not in text
    assert f"?topic={stage.tier}&amp;group={stage.group}" in page.text
    empty = text_of(console.ask(f"{PAGE}?topic={stage.tier.replace('-1s', '-5s')}"))
    assert "No record waits in this retry topic." in empty


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("error=Other", 2), ("error=shop.Boom", 4), ("handler=bill", 7), ("handler=ship", 0),
        ("key=k1", 2), ("reason=behind", 1), ("release=9", 0),
    ],
)  # fmt: skip
def test_a_search_finds_what_the_command_finds(
    stage: WaitingStage, console: Console, query: str, count: int
) -> None:
    """And names the command."""
    page = console.ask(f"{PAGE}?topic={stage.tier}&{query}")
    text = text_of(page)
    if not count:
        assert "No waiting record matches." in text
        return
    assert f"{count} match" in text
    command = html.unescape(re.findall("<code>(.*?)</code>", page.text)[0])
    name, value = query.split("=")
    assert command == f"ackfloor retry show {stage.tier} --{name}={value}"
    shown = CliRunner().invoke(cli, [*shlex.split(command)[1:], "-o", "json"])
    assert len(json.loads(shown.stdout)) == count


def test_ticked_ones_are_made_due(stage: WaitingStage, run: WaitingRun, console: Console) -> None:
    """Counted without an effect, confirmed, noted before and after, and done once."""
    run.has.discard(4)
    places = [("place", f"{stage.tier}/{each}") for each in ("0/3", "0/4", "0/99", "1/0")]
    order = asked(console, stage, ("action", "promote"), *places)
    judged = text_of(console.ask(order))
    assert f"Make due now: 3 records of {stage.tier}" in judged
    assert "1 of 3 records would be due now" in judged
    assert "1 wait behind another one of their key, and are left" in judged
    assert "2 do not wait in a worker that answered" in judged
    assert [each["action"] for each in run.asked] == ["count"]
    assert (run.has, notes(stage)) == ({0, 1, 2, 3, 5}, [])
    for _ in range(2):
        came = confirmed(console, order)
        assert "What was done 1 of 3 records due now" in came
    assert run.has == {0, 1, 2, 5}
    assert [each["action"] for each in run.asked] == ["count", "promote"]
    assert run.asked[-1]["places"] == {"0": [3, 4]}
    [note] = notes(stage)
    assert (note.action, note.program, note.state, note.targets, note.reason) == (
        "retry promote", "console", ActionState.PARTIAL, (stage.tier,), "the bank is back",
    )  # fmt: skip
    assert note.counts == {"done": 1, "meant": 3}
    assert note.arguments["places"] == [place for _, place in places]
    assert note.arguments["from"] == "127.0.0.1"


def test_a_topic_that_was_made_anew_is_left_alone(
    stage: WaitingStage, run: WaitingRun, console: Console
) -> None:
    """The places mean other records there: whoever confirms has not seen them."""
    order = asked(console, stage, ("action", "bury"), ("all", "yes"))
    before = len(run.asked)
    stage.admin.delete_topics([stage.tier])[stage.tier].result(60)
    until(lambda: stage.tier not in stage.admin.list_topics(timeout=60).topics)
    new = NewTopic(stage.tier, 2, 1)
    until(lambda: stage.admin.create_topics([new])[stage.tier].exception(60) is None)
    stage.park(1, b"k1")
    assert f"{stage.tier} was deleted and made anew: ask again" in confirmed(console, order)
    assert len(run.asked) == before


def test_all_that_match_are_buried(stage: WaitingStage, run: WaitingRun, console: Console) -> None:
    """With a reason; those that came after the count are not meant."""
    fields = (("action", "bury"), ("all", "yes"), ("error", "shop.Boom"))
    order = asked(console, stage, *fields)
    judged = text_of(console.ask(order))
    assert f"Move to the dead-letter topic: 4 records of {stage.tier}" in judged
    missing = console.send(order, ("reason", ""))
    assert (missing.status, "say why" in missing.text) == (400, True)
    stage.park(7, b"new")
    came = confirmed(console, order, "an old release")
    assert "4 of 4 records on the way to the dead-letter topic" in came
    assert run.asked[-1]["places"] == {"0": [0, 1, 2, 3]}
    [note] = notes(stage)
    assert (note.state, note.arguments["filter"]) == (ActionState.DONE, {"error": "shop.Boom"})


def test_nothing_is_done_that_can_not_be_noted(
    stage: WaitingStage, run: WaitingRun, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is not asked for more than the count."""
    order = asked(console, stage, ("action", "promote"), ("all", "yes"))

    def write(*_: object) -> None:
        raise KafkaUnreachable("no broker takes a connection")

    monkeypatch.setattr(ActionLog, "write", write)
    came = confirmed(console, order)
    assert f"nothing was done: it can't be noted in {TOPIC}" in came
    assert [each["action"] for each in run.asked] == ["count"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ((("action", "promote"), ("all", "yes"), ("topic", "orders")), "is no retry topic"),
        ((("action", "promote"), ("all", "yes"), ("topic", "a--b--dlq")), "is no retry topic"),
        ((("action", "promote"), ("all", "yes"), ("topic", "a--b--retry-1s")), "does not exist"),
        ((("action", "promote"),), "tick records, or all that match"),
        ((("action", "promote"), ("place", "x/0/1"), ("all", "yes")), "tick records"),
        ((("action", "promote"), ("place", "x/0/1")), "is not in"),
        ((("action", "bury"), ("place", "../x")), "names no record"),
        ((("action", "bury"), ("all", "yes"), ("reason", "boredom")), "boredom"),
        ((("action", "count"), ("all", "yes")), "handler"),
    ],
)
def test_a_form_that_asks_for_nothing_sensible_is_refused(
    stage: WaitingStage,
    run: WaitingRun,
    console: Console,
    fields: tuple[tuple[str, str], ...],
    says: str,
) -> None:
    """With what is wrong; no run is asked."""
    topic = () if dict(fields).get("topic") else (("topic", stage.tier),)
    refused = console.send(ORDERS, *fields, *topic)
    assert (refused.status, says in text_of(refused)) == (400, True), text_of(refused)
    assert run.asked == []


def test_a_page_of_no_retry_topic_is_refused(stage: WaitingStage, console: Console) -> None:
    """Nobody reads another topic by it."""
    for query, status in (
        (f"topic={stage.source}", 400),
        (f"topic={stage.dlq}", 400),
        (f"topic={stage.tier}x", 400),
        (f"topic=no--{stage.group}--retry-1s", 404),
        ("group=nobody", 404),
        ("reason=boredom", 400),
        (f"handler={'x' * 1_001}", 400),
    ):
        assert console.ask(f"{PAGE}?{query}").status == status, query


def test_who_may_not_act_does_not_and_a_viewer_sees_no_key(
    stage: WaitingStage, run: WaitingRun
) -> None:
    """Nor searches by one."""
    files = {run.listen: Path("token")}
    for role in (Role.viewer, Role.reader):
        with console_of(run.listen, servers=stage.servers, role=role, token_files=files) as served:
            page = served.ask(f"{PAGE}?topic={stage.tier}")
            assert "Make due now" not in text_of(page)
            assert (">k3<" in page.text, "Key</th>" in page.text) == (role is Role.reader,) * 2
            found = served.ask(f"{PAGE}?topic={stage.tier}&key=k1")
            assert found.status == (200 if role is Role.reader else 403)
            fields = (("action", "promote"), ("all", "yes"), ("topic", stage.tier))
            assert served.send(ORDERS, *fields).status == 403
    assert run.asked == []


def test_what_redaction_hides_is_not_shown_nor_searched(
    stage: WaitingStage, run: WaitingRun, tmp_path: Path
) -> None:
    """Of keys and messages."""
    (tmp_path / "ackfloor.toml").write_text('[redaction]\npatterns = ["k[0-9]", "card-[0-9]+"]\n')
    stage.park(8, b"k8", error_message="card-4711 refused")
    with console_of(run.listen, servers=stage.servers) as served:
        page = served.ask(f"{PAGE}?topic={stage.tier}")
        assert "4711" not in page.text
        assert ">k8<" not in page.text
        assert "refused" in page.text
        assert served.ask(f"{PAGE}?topic={stage.tier}&key=k8").status == 400
        assert served.ask(f"{PAGE}?topic={stage.tier}&key=other").status == 200


def test_what_others_wrote_stays_text(stage: WaitingStage, console: Console) -> None:
    """In keys, handlers and errors."""
    stage.park(8, SCRIPT.encode(), error_message=SCRIPT, handler=SCRIPT, error_type=SCRIPT)
    page = console.ask(f"{PAGE}?topic={stage.tier}&error=&handler=")
    cells, text = re.findall("<t[dh][^>]*>(.*?)</t[dh]>", page.text), str(escape(SCRIPT))
    # Of the cause and of the record: the handler, and the error with its message; then the key.
    assert (cells.count(text), cells.count(f"{text}: {text}")) == (3, 2)
    assert SCRIPT not in page.text
    assert Tags(page.text).scripts == []
    assert "img" not in Tags(page.text).names


def test_a_look_is_bounded(
    stage: WaitingStage, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that there is more; an order about more is refused, one about few is not."""
    monkeypatch.setattr(waiting_records, "MOST_OF_ONE", 4)
    text = text_of(console.ask(f"{PAGE}?topic={stage.tier}"))
    assert f"not all is known of {stage.tier}" in text
    assert f"{stage.tier} 4 or more 3 " in text
    fields = (("action", "promote"), ("topic", stage.tier))
    refused = console.send(ORDERS, *fields, ("all", "yes"))
    assert (refused.status, "more than 4 records" in text_of(refused)) == (400, True)
    asked(console, stage, ("action", "promote"), ("place", f"{stage.tier}/0/1"))
    monkeypatch.setattr(waiting_records, "LOOK_S", 0.0)
    text = text_of(console.ask(f"{PAGE}?group={stage.group}"))
    assert f"not all is known of {stage.tier}" in text
    monkeypatch.undo()
    monkeypatch.setattr(retry_forms, "MOST_MEANT", 5)
    refused = console.send(ORDERS, *fields, ("all", "yes"))
    assert (refused.status, "6 are meant" in text_of(refused)) == (400, True)


def test_a_broker_that_is_away_is_named(
    stage: WaitingStage, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is there all the same."""

    def look(*_: Any) -> None:
        raise KafkaUnreachable("no broker takes a connection")

    monkeypatch.setattr("ackfloor_monitoring.console.pages.retry_page.look", look)
    page = console.ask(PAGE)
    assert page.status == 200
    assert "They can't be read: no broker takes a connection" in text_of(page)
    assert "Nothing is known." in text_of(page)


@pytest.mark.e2e
def test_records_are_promoted_and_buried_through_a_run(
    make_stage: Callable[..., RealStage],  # noqa: F811 -- pytest passes it
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To the end: one that was to wait for an hour is handled now, one is a dead letter."""
    real = make_stage(WAITING)
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", real.servers)
    monkeypatch.chdir(real.folder)
    process = real.run()
    process.until(ready(process), "ready")
    for key in (b"even", b"odd", b"odd"):
        real.produce(1, key=key)
    listen = process.logged("metrics and health on ").rpartition("http://")[2]
    tier, dlq = (f"{real.topic}--{real.group}--{end}" for end in ("retry-1h", "dlq"))
    token = {listen: Path(process.logged("the token is in ").rpartition(" ")[2])}
    with console_of(listen, servers=real.servers, role=Role.operator, token_files=token) as served:

        def order(action: str, key: str, count: int) -> str:
            """The address of an order, once its run has all records that it is about."""
            fields = (("topic", tier), ("action", action), ("all", "yes"), ("key", key))
            found: list[str] = []

            def all_wait() -> bool:
                answer = served.send(ORDERS, *fields)
                found[:] = [answer.headers.get("location", "")]
                would = f"{count} of {count} record{'' if count == 1 else 's'} would be "
                return bool(found[0]) and would in text_of(served.ask(found[0]))

            process.until(all_wait, "they wait in the worker")
            return found[0]

        promoted = order("promote", "even", 1)
        assert "1 of 1 record due now" in confirmed(served, promoted)
        process.until(lambda: real.records() == 1, "the promoted one is handled")
        confirmed(served, order("bury", "odd", 2), "an old release")
        process.until(lambda: len(committed_records(real.servers, dlq)) == 2, "the buried ones")
        process.until(
            lambda: "No record waits" in text_of(served.ask(f"{PAGE}?topic={tier}")),
            "none is open",
        )
    assert list(real.noted().values()) == [1]
    for message in committed_records(real.servers, dlq):
        assert (message.key(), read_envelope(message.headers()).reason) == (b"odd", "dead_letter")
    listed = CliRunner().invoke(cli, ["actions", "ls", "--group", real.group, "-o", "json"])
    assert [(row["action"], row["state"]) for row in json.loads(listed.stdout)] == [
        ("retry bury", "done"), ("retry promote", "done"),
    ]  # fmt: skip
