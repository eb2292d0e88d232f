"""`ackfloor dlq discard|archive`: dispose of dead letters that need no handling any more.

They stay in Kafka unchanged. A disposition is written for each, which hides it.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    Brokers,
    BrokersOption,
    DryRunOption,
    MaxOption,
    Output,
    OutputOption,
    YesOption,
)
from ackfloor.dead_letters.commands.dead_letter_archive import DeadLetterArchive
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
from ackfloor.dead_letters.rules.redrive_rules import Order
from ackfloor.redrive import job_name, operator


def discard(
    places: PlacesArgument,
    wanted: FilterOptions,
    most: MaxOption = None,
    foreign: ForeignOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    because: ReasonOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Note dead letters as discarded: hidden, and sent nowhere again. None is deleted."""
    reading = DeadLetterSelection.open(brokers)
    order = Order(
        Places.of(places).topic, "", job_name(), operator(), None, most,
        action=Disposition.DISCARDED,
    )  # fmt: skip
    noting = _noting("dlq discard", brokers, order, Places.of(places), wanted, because)
    part = _part(reading, order, Places.of(places), wanted, foreign=foreign)
    carry_out([part], dry_run=dry_run, yes=yes, as_json=output is Output.json, noting=noting)


def archive(
    places: PlacesArgument,
    wanted: FilterOptions,
    file: Annotated[
        Path, typer.Option(help="Where they are kept, as `dlq export` writes them; appended to.")
    ],
    most: MaxOption = None,
    foreign: ForeignOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    because: ReasonOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Write dead letters to a file, and note them as archived: hidden, and sent nowhere again.

    Each is on the disk before it is noted. What [redaction] takes away is not in the file.
    """
    reading = DeadLetterSelection.open(brokers)
    order = Order(
        Places.of(places).topic, str(file.absolute()), job_name(), operator(), None, most,
        action=Disposition.ARCHIVED,
    )  # fmt: skip
    noting = _noting("dlq archive", brokers, order, Places.of(places), wanted, because)
    part = _part(reading, order, Places.of(places), wanted, foreign=foreign)
    if reading.rules.active:
        typer.secho("what [redaction] takes away will not be in the file", err=True)
    with ExitStack() as stack:
        if not dry_run:
            kept = stack.enter_context(DeadLetterArchive(file, order.dlq, reading.rules))
            part.keep = kept.keep
        as_json = output is Output.json
        carry_out([part], dry_run=dry_run, yes=yes, as_json=as_json, noting=noting)


def _noting(
    command: str,
    brokers: Brokers,
    order: Order,
    places: Places,
    wanted: DeadLetterFilter,
    because: str | None,
) -> Noting:
    """What is noted of it; raises SettingError where the reason is too long."""
    given = {
        "places": places.texts(),
        "filter": wanted.to_dict(),
        "file": order.to or None,
        "max": order.limit,
    }
    return Noting(brokers, command, because, given)


def _part(
    reading: DeadLetterSelection,
    order: Order,
    places: Places,
    wanted: DeadLetterFilter,
    *,
    foreign: bool,
) -> Part:
    """What is to be disposed of.

    Raises:
        RedriveRefused: no header marks these as dead letters, or they can't be read.
    """
    from ackfloor.dead_letters.kafka.redrive_job import RedriveJob

    job = RedriveJob(reading.options, order)
    chosen = reading.choose(places, wanted)
    if not foreign:
        chosen.refuse_unmarked(places.topic)
    return Part(job, chosen.offsets)
