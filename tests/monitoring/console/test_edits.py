"""A payload is corrected in the console, on a real broker: looked at, compared, sent once, kept."""

from __future__ import annotations

import hashlib
import html
import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ackfloor.core.records.envelope import read_envelope
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor.dead_letters.kafka.redrive_job import RedriveJob
from ackfloor.dead_letters.rules.redrive_edit import read_mark
from ackfloor.errors import KafkaUnreachable
from ackfloor.operations import ActionLog, ActionNote
from ackfloor.redrive import operator
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from tests.framework.kafka.wire import until
from tests.monitoring.console.page_text import SCRIPT, Tags, words
from tests.monitoring.console.served_console import Answer, Console, console_of
from tests.monitoring.console.test_redrives import confirm, ended, index, noted, stage
from tests.monitoring.console.test_resumes import resume, shown
from tests.monitoring.console.test_reveals import EDITS, field, reveal
from tests.redrive_stage import Stage

__all__ = ["index", "stage"]

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("console")]

#: The dead letter that is corrected has this payload.
NUMBER = 7
BEFORE = b'{"total": 7}'


@pytest.fixture
def admin(stage: Stage) -> Iterator[Console]:
    """A console of an admin, where payloads are hidden."""
    Path("ackfloor.toml").write_text("[redaction]\npayload = 'drop'\n")
    with console_of(servers=stage.servers, role=Role.admin) as served:
        yield served


def place_of(stage: Stage) -> str:
    """Of the dead letter that is corrected."""
    partition, offset = stage.places[NUMBER]
    return f"{stage.dlq}/{partition}/{offset}"


def correct(console: Console, place: str, value: str, **more: str) -> Answer:
    """Look at a dead letter, and send a payload for it."""
    look = field("look", reveal(console, place).text)
    fields = {"place": place, "look": look, "value": value, **more}
    return console.send(EDITS, *fields.items())


def judged(console: Console, stage: Stage, value: str, **more: str) -> str:
    """The address of a correction that was judged."""
    answer = correct(console, place_of(stage), value, **more)
    assert answer.status == 303, words(answer.text)
    return answer.headers["location"]


def test_a_payload_is_corrected_and_sent_once(stage: Stage, admin: Console) -> None:
    """After a look that was noted, a check and a difference; marked; in no note."""
    place = place_of(stage)
    assert "total" not in admin.ask(f"/c/kafka/dead-letters/{place}").text
    broken = judged(admin, stage, '{"total": seven}')
    page = admin.ask(broken)
    said = html.unescape(words(page.text))
    assert "It can't be sent: it was JSON and is none now: line 1, column 11" in said
    assert "Send it corrected" not in said
    assert '{"total": seven}</textarea>' in html.unescape(page.text)
    refused = admin.send(broken, ("reason", "INC-17"))
    assert (refused.status, "it was JSON" in words(refused.text)) == (400, True)

    after = json.dumps({"total": f"seven {SCRIPT}"}, indent=1)
    address = judged(admin, stage, after.replace("\n", "\r\n"))
    page = admin.ask(address)
    diff = html.unescape(re.findall('<pre class="diff">(.*?)</pre>', page.text, re.DOTALL)[0])
    assert diff.splitlines() == [
        " {", '- "total": 7', f'+ "total": {json.dumps(f"seven {SCRIPT}")}', " }",
    ]  # fmt: skip
    tags = Tags(page.text)
    assert not tags.scripts
    assert tags.sources == ["/static/console.js"]
    assert "img" not in tags.names
    assert stage.read(stage.tier) == []
    assert admin.send(address, ("reason", " ")).status == 400
    for _ in range(2):
        confirm(admin, address, "INC-17, the till is mended")
    assert "It was sent, corrected." in ended(admin, address)

    assert stage.sent_once() == 1
    [sent] = stage.read(stage.tier)
    envelope = read_envelope(sent.headers())
    mark = read_mark(envelope.edited or "")
    assert sent.value() == after.encode()
    assert (envelope.origin_topic, envelope.origin_offset) == (stage.source, NUMBER)
    assert (mark.was, mark.by) == (hashlib.sha256(BEFORE).hexdigest(), operator())
    assert abs((mark.at_ms or 0) - time.time() * 1000) < 600_000
    assert stage.kept_edits() == []
    notes = [each for each in noted() if stage.dlq in str(each["targets"])]
    assert [each["action"] for each in notes] == ["dlq replay", "dlq reveal", "dlq reveal"]
    last: Any = notes[0]
    assert (last["state"], last["reason"]) == ("done", "INC-17, the till is mended")
    assert last["arguments"]["revealed"] == notes[1]["id"]
    assert "seven" not in json.dumps(notes)
    again = admin.ask(judged(admin, stage, "{}"))
    assert "left out: replayed, discarded or archived before" in words(again.text)
    assert "Send it corrected" not in again.text


def test_it_goes_nowhere_unnoted_nor_elsewhere(
    stage: Stage, admin: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the source topic where that is asked for; another one, or a payload too large, is none."""
    none = correct(admin, place_of(stage), "{}", to="other-topic")
    large = correct(admin, place_of(stage), "x" * 70_000)
    form = correct(admin, place_of(stage), "x" * 300_000)
    assert [each.status for each in (none, large, form)] == [400, 400, 413]
    same = admin.ask(judged(admin, stage, BEFORE.decode()))
    assert "It can't be sent: nothing is changed" in html.unescape(words(same.text))
    address = judged(admin, stage, '{"total": 8}', to="source")
    assert f"To {stage.source} " in words(admin.ask(address).text)

    def refused(_log: ActionLog, _note: ActionNote) -> None:
        raise KafkaUnreachable("may not be written")

    monkeypatch.setattr(ActionLog, "write", refused)
    confirm(admin, address)
    assert "nothing was done: it can't be noted" in ended(admin, address)
    assert (stage.read(stage.source), stage.read(stage.tier)) == ([], [])
    assert stage.dispositions not in stage.admin.list_topics(timeout=60).topics


def die(*_arguments: object) -> None:
    """End this process, as the kernel does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def console_that_is_killed(servers: str, place: str, value: str) -> None:
    """In a process of its own: confirm a correction, and be killed before it is sent."""
    RedriveJob._send = die  # type: ignore[method-assign]
    with console_of(servers=servers, role=Role.admin) as console:
        address = correct(console, place, value).headers["location"]
        console.send(address, ("reason", "INC-17"))
        time.sleep(120)


def test_a_correction_goes_on_after_its_console_was_killed(
    stage: Stage, index: DeadLetterIndex, admin: Console
) -> None:
    """What was confirmed is sent, by whoever may act, who sees nothing of it."""
    del admin
    spawn, value = multiprocessing.get_context("spawn"), '{"total": "seven"}'
    process = spawn.Process(
        target=console_that_is_killed, args=(stage.servers, place_of(stage), value)
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert stage.read(stage.tier) == []
    assert [each.value.decode() for each in stage.kept_edits()] == [value]
    [job] = json.loads(CliRunner().invoke(dlq_app, ["jobs", stage.dlq, "-o", "json"]).stdout)
    assert (job["state"], job["done"], job["of"]) == ("silent", 0, 1)
    meant = ["replay", stage.dlq, "--resume", job["job"]]
    dry = CliRunner().invoke(dlq_app, [*meant, "--dry-run", "-o", "json"])
    [report] = json.loads(dry.stdout)
    assert (report["would_send"], report["edited"]) == (1, 1)
    assert report["changes"][0]["lines"] == ["what is changed is hidden by [redaction]"]

    with console_of(servers=stage.servers, index=index, role=Role.operator) as console:
        until(lambda: f'value="{job["job"]}">Go on with it' in shown(console, stage))
        order = resume(console, stage, job["job"]).headers["location"]
        pages = shown(console, stage) + console.ask(order).text
        confirm(console, order)
        pages += ended(console, order)
    assert "1 of 1 sent, 1 of them now." in pages
    assert "seven" not in pages
    [sent] = stage.read(stage.tier)
    mark = read_mark(read_envelope(sent.headers()).edited or "")
    assert (sent.value(), mark.was) == (value.encode(), hashlib.sha256(BEFORE).hexdigest())
    assert stage.sent_once() == 1
    assert stage.kept_edits() == []
    again = CliRunner().invoke(dlq_app, [*meant, "--yes"])
    assert "keeps no edit any more" in str(again.exception)
    assert stage.sent_once() == 1
