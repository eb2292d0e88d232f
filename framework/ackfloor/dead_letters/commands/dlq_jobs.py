"""`ackfloor dlq jobs|cancel`: jobs that redrive or dispose of dead letters: list and cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ackfloor.cli.shared.confirmation import confirm
from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption, OfGroupOption, YesOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, print_rows
from ackfloor.cli.shared.times import moment
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.values.printable import plain
from ackfloor.dead_letters.commands.selection import DeadLetterSelection, TopicsArgument
from ackfloor.errors import AckfloorError
from ackfloor.operations import TOPIC, ActionFilter, ActionLog
from ackfloor.redrive import operator

if TYPE_CHECKING:
    from ackfloor.dead_letters.rules.redrive_jobs import JobNote
    from ackfloor.kafka.client.client_options import KafkaOptions

#: Of so many of the newest actions the reasons are shown.
_MOST_ACTIONS: Final = 10_000
_CANCEL: Final = "dlq cancel"


def jobs(
    topics: TopicsArgument = None,
    group: OfGroupOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """The jobs of replay, discard and archive: what they did, how far they are, who asked.

    `silent`: it did not say that it ended, and nothing has been heard of it; it was killed, most
    likely. `dlq replay TOPIC --resume JOB` goes on with it, `dlq discard` likewise with its own.
    `because` is the reason that its operator gave, `why` is why it stopped.
    """
    opened = DeadLetterSelection.open(brokers)
    notes = [
        (topic, note)
        for topic in topics or opened.topics.names(group)
        for note in opened.topics.jobs(topic)
    ]
    reasons = _reasons(opened.options, [note for _, note in notes])
    rows = [_row(topic, note, reasons.get(note.job, "")) for topic, note in notes]
    if output is RowsOutput.table and not reasons:
        for row in rows:
            del row["because"]
    spare = ("why", "target", "because", "by", "last", "began", "of", "action")
    print_rows(rows, output, spare=spare)


def _reasons(options: KafkaOptions, notes: Sequence[JobNote]) -> Mapping[str, str]:
    """By job the last reason that was given for it, of those that are noted as actions."""
    if not notes:
        return {}
    since = ActionFilter(since_ms=min(note.began_ms for note in notes))
    try:
        actions = ActionLog(options).newest(since, _MOST_ACTIONS)
    except AckfloorError as exc:
        text = f"warning: reasons are not shown, as {TOPIC} can't be read: {plain(str(exc))}"
        typer.secho(text, fg="yellow", err=True)
        return {}
    found: dict[str, str] = {}
    for action in actions:
        job = action.arguments.get("job")
        if isinstance(job, str) and action.reason and action.action != _CANCEL:
            found.setdefault(job, action.reason)
    return {note.job: found[note.job] for note in notes if note.job in found}


def _row(topic: str, note: JobNote, because: str) -> dict[str, Any]:
    from ackfloor.dead_letters.kafka.redrive_notes import state_of

    return {
        "job": note.job,
        "state": state_of(note).value,
        "action": note.action,
        "done": note.done,
        "of": note.wanted,
        "began": moment(note.began_ms),
        "last": moment(note.at_ms),
        "by": note.by,
        "because": because,
        "topic": topic,
        "target": note.target,
        "why": note.why,
    }


def cancel(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The dead-letter topic.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job, as `dlq jobs` names it.")],
    yes: YesOption = False,
    because: ReasonOption = None,
    brokers: BrokersOption = OF_SETTINGS,
) -> None:
    """End a job, wherever it runs: it can write nothing more. What it has done stays done."""
    from ackfloor.dead_letters.kafka.redrive_cancel import cancelled

    noting = Noting(brokers, _CANCEL, because, {"job": job})
    reading = DeadLetterSelection.open(brokers)
    if not yes:
        confirm(f"End job {job}?", f"job {job} would be ended")
    parsed = parse_topic(topic)
    group = "" if parsed is None else parsed.group
    with noting.of([topic], group=group) as ending:
        note = cancelled(reading.options, topic, job, operator())
        ending.counts = {"done": note.done, "wanted": note.wanted}
    typer.echo(f"{note.job}: {note.state.value}, {note.done:,} of {note.wanted:,} {note.action}")
