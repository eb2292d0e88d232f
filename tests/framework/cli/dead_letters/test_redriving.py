"""Several dead-letter topics in one order: a maximum is shared, however often it is looked at."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from ackfloor.cli.shared.noting import Noting
from ackfloor.cli.shared.parameters import OF_SETTINGS
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.redrive_views import line_of, text_of
from ackfloor.dead_letters.commands.redriving import LeftOut, Part, carry_out
from ackfloor.dead_letters.rules.redrive_rules import Order, Target
from ackfloor.dead_letters.rules.redrive_tally import Preview, Tally
from ackfloor.errors import KafkaUnreachable
from ackfloor.operations import ActionNote, ActionState
from ackfloor.redrive import RedriveJob, select
from ackfloor.runtime.supervision.exit_codes import Exit


@dataclass
class Job:
    """A job whose dead letters all go, up to the maximum of its order."""

    order: Order
    topics: Any
    sent: int = 0

    def active(self) -> None:
        """Nobody else is at work."""

    def preview(self, wanted: dict[int, Any], **_: object) -> Preview:
        """As many as the order allows."""
        return Preview(self.topics.target, Tally().send(self._most(wanted)))

    def run(self, wanted: dict[int, Any], progress: Callable[[Tally], None], **_: object) -> Tally:
        """The same, sent; one at first."""
        self.sent = self._most(wanted)
        progress(Tally(sent=1, remaining=self.sent - 1))
        return Tally().send(self.sent)

    def _most(self, wanted: dict[int, Any]) -> int:
        assert self.order.limit is not None
        return min(self.order.limit, sum(map(len, wanted.values())))


def job(dlq: str) -> Job:
    """One with a maximum of five."""
    target = Target("t", 1, "retry")
    return Job(Order(dlq, "retry", "job", "me", limit=5), SimpleNamespace(target=target))


def test_the_bar_ends_where_the_work_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its total is what will be done: within the maximum, and without what was done before."""
    told: list[tuple[int, int]] = []

    @contextmanager
    def bar() -> Iterator[Callable[[int, int], None]]:
        yield lambda done, total: told.append((done, total))

    monkeypatch.setattr("ackfloor.dead_letters.commands.redriving.progress_bar", bar)
    wanted = select((0, n) for n in range(4))
    parts = [Part(cast("RedriveJob", job(name)), wanted) for name in "abc"]
    carry_out(parts, dry_run=False, yes=True, as_json=False)
    assert told == [(1, 5), (4, 5), (5, 5), (5, 5)]


def test_a_terminal_obeys_nothing_of_what_is_shown() -> None:
    """Handlers and errors are what headers say, which anybody may have written."""
    order = Order("d", "retry", "job", "me")
    preview = Preview(Target("t", 1, "retry"), Tally().send(1))
    preview.causes["bill\x1b[2J", "error", "E\x07"] = 1
    shown = text_of(order, preview, Redaction())
    assert "bill\\x1b[2J, error, E\\x07" in shown
    assert "\\x1b" in line_of(order, "t", Tally(stopped="\x1b[2J"))
    assert "\x1b" not in line_of(order, "t", Tally(stopped="\x1b[2J")) + shown


@pytest.mark.parametrize("yes", [True, False])
def test_what_was_asked_about_is_what_is_sent(
    yes: bool, terminal: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three of the first and two of the second, whether they were shown before or not."""
    questions: list[str] = []

    def agree(question: str, **_: object) -> bool:
        questions.append(question)
        return True

    monkeypatch.setattr("typer.confirm", agree)
    jobs = [job("a"), job("b"), job("c")]
    wanted = select((0, n) for n in range(3))
    parts = [Part(cast("RedriveJob", each), wanted) for each in jobs]
    carry_out(parts, dry_run=False, yes=yes, as_json=False)
    assert [each.sent for each in jobs] == [3, 2, 0]
    assert questions == ([] if yes else ["Send 5 dead letters?"])
    assert ("c to t" in capsys.readouterr().out) is False


class Away(Job):
    """A job whose broker has gone."""

    def run(self, wanted: dict[int, Any], progress: Callable[[Tally], None], **_: object) -> Tally:
        """Nothing is sent."""
        raise KafkaUnreachable("no broker answers")


@pytest.mark.parametrize("as_json", [True, False])
def test_what_was_sent_before_a_part_failed_is_told(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error comes after it; whoever asks again knows what is done."""
    first, target = job("a"), Target("t", 1, "retry")
    second = Away(Order("b", "retry", "job", "me", limit=5), SimpleNamespace(target=target))
    wanted = select((0, n) for n in range(3))
    parts = [Part(cast("RedriveJob", each), wanted) for each in (first, second)]
    with pytest.raises(KafkaUnreachable):
        carry_out(parts, dry_run=False, yes=True, as_json=as_json)
    told = capsys.readouterr().out
    if as_json:
        assert [(each["dlq"], each["sent"]) for each in json.loads(told)] == [("a", 3)]
    else:
        assert told == "a to t: 3 sent\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_topic_that_is_left_out_is_told_with_the_rest(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would be sent, and what was: each time with the reason, and exit code 5."""
    left_out = [LeftOut(Order("b", "retry", "job", "me"), 2, "no retry topic; name one")]
    for dry_run, verb, how in ((True, "would be sent", "would_send"), (False, "sent", "sent")):
        part = Part(cast("RedriveJob", job("a")), select((0, n) for n in range(3)))
        with pytest.raises(typer.Exit) as ended:
            carry_out([part], dry_run=dry_run, yes=True, as_json=as_json, left_out=left_out)
        assert ended.value.exit_code == Exit.PARTIAL
        told = capsys.readouterr().out
        if as_json:
            first, second = json.loads(told)
            assert (first["dlq"], first[how], "why" in first) == ("a", 3, False)
            assert (second["dlq"], second[how], second["left"]) == ("b", 0, {"no_target": 2})
            assert second["why"] == "no retry topic; name one"
        else:
            assert told == (
                f"a to t: 3 {verb}\nb: 0 {verb}\n          2  left out: no topic to go to\n"
                "  no retry topic; name one\n"
            )


def test_a_note_counts_what_was_left_out(notes: list[ActionNote]) -> None:
    """It ends as in part."""
    left_out = [LeftOut(Order("b", "retry", "job", "me"), 2, "no retry topic; name one")]
    part = Part(cast("RedriveJob", job("a")), select((0, n) for n in range(3)))
    noting = Noting(OF_SETTINGS, "dlq replay", None, {})
    with pytest.raises(typer.Exit):
        carry_out([part], dry_run=False, yes=True, as_json=False, noting=noting, left_out=left_out)
    assert notes[-1].state is ActionState.PARTIAL
    assert notes[-1].counts == {"done": 3, "no_target": 2}
