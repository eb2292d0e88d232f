"""`ackfloor lag`: how far groups are behind, as Kafka and as ackfloor see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackfloor.cli.progress.progress_watch import GroupOption, WatchOption, open_group_watch, show
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


def lag(
    group: GroupOption = None,
    watch: WatchOption = False,
    brokers: BrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Show how far groups are behind: source topics, retry topics and dead letters.

    "lag" is the same as in Kafka's own tools: from the committed floor to the log's end. "open" is
    the part of it that is not settled: without the records above the floor that are handled, and
    without those that retention has removed. Of dead letters, those that were replayed, discarded
    or archived are settled. No worker has to run, and nothing is changed.
    """
    with open_group_watch(group, brokers) as looking:
        show(lambda: [_row(each) for each in looking.look()], COLUMNS, output, SPARE, watch=watch)


def _row(progress: Progress) -> Row:
    return {name: getattr(progress, name) for name in COLUMNS}
