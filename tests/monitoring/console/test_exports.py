"""An export of the console: what `ackfloor dlq export` writes, bounded, and for readers."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.acts import exports
from ackfloor_monitoring.console.index import follower
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from tests.framework.kafka.wire import options, until
from tests.monitoring.console.page_text import words
from tests.monitoring.console.served_console import Console, console_of
from tests.redrive_stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("console")]

PAGE, EXPORTS = "/c/kafka/dead-letters", "/c/kafka/exports"


@pytest.fixture
def stage(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Sixty dead letters of a group, some of them no text."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(follower, "EVERY_S", 0.2)
    # The secret is in the payload alone: keys and headers stay.
    (tmp_path / "ackfloor.toml").write_text("[redaction]\npatterns = ['card-[0-9]+']\n")
    made = Stage(bootstrap_servers)
    made.bury([(b"k%d" % (n % 3), b"card-%d \xff" % n, [("own", b"1")]) for n in range(60)])
    return made


@pytest.fixture
def consoles(stage: Stage, tmp_path: Path) -> Iterator[dict[Role, Console]]:
    """One for each role, whose index has all of them."""
    path = tmp_path / "kafka.sqlite"
    index = DeadLetterIndex(options(stage.servers), path, Redaction(), 100_000)
    with ExitStack() as ending:
        ending.enter_context(index.following())
        made = {
            role: ending.enter_context(console_of(servers=stage.servers, index=index, role=role))
            for role in (Role.viewer, Role.reader, Role.operator)
        }
        found = f"{PAGE}?list=1&topic={stage.dlq}"
        until(lambda: "60 match" in words(made[Role.reader].ask(found).text))
        yield made


def lines(text: str) -> list[dict[str, object]]:
    """The dead letters of a file, in the order of their places."""
    found: list[dict[str, object]] = [json.loads(line) for line in text.splitlines()]
    return sorted(found, key=lambda each: (each["partition"], each["offset"]))


def test_it_is_what_the_command_exports(stage: Stage, consoles: dict[Role, Console]) -> None:
    """All that match, or those that are ticked; to be kept as a file, and with nothing hidden."""
    console = consoles[Role.reader]
    page = console.ask(f"{PAGE}?topic={stage.dlq}&key=k1").text
    assert f'formaction="{EXPORTS}"' in page
    assert "Redrive to" not in words(page)
    answer = console.send(EXPORTS, ("topic", stage.dlq), ("key", "k1"), ("all", "yes"))
    assert answer.status == 200
    assert answer.headers["content-disposition"] == f'attachment; filename="{stage.dlq}.jsonl"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "card-" not in answer.text
    said = CliRunner().invoke(dlq_app, ["export", stage.dlq, "--key", "k1"])
    assert lines(answer.text) == lines(said.stdout)
    assert len(lines(answer.text)) == 20
    places = [f"{stage.dlq}/{partition}/{offset}" for partition, offset in stage.places[:3]]
    ticked = console.send(EXPORTS, ("topic", stage.dlq), *(("place", each) for each in places))
    assert {f"{e['topic']}/{e['partition']}/{e['offset']}" for e in lines(ticked.text)} == {*places}


def test_who_may_not_see_payloads_gets_none(stage: Stage, consoles: dict[Role, Console]) -> None:
    """A viewer is not shown the button either; another site gets nothing."""
    fields = ("topic", stage.dlq), ("all", "yes")
    viewer = consoles[Role.viewer]
    assert "exports" not in viewer.ask(f"{PAGE}?topic={stage.dlq}&list=1").text
    assert viewer.send(EXPORTS, *fields).status == 403
    foreign = consoles[Role.reader].send(EXPORTS, *fields, Sec_Fetch_Site="cross-site")
    assert foreign.status == 403
    assert consoles[Role.reader].ask(f"{EXPORTS}?topic={stage.dlq}&all=yes").status == 405


def test_a_file_is_bounded(
    stage: Stage, consoles: dict[Role, Console], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In dead letters, bytes and time; the command that has no bound is named."""
    console, fields = consoles[Role.operator], (("topic", stage.dlq), ("all", "yes"))
    for name, value, why in (
        ("MOST", 59, "60 are meant, and a file has 59"),
        ("MOST_BYTES", 1_000, "they have more than 0 MiB"),
        ("LONGEST_S", -1.0, "they can't be read within -1 s"),
    ):
        with monkeypatch.context() as bounded:
            bounded.setattr(exports, name, value)
            refused = console.send(EXPORTS, *fields, ("reason", "exhausted"))
        assert refused.status == 413
        assert why in html.unescape(words(refused.text))
        assert f"ackfloor dlq export {stage.dlq} --reason=exhausted" in words(refused.text)


def test_what_is_no_form_of_the_page_is_refused(
    stage: Stage, consoles: dict[Role, Console]
) -> None:
    """A source topic is nobody's to read here; nor is what another topic has."""
    console = consoles[Role.reader]
    for fields, status in (
        ((("topic", stage.source), ("all", "yes")), 400),
        ((("topic", stage.dlq),), 400),
        ((("topic", stage.dlq), ("place", f"{stage.source}/0/0")), 400),
        ((("topic", "none--none--dlq"), ("all", "yes")), 404),
    ):
        assert console.send(EXPORTS, *fields).status == status, fields
