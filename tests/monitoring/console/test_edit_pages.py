"""The page of a correction: its text is there until it is sent, and as long as the look lasts."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState
from ackfloor.dead_letters.rules.redrive_rules import Left
from ackfloor.errors import KafkaUnreachable
from ackfloor.operations import ActionLog, ActionNote
from ackfloor.redrive import Order, Preview, Tally, Target
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.acts.corrections import reveals
from ackfloor_monitoring.console.acts.corrections.edits import Edits
from ackfloor_monitoring.console.acts.corrections.reveals import LOOK_S
from ackfloor_monitoring.console.acts.kept_forms import Carrying, KeptForms
from tests.framework.kafka.wire import until
from tests.monitoring.console.dead_letter_source import DLQ
from tests.monitoring.console.page_text import words
from tests.monitoring.console.served_console import Console
from tests.monitoring.console.test_dead_letter_pages import Serve, serve, source
from tests.monitoring.console.test_reveals import EDITS, HIDES, PLACE, field, happened, reveal

__all__ = ["happened", "serve", "source"]

TEXT = '{"card": "hidden-and-mended"}'
J, C = TypeVar("J"), TypeVar("C", bound=Carrying)


class Broker:
    """Jobs without Kafka: how they end is told to this, and which other one is there."""

    def __init__(self) -> None:
        self.ends = Tally(sent=1)
        self.other: JobNote | None = None
        self.topics = SimpleNamespace(dlq_id="id-1")

    def job(self, order: Order) -> Any:
        """A job of an order."""
        preview = Preview(Target("orders--billing--retry-1s", 1, "retry"), Tally(sent=1))
        return SimpleNamespace(
            order=order,
            topics=self.topics,
            preview=lambda _wanted: preview,
            active=lambda: self.other,
            is_noted=True,
            run=lambda _wanted, **_told: self.ends,
        )


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, happened: list[Any]) -> Broker:
    """In place of one."""
    del happened
    made = Broker()
    monkeypatch.setattr(Edits, "_job", lambda _edits, order: made.job(order))
    return made


def judged(console: Console) -> str:
    """The address of a correction that was judged."""
    look = field("look", reveal(console).text)
    answer = console.send(EDITS, ("place", PLACE), ("look", look), ("value", TEXT))
    assert answer.status == 303, words(answer.text)
    return answer.headers["location"]


def ended(console: Console, address: str) -> str:
    """Its page once it was confirmed and is over."""
    assert console.send(address, ("reason", "INC-17")).status == 303
    until(lambda: "It runs" not in console.ask(address).text)
    return console.ask(address).text


def texts(page: str) -> list[str]:
    """What can be corrected on a page."""
    return [html.unescape(each) for each in re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", page)]


def busy(broker: Broker, _patch: pytest.MonkeyPatch) -> None:
    """Another job has begun."""
    broker.other = JobNote(
        "other", "replayed", JobState.RUNNING, "bob", "host", 1, "t", 3, 9, 1, 1, 1
    )


def unnoted(_broker: Broker, patch: pytest.MonkeyPatch) -> None:
    """The notes can't be written any more."""

    def refused(_log: ActionLog, _note: ActionNote) -> None:
        raise KafkaUnreachable("may not be written")

    patch.setattr(ActionLog, "write", refused)


def away(broker: Broker, _patch: pytest.MonkeyPatch) -> None:
    """Nothing can be written to the topic."""
    broker.ends = Tally(stopped="nothing could be written for 60 s")


def too_large(broker: Broker, _patch: pytest.MonkeyPatch) -> None:
    """The topic does not take it."""
    broker.ends = Tally().leave(Left.TOO_LARGE)


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (busy, "job other of bob runs on"),
        (unnoted, "nothing was done: it can't be noted"),
        (away, "Stopped: nothing could be written for 60 s"),
        (too_large, "It was left out"),
    ],
)
def test_what_was_not_sent_can_be_sent_again(
    serve: Serve,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[Broker, pytest.MonkeyPatch], None],
    says: str,
) -> None:
    """Nobody has to type it once more."""
    with serve(HIDES, role=Role.admin) as console:
        address = judged(console)
        happens(broker, monkeypatch)
        page = ended(console, address)
    said = html.unescape(words(page))
    assert "It was not sent." in said
    assert says in said
    assert texts(page) == [TEXT]
    assert field("look", page)


def test_what_was_sent_is_not_shown_any_more(serve: Serve, broker: Broker) -> None:
    """The page has an address, and who sees it looks at nothing that is noted."""
    with serve(HIDES, role=Role.admin) as console:
        address = judged(console)
        before = console.ask(address).text
        after = ended(console, address)
    assert broker.ends.sent == 1
    assert texts(before) == [TEXT]
    assert "hidden-payload" in before
    assert "It was sent, corrected." in words(after)
    assert "26 bytes of JSON become 29 bytes of JSON" in words(after)
    assert not [each for each in ("hidden-payload", "hidden-and-mended") if each in after]
    assert texts(after) == []


class Aging(KeptForms[J, C]):
    """Looks on a clock of the test's."""

    now_s = 0.0

    def __init__(self, **more: Any) -> None:
        super().__init__(clock=lambda: Aging.now_s, **more)


def test_a_page_shows_no_more_than_its_look_did(
    serve: Serve, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the look is over, what was not sent is hidden as well, and it says how to go on."""
    monkeypatch.setattr(reveals, "KeptForms", Aging)
    monkeypatch.setattr(Aging, "now_s", 0.0)
    away(broker, monkeypatch)
    with serve(HIDES, role=Role.admin) as console:
        address = judged(console)
        assert texts(ended(console, address)) == [TEXT]
        monkeypatch.setattr(Aging, "now_s", LOOK_S + 1)
        page = console.ask(address).text
    assert "Your look is over" in words(page)
    assert f"/dead-letters/{DLQ}/0/0" in page
    assert not [each for each in ("hidden-payload", "hidden-and-mended") if each in page]
