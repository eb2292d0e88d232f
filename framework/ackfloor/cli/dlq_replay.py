"""`ackfloor dlq replay`: dead letters back to work, each once, killed and resumed or not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackfloor.cli.letter_options import DryRunOption, MaxOption, YesOption, filtered
from ackfloor.cli.letter_reading import LetterReading, Places, PlacesArgument
from ackfloor.cli.parameters import ConfigOption, Output, OutputOption, ServersOption
from ackfloor.cli.redriving import Part, carry_out, rate_of
from ackfloor.core.letter_filter import LetterFilter
from ackfloor.core.redrive import MAX_REPLAYS, TO_RETRY, Order
from ackfloor.errors import RedriveRefused
from ackfloor.redrive import job_name, operator

if TYPE_CHECKING:
    from ackfloor.core.redrive_jobs import JobNote


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay was asked for: given on the command line, or read from the note of its job.

    Attributes:
        ends: partition -> offset; what is at or behind it came later and is not meant. None where
            everything is.
        topic_id: of the dead-letter topic when the job began; "" where that is not known.
    """

    places: Places
    wanted: LetterFilter
    to: str
    limit: int | None
    max_replays: int
    ends: dict[int, int] | None = None
    topic_id: str = ""

    def told(self) -> dict[str, Any]:
        """As the note of the job has it."""
        return {
            "places": self.places.texts(),
            "filter": self.wanted.told(),
            "to": self.to,
            "max": self.limit,
            "max_replays": self.max_replays,
            "ends": {str(partition): end for partition, end in (self.ends or {}).items()},
            "topic_id": self.topic_id,
        }

    @classmethod
    def of(cls, topic: str, note: JobNote) -> Replay:
        """The same again.

        Raises:
            RedriveRefused: another command, or a newer version, has written the note.
        """
        asked = note.asked
        try:
            return cls(
                Places.of(asked["places"] or [topic]),
                LetterFilter.of(asked["filter"]),
                asked["to"],
                asked["max"],
                asked["max_replays"],
                {int(partition): int(end) for partition, end in asked["ends"].items()},
                asked["topic_id"],
            )
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise RedriveRefused(
                f"--resume={note.job!r}: not a job of this command; give the command that began "
                "it again, and it goes on"
            ) from exc


@filtered
def replay(
    places: PlacesArgument,
    wanted: LetterFilter,
    to: Annotated[
        str | None,
        typer.Option(
            envvar="ACKFLOOR_DLQ_TO",
            help="`retry`: the first retry topic, so that only this group sees them; `source`: the "
            "topic they came from; or a topic.",
            show_default=TO_RETRY,
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(envvar="ACKFLOOR_DLQ_RATE", help='At most so many: "50/s" or "3000/m".'),
    ] = None,
    most: MaxOption = None,
    max_replays: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="ACKFLOOR_DLQ_MAX_REPLAYS",
            help="What was replayed so often stays where it is.",
            show_default=str(MAX_REPLAYS),
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="JOB",
            envvar="ACKFLOOR_DLQ_RESUME",
            help="Go on with this job, which `dlq jobs` names: what it was asked for, and no more.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    bootstrap_servers: ServersOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Put dead letters back to work, with their budget whole. Nothing is sent without --yes.

    Each is sent once in effect: killed or asked for again, the command goes on where it was. What
    was replayed, discarded or archived before is left out. Exits with 5 where some were not sent.
    """
    named, rate_per_s, as_json = Places.of(places), rate_of(rate), output is Output.json
    given = (to, most, max_replays, named.only)
    if resume and (wanted != LetterFilter() or any(each is not None for each in given)):
        raise typer.BadParameter(
            "the job says what is meant: give only the topic, and --rate, --dry-run or --yes",
            param_hint="--resume",
        )
    reading = LetterReading.open(bootstrap_servers, config)
    if resume:
        order, asked = _resumed(reading, named.topic, resume)
    else:
        asked = Replay(named, wanted, to or TO_RETRY, most, max_replays or MAX_REPLAYS)
        order = Order(named.topic, asked.to, job_name(), operator(), limit=most)
    order = replace(order, rate_per_s=rate_per_s, max_replays=asked.max_replays)
    part = _part(reading, order, asked)
    carry_out([part], dry_run=dry_run, yes=yes, as_json=as_json)


def _resumed(reading: LetterReading, topic: str, job: str) -> tuple[Order, Replay]:
    """The order of a job that was ended, with what is left of its maximum."""
    notes = {note.job: note for note in reading.boxes.jobs(topic)}
    if job not in notes:
        raise RedriveRefused(
            f"--resume={job!r}: no such job; `ackfloor dlq jobs {topic}` lists them"
        )
    note = notes[job]
    asked = Replay.of(topic, note)
    left = None if asked.limit is None else asked.limit - note.done
    if left is not None and left < 1:
        raise RedriveRefused(f"--resume={job!r}: the job has sent its {asked.limit:,}")
    return Order(topic, asked.to, job, operator(), limit=left, before=note.done), asked


def _part(reading: LetterReading, order: Order, asked: Replay) -> Part:
    """The job, refused before anything is read where it can't be done, and what it is to send."""
    from ackfloor.kafka.redrive import RedriveJob

    job = RedriveJob(reading.options, order)
    topic_id = job.topics.dlq_id
    if asked.topic_id not in {"", topic_id}:
        raise RedriveRefused(
            f"--resume={order.job!r}: {order.dlq} was deleted and created anew since, and holds "
            "other dead letters"
        )
    chosen = reading.choose(asked.places, asked.wanted, asked.ends)
    if asked.ends is None:
        asked = replace(asked, ends=chosen.ends, topic_id=topic_id)
    job.order = replace(order, asked=asked.told())
    return Part(job, chosen.offsets)
