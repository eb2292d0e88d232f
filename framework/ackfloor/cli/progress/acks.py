"""`ackfloor acks`: each partition's floor, its map of acks, and its oldest open record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ackfloor.cli.progress.partition_rows import COLUMNS, live_partitions, partition_row
from ackfloor.cli.progress.progress_watch import (
    GroupOption,
    PlaceArgument,
    WatchOption,
    open_group_watch,
    place_of,
    show,
)
from ackfloor.cli.shared.parameters import OF_SETTINGS, RunBrokersOption
from ackfloor.cli.shared.rows import Row, RowsOption, RowsOutput
from ackfloor.cli.shared.run_address import ListenOption, state_if_any
from ackfloor.core.acks.ack_strip import WIDTH
from ackfloor.operations.run_client import address_of

if TYPE_CHECKING:
    from ackfloor.core.acks.progress import Progress

#: For a table to fit into a line: the width of its maps, and the columns that it leaves out.
TABLE_WIDTH = 16
NOT_IN_TABLES = frozenset({"settled", "written_s_ago", "open_for_s"})
#: The columns that a narrow table drops, in this order.
SPARE = ("read_to", "seen", "handler", "note", "oldest", "gaps", "map")


def acks(
    place: PlaceArgument = None,
    group: GroupOption = None,
    watch: WatchOption = False,
    listen: ListenOption = None,
    brokers: RunBrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Show the floor of each partition, what is settled above it, and what it waits for.

    All of it comes from the group's commits, so no worker has to run. For partitions of a run that
    answers at its address, "seen" is "live": the row is as of now, with the handler, how long the
    oldest open record has been open, and the offsets in flight.

    A table has one age, "age_s": how long the oldest record has been open or, if only the commit is
    known, how long ago it was written. The other forms have both, and more.

    "gaps" counts the runs of settled offsets above the floor. The map goes from the floor to the
    position that the group has read to: █ settled, ▒ partly, · open, ▸ in flight.
    """
    named = place_of(place)
    if listen is not None:
        address_of(listen)
    with open_group_watch(group, brokers) as looking:

        def look() -> Sequence[Row]:
            found = [each for each in looking.look(named) if named or each.kind != "dlq"]
            table = output is RowsOutput.table
            width = TABLE_WIDTH if table else WIDTH
            rows = _rows(
                found, state_if_any(listen, brokers.source), looking.written_ms(found), width
            )
            return [_for_people(row, group) for row in rows] if table else rows

        show(look, COLUMNS, output, SPARE, watch=watch)


def _rows(
    found: Sequence[Progress],
    state: Mapping[str, Any],
    written_ms: Mapping[tuple[str, str, int], int],
    width: int,
) -> Sequence[Row]:
    live = {(each.part["topic"], each.part["partition"]): each for each in live_partitions(state)}
    return [
        partition_row(
            each,
            live.get((each.topic, each.partition)) if each.group == state.get("group") else None,
            written_ms.get((each.group, each.topic, each.partition)),
            width,
        )
        for each in found
    ]


def _for_people(row: Row, group: str | None) -> Row:
    """The row of a table, with one age."""
    left_out = NOT_IN_TABLES if group is None else NOT_IN_TABLES | {"group"}
    age_s = row["written_s_ago"] if row["open_for_s"] is None else row["open_for_s"]
    last = ("age_s", "handler", "seen", "note")
    names = [*(name for name in COLUMNS if name not in {*left_out, *last}), *last]
    return {name: {**row, "age_s": age_s}[name] for name in names}
