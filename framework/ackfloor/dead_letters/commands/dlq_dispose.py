"""`ackfloor dlq discard|archive`: dispose of dead letters that need no handling any more.

They stay in Kafka unchanged. A disposition is written for each, which hides it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ackfloor.cli.shared.command_options import Made
from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    Brokers,
    BrokersOption,
    DryRunOption,
    MaxOption,
    Output,
    OutputOption,
    ResumeOption,
    YesOption,
)
from ackfloor.dead_letters.commands.dead_letter_archive import DeadLetterArchive
from ackfloor.dead_letters.commands.dlq_replay import (
    Replay,
    noted_arguments,
    part_of,
    refuse_another_action,
    resumed,
)
from ackfloor.dead_letters.commands.filter_options import FilterOptions
from ackfloor.dead_letters.commands.redriving import Part, carry_out
from ackfloor.dead_letters.commands.selection import (
    DeadLetterSelection,
    ForeignOption,
    Places,
    PlacesArgument,
)
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.dispositions import Disposition
from ackfloor.dead_letters.rules.redrive_rules import MAX_REPLAYS, Order
from ackfloor.redrive import job_name, operator


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which dead letters are meant, and how they are disposed of."""

    places: Places
    wanted: DeadLetterFilter
    most: int | None
    foreign: bool
    dry_run: bool
    yes: bool
    because: str | None
    brokers: Brokers
    output: Output

    def order(self, action: Disposition, to: str = "") -> Order:
        """To dispose of them so."""
        job, topic = job_name(), self.places.topic
        return Order(topic, to, job, operator(), None, self.most, action=action)

    def noting(self, command: str, order: Order) -> Noting:
        """What is noted of it; raises SettingError where the reason is too long."""
        given = {
            "places": self.places.texts(),
            "filter": self.wanted.to_dict(),
            "file": order.to or None,
            "max": order.limit,
        }
        return Noting(self.brokers, command, self.because, given)

    def part(self, reading: DeadLetterSelection, order: Order) -> Part:
        """What is to be disposed of.

        Raises:
            RedriveRefused: no header marks these as dead letters, or they can't be read.
        """
        from ackfloor.dead_letters.kafka.redrive_job import RedriveJob

        job = RedriveJob(reading.options, order)
        chosen = reading.choose(self.places, self.wanted)
        if not self.foreign:
            chosen.refuse_unmarked(self.places.topic)
        return Part(job, chosen.offsets)

    def discards(self) -> Replay:
        """What is asked for, so that the job can be resumed by its note."""
        return Replay(
            self.places, self.wanted, "", self.most, MAX_REPLAYS, action=Disposition.DISCARDED
        )

    def refuse_selection(self) -> None:
        """Raises typer.BadParameter where more than the job says what is meant."""
        if self.wanted != DeadLetterFilter() or self.most is not None or self.places.only:
            raise typer.BadParameter(
                "the job says what is meant: give only the topic, and --dry-run or --yes",
                param_hint="--resume",
            )

    def carry_out(self, part: Part, noting: Noting) -> None:
        """Do it, once it is confirmed; raises typer.Exit where not all was done."""
        as_json = self.output is Output.json
        carry_out([part], dry_run=self.dry_run, yes=self.yes, as_json=as_json, noting=noting)


def _asked(
    places: PlacesArgument,
    wanted: FilterOptions,
    most: MaxOption = None,
    foreign: ForeignOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    because: ReasonOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> _Asked:
    meant = Places.of(places)
    return _Asked(meant, wanted, most, foreign, dry_run, yes, because, brokers, output)


_AskedOption = Annotated[_Asked, Made(_asked)]


def discard(asked: _AskedOption, resume: ResumeOption = None) -> None:
    """Note dead letters as discarded: hidden, and sent nowhere again. None is deleted."""
    if resume is not None:
        asked.refuse_selection()
    reading = DeadLetterSelection.open(asked.brokers)
    if resume is None:
        order, what = asked.order(Disposition.DISCARDED), asked.discards()
        noting = asked.noting("dlq discard", order)
    else:
        order, what = resumed(reading, asked.places.topic, resume, operator())
        refuse_another_action(order, Disposition.DISCARDED)
        given = noted_arguments(what, None, resume)
        noting = Noting(asked.brokers, "dlq discard", asked.because, given)
    # Who began a job has said so.
    part = part_of(reading, order, what, foreign=asked.foreign or resume is not None)
    asked.carry_out(part, noting)


def archive(
    asked: _AskedOption,
    file: Annotated[
        Path, typer.Option(help="Where they are kept, as `dlq export` writes them; appended to.")
    ],
) -> None:
    """Write dead letters to a file, and note them as archived: hidden, and sent nowhere again.

    Each is on the disk before it is noted. What [redaction] takes away is not in the file.
    """
    reading = DeadLetterSelection.open(asked.brokers)
    order = asked.order(Disposition.ARCHIVED, str(file.absolute()))
    noting = asked.noting("dlq archive", order)
    part = asked.part(reading, order)
    if reading.rules.active:
        typer.secho("what [redaction] takes away will not be in the file", err=True)
    with ExitStack() as stack:
        if not asked.dry_run:
            kept = stack.enter_context(DeadLetterArchive(file, order.dlq, reading.rules))
            part.keep = kept.keep
        asked.carry_out(part, noting)
