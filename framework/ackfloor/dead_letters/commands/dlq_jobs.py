"""`ackfloor dlq jobs|cancel`: jobs that redrive or dispose of dead letters: list and cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackfloor.cli.shared.confirmation import confirm
from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption, OfGroupOption, YesOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, print_rows
from ackfloor.cli.shared.times import moment
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.commands.selection import DeadLetterSelection, TopicsArgument
from ackfloor.redrive import operator

if TYPE_CHECKING:
    from ackfloor.dead_letters.rules.redrive_jobs import JobNote


def jobs(
    topics: TopicsArgument = None,
    group: OfGroupOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """The jobs of replay, discard and archive: what they did, how far they are, who asked.

    `silent`: it did not say that it ended, and nothing has been heard of it; it was killed, most
    likely. `dlq replay TOPIC --resume JOB` goes on with it, `dlq discard` likewise with its own.
    """
    reading = DeadLetterSelection.open(brokers).topics
    rows = [
        _row(topic, note)
        for topic in topics or reading.names(group)
        for note in reading.jobs(topic)
    ]
    print_rows(rows, output, spare=("why", "target", "by", "last", "began", "of", "action"))


def _row(topic: str, note: JobNote) -> dict[str, Any]:
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

    noting = Noting(brokers, "dlq cancel", because, {"job": job})
    reading = DeadLetterSelection.open(brokers)
    if not yes:
        confirm(f"End job {job}?", f"job {job} would be ended")
    parsed = parse_topic(topic)
    group = "" if parsed is None else parsed.group
    with noting.of([topic], group=group) as ending:
        note = cancelled(reading.options, topic, job, operator())
        ending.counts = {"done": note.done, "wanted": note.wanted}
    typer.echo(f"{note.job}: {note.state.value}, {note.done:,} of {note.wanted:,} {note.action}")
