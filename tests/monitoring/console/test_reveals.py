"""A look at what redaction hides: an admin's, noted first, and on no page of anybody else."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from ackfloor.core.records.redaction import Redaction
from ackfloor.errors import KafkaUnreachable
from ackfloor.operations import ActionLog, ActionNote, ActionState
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.access.tokens import add_token
from ackfloor_monitoring.console.pages import dead_letter_page
from tests.monitoring.console.dead_letter_source import DLQ, DeadLetterSource
from tests.monitoring.console.page_text import SCRIPT, Tags, words
from tests.monitoring.console.served_console import Answer, Console
from tests.monitoring.console.test_dead_letter_pages import Serve, serve, source

__all__ = ["serve", "source"]

REVEALS, EDITS = "/c/kafka/reveals", "/c/kafka/edits"
PLACE = f"{DLQ}/0/0"
PAGE = f"/c/kafka/dead-letters/{PLACE}"
RULES = "[redaction]\nkey = 'drop'\npayload = 'drop'\nheaders = ['auth']\npatterns = ['4111']\n"
#: What the index keeps is hidden likewise.
HIDES = Redaction(payload="drop", key="drop", headers=("auth",), patterns=("4111",))
HIDDEN = ("hidden-key", "hidden-payload", "hidden-header", "4111")


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch, source: DeadLetterSource) -> list[Any]:
    """What was noted, and when a dead letter was read, in their order; there is one."""
    found = list[Any]()
    monkeypatch.setattr(ActionLog, "write", lambda _log, note: found.append(note))
    read = dead_letter_page.one_dead_letter

    def noted(*arguments: Any) -> Any:
        found.append("read")
        return read(*arguments)

    monkeypatch.setattr(dead_letter_page, "one_dead_letter", noted)
    source.bury(
        key=b"hidden-key", value=b'{"card": "hidden-payload"}', own=[("auth", b"hidden-header")],
        error_message="card 4111 refused", error_stack="at 4111",
    )  # fmt: skip
    Path("ackfloor.toml").write_text(RULES)
    return found


def reveal(console: Console, place: str = PLACE, reason: str = "INC-17", **headers: str) -> Answer:
    """Ask for it."""
    return console.send(REVEALS, ("place", place), ("reason", reason), **headers)


def field(name: str, text: str) -> str:
    """A hidden field of a page."""
    found = re.search(rf'name="{name}" value="([^"]*)"', text)
    assert found is not None, text
    return html.unescape(found[1])


def test_an_admin_sees_all_of_it_once_it_is_noted(serve: Serve, happened: list[Any]) -> None:
    """With the reason, before anything is read; the page itself still hides it."""
    with serve(HIDES, role=Role.admin) as console:
        page = console.ask(PAGE)
        assert field("place", page.text) == PLACE
        happened.clear()
        shown = reveal(console)
        after = console.ask(PAGE)
    assert shown.status == 200, words(shown.text)
    assert shown.headers["cache-control"] == "no-store"
    for text in HIDDEN:
        assert text in shown.text
        assert text not in page.text + after.text
    begun, read, done, *_ = happened
    assert read == "read"
    assert isinstance(begun, ActionNote)
    assert (begun.action, begun.state, begun.reason) == ("dlq reveal", ActionState.BEGUN, "INC-17")
    assert (begun.targets, begun.group, begun.arguments["places"]) == ((DLQ,), "billing", [PLACE])
    assert (done.id, done.state, done.counts) == (begun.id, ActionState.DONE, {"done": 1})
    assert not [text for text in HIDDEN if text in f"{begun.to_bytes()!r}{done.to_bytes()!r}"]
    assert begun.id in shown.text
    assert field("look", shown.text) == begun.id
    assert html.unescape(re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", shown.text)[0]) == (
        '{"card": "hidden-payload"}'
    )


def test_nothing_is_shown_that_can_not_be_noted(
    serve: Serve, happened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor read."""

    def refused(_log: ActionLog, _note: ActionNote) -> None:
        raise KafkaUnreachable("may not be written")

    monkeypatch.setattr(ActionLog, "write", refused)
    with serve(role=Role.admin) as console:
        answer = reveal(console)
    assert answer.status == 503
    assert "nothing was done: it can&#39;t be noted in ackfloor--actions" in words(answer.text)
    assert not [text for text in HIDDEN if text in answer.text]
    assert happened == []


@pytest.mark.parametrize("role", [Role.viewer, Role.reader, Role.operator])
def test_nobody_else_sees_it(serve: Serve, happened: list[Any], role: Role) -> None:
    """Whatever they send; their page has no such form, and nothing is noted or read for them."""
    with serve(HIDES, role=role) as console:
        page = console.ask(PAGE)
        happened.clear()
        answers = [
            reveal(console),
            console.send(EDITS, ("place", PLACE), ("look", "x"), ("value", "{}")),
            console.ask(f"{EDITS}/20261128-1"),
            console.send(f"{EDITS}/20261128-1", ("reason", "why")),
        ]
    assert page.status == 200
    assert "Reveal it" not in page.text
    for answer in answers:
        assert answer.status == 403
        operator = role is Role.operator
        why = "only an admin may do that" if operator else f"a {role} may look, not act"
        assert why in words(answer.text)
    assert not [text for text in HIDDEN if text in page.text + "".join(a.text for a in answers)]
    assert happened == []


def test_a_link_or_another_site_reveals_nothing(serve: Serve, happened: list[Any]) -> None:
    """Only a form of the console's own pages does, of who says why, for what is there."""
    with serve(role=Role.admin) as console:
        asked = console.ask(f"{REVEALS}?place={PLACE}&reason=x")
        foreign = reveal(console, Sec_Fetch_Site="cross-site", Origin="https://evil.example")
        silent = reveal(console, Sec_Fetch_Site="")
        no_reason = reveal(console, reason="  ")
        long = reveal(console, reason="x" * 300)
        none = reveal(console, place="orders/x")
        large = reveal(console, reason="x" * 70_000)
        elsewhere = console.send("/c/other/reveals", ("place", PLACE), ("reason", "x"))
        assert happened == []
        gone = reveal(console, place=f"{DLQ}/0/9")
    assert [each.status for each in (asked, foreign, silent, no_reason, long)] == [
        405, 403, 403, 400, 400,
    ]  # fmt: skip
    assert [each.status for each in (none, large, elsewhere, gone)] == [404, 413, 404, 404]
    begun, _, failed = happened
    assert (begun.state, failed.state) == (ActionState.BEGUN, ActionState.FAILED)
    assert "is not there" in failed.error


def test_what_is_revealed_stays_text_and_is_bounded(
    serve: Serve, source: DeadLetterSource, happened: list[Any]
) -> None:
    """A stored script is not obeyed, in the payload's field neither; what is large is cut."""
    raw = f"</textarea>{SCRIPT}".encode()
    source.bury(key=raw, value=raw, own=[(SCRIPT, raw)], error_message=SCRIPT)
    source.bury(key=b"k" * 9_000, value=b"v" * 900_000)
    with serve(role=Role.admin) as console:
        page = reveal(console, place=f"{DLQ}/0/1")
        large = reveal(console, place=f"{DLQ}/0/2")
    assert (page.status, large.status) == (200, 200)
    tags = Tags(page.text)
    assert not tags.scripts
    assert tags.sources == ["/static/console.js"]
    assert "img" not in tags.names
    assert html.unescape(re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", page.text)[0]) == (
        raw.decode()
    )
    assert len(large.text) < 60_000
    assert "Not in a browser: it has more than 65,536 bytes" in words(large.text)
    assert "<textarea" not in large.text
    assert happened


def test_a_correction_follows_a_look_of_the_same_person(
    serve: Serve, source: DeadLetterSource, happened: list[Any], tmp_path: Path
) -> None:
    """At the same dead letter, which is still the same."""
    source.bury()
    tokens = tmp_path / "tokens.toml"
    secrets = {name: add_token(tokens, f"{name}:admin") for name in ("ann", "bob")}
    with serve(token_file=tokens) as console:
        as_ann, as_bob = ({"Authorization": f"Bearer {secrets[n]}"} for n in ("ann", "bob"))
        look = field("look", reveal(console, **as_ann).text)

        def correct(who: dict[str, str], place: str = PLACE, look: str = look) -> Answer:
            given = ("place", place), ("look", look), ("value", '{"card": 1}')
            return console.send(EDITS, *given, **who)

        refused = [
            correct(as_bob),
            correct(as_ann, place=f"{DLQ}/0/1"),
            correct(as_ann, look="20261128-1"),
        ]
        source.logs[0][0] = source.logs[0][1]
        refused.append(correct(as_ann))
    assert [each.status for each in refused] == [409] * 4
    assert "a look of the last hour" in words(refused[0].text)
    assert "it is another record now" in words(refused[3].text)
    assert not [text for text in HIDDEN if text in "".join(each.text for each in refused)]
    assert {note.by for note in happened if isinstance(note, ActionNote)} == {"ann"}
