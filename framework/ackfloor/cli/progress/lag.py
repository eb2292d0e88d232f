"""`ackfloor lag`: how far groups are behind, as Kafka and as ackfloor see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.progress.progress_watch import (
    GroupOption,
    PlaceArgument,
    WatchOption,
    open_group_watch,
    place_of,
    show,
)
from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption
from ackfloor.cli.shared.rows import Row, RowsOption, RowsOutput

if TYPE_CHECKING:
    from ackfloor.core.acks.progress import Progress

COLUMNS = (
    *("group", "topic", "partition", "kind", "floor", "end"),
    *("lag", "settled", "open", "owner", "note"),
)
#: The columns that a narrow table drops, in this order.
SPARE = ("owner", "settled", "kind", "note", "end", "floor")
#: The columns that a last row of a table adds up.
SUMMED = ("lag", "settled", "open")


def lag(
    place: PlaceArgument = None,
    group: GroupOption = None,
    min_lag: Annotated[
        int | None,
        typer.Option(min=0, help="Only partitions with at least this lag, or as many open."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="In a table, also the partitions that it leaves out.")
    ] = False,
    watch: WatchOption = False,
    brokers: BrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Show how far groups are behind: source topics, retry topics and dead letters.

    "lag" is the same as in Kafka's own tools: from the committed floor to the log's end. "open" is
    the part of it that is not settled: without the records above the floor that are handled, and
    without those that retention has removed. Of dead letters, those that were replayed, discarded
    or archived are settled. No worker has to run, and nothing is changed.

    A table leaves out partitions that have nothing to add up and nothing to note, and ends with
    the totals of each group. The other forms have all rows and no totals.
    """
    named = place_of(place)
    with open_group_watch(group, brokers) as looking:

        def look() -> Sequence[Row]:
            found = [each for each in looking.look(named) if _behind(each, min_lag)]
            if output is RowsOutput.table:
                return _for_people(found, every=every or min_lag is not None)
            return [_row(each) for each in found]

        show(look, COLUMNS, output, SPARE, watch=watch)


def _behind(progress: Progress, least: int | None) -> bool:
    return least is None or max(progress.lag or 0, progress.open or 0) >= least


def _for_people(found: Sequence[Progress], *, every: bool) -> Sequence[Row]:
    """The rows of a table, with the totals of all that was found, also of what is left out."""
    shown = [_row(each) for each in found if every or _is_shown(each)]
    groups = list(dict.fromkeys(each.group for each in found))
    totals = [_total(name, [each for each in found if each.group == name]) for name in groups]
    if len(groups) > 1:
        totals.append(_total("all groups", found))
    return [*shown, *totals]


def _is_shown(progress: Progress) -> bool:
    """Whether there is something to add up or to note."""
    return bool(progress.note) or any(getattr(progress, name) for name in SUMMED)


def _total(group: str, found: Sequence[Progress]) -> Row:
    sums = {name: sum(getattr(each, name) or 0 for each in found) for name in SUMMED}
    return {**dict.fromkeys(COLUMNS), "group": group, "topic": "total", **sums}


def _row(progress: Progress) -> Row:
    return {name: getattr(progress, name) for name in COLUMNS}
