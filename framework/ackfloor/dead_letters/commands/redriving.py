"""Redriving: runs a job on the command line: dry run, confirmation, progress, exit code.

    parts = [Part(RedriveJob(options, order), wanted)]
    carry_out(parts, dry_run=False, yes=False, as_json=False)

The same for every command that selects dead letters: show what would be done, ask, do it, show the
result. It is public for the commands of other packages.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.redaction import Redaction
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.commands.redrive_views import (
    DONE,
    TO_DO,
    counted_dead_letters,
    left_out_text,
    line_of,
    progress_bar,
    report_of,
    result_of,
    text_of,
)
from ackfloor.dead_letters.rules.redrive_edit import Edit, unedited
from ackfloor.dead_letters.rules.redrive_jobs import busy_text
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, Left, Order, Target, Wanted
from ackfloor.dead_letters.rules.redrive_tally import Preview, Tally
from ackfloor.errors import RedriveBusy
from ackfloor.operations import Ending
from ackfloor.operations.noted import end_by_tallies
from ackfloor.redrive import parse_rate
from ackfloor.runtime.supervision.exit_codes import Exit

if TYPE_CHECKING:
    from ackfloor.cli.shared.noting import Noting
    from ackfloor.dead_letters.kafka.redrive_job import RedriveJob

__all__ = ["LeftOut", "Part", "carry_out", "rate_of"]


@dataclass(slots=True)
class Part:
    """One dead-letter topic of a job.

    Attributes:
        older: how many of those asked for belong to an earlier topic of this name.
        keep: given each batch before it is disposed of.
        edit: given each dead letter, returns it as it is to be sent.
        rules: what is masked in an edit that is shown.
    """

    job: RedriveJob
    wanted: Wanted
    older: int = 0
    keep: Callable[[Sequence[DeadLetter]], None] = lambda _dead_letters: None
    edit: Edit = unedited
    rules: Redaction = field(default_factory=Redaction)

    def __len__(self) -> int:
        return sum(map(len, self.wanted.values())) + self.older


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A dead-letter topic that was meant, and whose dead letters have no topic to go to.

    Attributes:
        order: what was asked for.
        count: how many of its dead letters were meant.
        why: which topic is missing, and what to do.
    """

    order: Order
    count: int
    why: str

    @property
    def tally(self) -> Tally:
        """The counts: none is sent."""
        return Tally().leave(Left.NO_TARGET, self.count)


def rate_of(text: str | None) -> float | None:
    """Records a second, from what `--rate` was given.

    Raises:
        typer.BadParameter: it is no rate.
    """
    import typer

    try:
        return None if text is None else parse_rate(text)
    except SettingError as exc:
        raise typer.BadParameter(str(exc), param_hint="--rate") from None


def carry_out(
    parts: list[Part],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    noting: Noting | None = None,
    left_out: Sequence[LeftOut] = (),
) -> None:
    """Show, ask, run, note, and print the result.

    Args:
        parts: with one and the same action.
        dry_run: only show.
        yes: do not ask.
        noting: what is noted of it in the actions topic; None for nothing.
        left_out: topics that were meant as well. They are shown, and they count as left.

    Raises:
        typer.Exit: 1 nothing could be done, 2 no confirmation, 5 some is left; for a dry run, 5
            where topics are left out.
        RedriveBusy: another job works on one of these topics.
        RedriveRefused, KafkaUnreachable: as the job raises them.
    """
    import typer

    from ackfloor.cli.shared.confirmation import confirm

    if not any(map(len, parts)):
        typer.secho("no dead letter matches: nothing was done", err=True)
        if as_json:
            typer.echo("[]")
        return
    if dry_run or not yes:
        previews = _previews(parts)
        _show(previews, left_out, as_json=as_json)
        if dry_run:
            if left_out:
                raise typer.Exit(Exit.PARTIAL)
            return
        action = parts[0].job.order.action
        count = counted_dead_letters(sum(preview.tally.sent for _, preview in previews))
        confirm(f"{TO_DO[action]} {count}?", f"{count} would be {DONE[action]}")
    elif any(part.edit is not unedited for part in parts):
        # Edits are tried on all before anything is sent.
        _previews(parts)
    for part in parts:
        if (other := part.job.active()) is not None:
            raise RedriveBusy(busy_text(part.job.order.dlq, other))
    with _noted(parts, noting) as ending:
        tallies = [*_run(parts, left_out, as_json=as_json), *(each.tally for each in left_out)]
        end_by_tallies(ending, tallies)
    if not all(tally.complete for tally in tallies):
        some = any(tally.sent for tally in tallies)
        raise typer.Exit(Exit.PARTIAL if some else Exit.FAILURE)


def _noted(parts: Sequence[Part], noting: Noting | None) -> AbstractContextManager[Ending]:
    """Note what is done with the dead letters of these topics, which are one group's, mostly."""
    if noting is None:
        return nullcontext(Ending())
    topics = [part.job.order.dlq for part in parts]
    groups = {parsed.group for topic in topics if (parsed := parse_topic(topic)) is not None}
    group = groups.pop() if len(groups) == 1 else ""
    return noting.of(topics, group, parts[0].job.order.job)


def _previews(parts: list[Part]) -> list[tuple[Part, Preview]]:
    """What would be done."""
    previews: list[tuple[Part, Preview]] = []
    for part in _within_max(parts, lambda: sum(preview.tally.sent for _, preview in previews)):
        preview = part.job.preview(part.wanted, edit=part.edit)
        preview.tally = _with_older(preview.tally, part)
        previews.append((part, preview))
    return previews


def _show(
    previews: Sequence[tuple[Part, Preview]], left_out: Sequence[LeftOut], *, as_json: bool
) -> None:
    import typer

    if as_json:
        reports = [report_of(part.job.order, each, part.rules) for part, each in previews]
        for one in left_out:
            nothing = Preview(Target("", 0, one.order.to), one.tally)
            reports.append({**report_of(one.order, nothing, Redaction()), "why": one.why})
        typer.echo(json.dumps(reports, indent=2))
        return
    for part, each in previews:
        typer.echo(text_of(part.job.order, each, part.rules))
    for one in left_out:
        would = f"would be {DONE[one.order.action]}"
        typer.echo(left_out_text(one.order, one.tally, one.why, would))
    if len(previews) > 1:
        action = previews[0][0].job.order.action
        count = sum(each.tally.sent for _, each in previews)
        typer.echo(f"in all: {count:,} would be {DONE[action]}")


def _run(parts: list[Part], left_out: Sequence[LeftOut], *, as_json: bool) -> list[Tally]:
    done: list[tuple[Part, Tally]] = []
    try:
        _run_all(parts, done)
    finally:
        # Where a later part fails, what the ones before have done is told all the same.
        if done:
            _tell(done, left_out, as_json=as_json)
    return [tally for _, tally in done]


def _run_all(parts: list[Part], done: list[tuple[Part, Tally]]) -> None:
    """Run the parts one after the other, and note each with what it did."""
    most = parts[0].job.order.limit
    with _interrupts() as stopping, progress_bar() as advance:

        def sent() -> int:
            return sum(tally.sent for _, tally in done)

        def tell(tally: Tally, later: int) -> None:
            total = sent() + tally.sent + tally.remaining + later
            advance(sent() + tally.sent, total if most is None else min(total, most))

        for number, part in enumerate(_within_max(parts, sent), 1):
            # How many of these were disposed of before is known only when they are read.
            later = sum(sum(map(len, each.wanted.values())) for each in parts[number:])
            tally = part.job.run(
                part.wanted,
                progress=lambda tally, later=later: tell(tally, later),  # type: ignore[misc]
                stopping=lambda: bool(stopping),
                keep=part.keep,
                edit=part.edit,
            )
            tell(tally, later)
            done.append((part, _with_older(tally, part)))


def _tell(
    done: Sequence[tuple[Part, Tally]], left_out: Sequence[LeftOut], *, as_json: bool
) -> None:
    """Print what was done and what was left out, of several parts also the sum."""
    import typer

    results = [(each.job.order, each.job.topics.target.topic, tally) for each, tally in done]
    if as_json:
        rest = [{**result_of(one.order, "", one.tally), "why": one.why} for one in left_out]
        typer.echo(json.dumps([*(result_of(*each) for each in results), *rest], indent=2))
        return
    for each in results:
        typer.echo(line_of(*each))
    for one in left_out:
        typer.echo(left_out_text(one.order, one.tally, one.why))
    if len(results) > 1:
        count = sum(tally.sent for _, tally in done)
        typer.echo(f"in all: {count:,} {DONE[results[0][0].action]}")


def _within_max(parts: Iterable[Part], sent: Callable[[], int]) -> Iterator[Part]:
    """The parts, each with what the ones before have left of the maximum."""
    for part in parts:
        order = part.job.order
        if order.limit is not None:
            if (left := order.limit - sent()) < 1:
                return
            # Whoever resumes this part alone is held to what was left for it.
            bound = {"max": left + order.before} if "max" in order.asked else {}
            part.job.order = replace(order, limit=left, asked={**order.asked, **bound})
        yield part
        # The parts are gone through twice: for the dry run, and for the job.
        part.job.order = order


def _with_older(tally: Tally, part: Part) -> Tally:
    return tally.leave(Left.GONE, part.older) if part.older else tally


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """The first SIGINT or SIGTERM ends the job after its transaction; a second one at once."""
    seen: list[int] = []

    def note(number: int, _frame: object) -> None:
        seen.append(number)
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
