"""`ackfloor acks`: each partition's floor, its map of acks, and its oldest open record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ackfloor.cli.lanes.lane_list import blocked_of, quarantined_of
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
from ackfloor.cli.shared.run_address import ListenOption, state_if_any
from ackfloor.core.acks.ack_strip import WIDTH, ack_strip
from ackfloor.operations.run_client import address_of, workers_of

if TYPE_CHECKING:
    from ackfloor.core.acks.progress import Progress

COLUMNS = (
    *("group", "partition", "floor", "map", "read_to", "open", "settled", "gaps", "oldest"),
    *("written_s_ago", "open_for_s", "handler", "seen", "note"),
)
#: For a table to fit into a line: the width of its maps, and the columns that it leaves out.
TABLE_WIDTH = 16
NOT_IN_TABLES = frozenset({"settled", "written_s_ago", "open_for_s"})
#: The columns that a narrow table drops, in this order.
SPARE = ("read_to", "seen", "handler", "note", "oldest", "gaps", "map")

#: How many failed records a note names.
MOST_NAMED = 3

Place = tuple[str, int]


class Live(NamedTuple):
    """A partition in the state of a run.

    Attributes:
        part: the partition's part of `/state`.
        busy: the offsets in flight, as far as `/state` names them.
        blocked: the offsets of failed records that block a key or partition, likewise.
        quarantined: the offsets of those whose key is quarantined, likewise.
        now_ms: the run's clock.
    """

    part: Mapping[str, Any]
    busy: Sequence[int]
    blocked: Sequence[int]
    quarantined: Sequence[int]
    now_ms: int


def acks(
    place: PlaceArgument = None,
    group: GroupOption = None,
    watch: WatchOption = False,
    listen: ListenOption = None,
    brokers: BrokersOption = OF_SETTINGS,
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
    live = _live(state)
    return [
        _row(
            each,
            live.get((each.topic, each.partition)) if each.group == state.get("group") else None,
            written_ms.get((each.group, each.topic, each.partition)),
            width,
        )
        for each in found
    ]


def _live(state: Mapping[str, Any]) -> dict[Place, Live]:
    found: dict[Place, Live] = {}
    for _, worker in workers_of(state):
        busy = _offsets(each for handler in worker["handlers"] for each in handler["oldest"])
        blocked = _offsets(lane for _, each in blocked_of(worker) for lane in each["oldest"])
        heads = (lane for _, each in quarantined_of(worker) for lane in each["oldest"])
        quarantined = _offsets(lane for lane in heads if lane["offset"] >= 0)
        for part in worker["partitions"]:
            place = part["topic"], part["partition"]
            found[place] = Live(
                part,
                busy.get(place, []),
                blocked.get(place, []),
                quarantined.get(place, []),
                state["now_ms"],
            )
    return found


def _offsets(places: Iterable[Mapping[str, Any]]) -> dict[Place, list[int]]:
    """The offsets of records by their partition."""
    found: dict[Place, list[int]] = {}
    for each in places:
        found.setdefault((each["topic"], each["partition"]), []).append(each["offset"])
    return found


def _row(seen: Progress, live: Live | None, written_ms: int | None, width: int) -> Row:
    ago_s = None if written_ms is None else max(0.0, time.time() - written_ms / 1000)
    facts = _of_commit(seen) if live is None else _of_run(live)
    floor, read_to = facts["floor"], facts["read_to"]
    busy = () if live is None else live.busy
    row = {
        "group": seen.group,
        "partition": f"{seen.topic}/{seen.partition}",
        "gaps": len(seen.runs),
        "written_s_ago": None if ago_s is None else round(ago_s, 1),
        "seen": "commit" if live is None else "live",
        "map": "" if floor is None else ack_strip(floor, seen.runs, read_to or 0, busy, width),
        "note": seen.note or _lanes_note(live),
        **facts,
    }
    return {name: row[name] for name in COLUMNS}


def _lanes_note(live: Live | None) -> str:
    """Which failed records others wait for, the first few by their offsets."""
    if live is None or not (live.blocked or live.quarantined):
        return ""
    heads = (("blocked by", live.blocked), ("quarantined behind", live.quarantined))
    named = [f"{how} {_first_few(offsets)}" for how, offsets in heads if offsets]
    return f"{'; '.join(named)}: see `lanes ls`"


def _first_few(offsets: Sequence[int]) -> str:
    more = len(offsets) - MOST_NAMED
    named = ", ".join(map(str, sorted(offsets)[:MOST_NAMED]))
    return f"{named} and {more} more" if more > 0 else named


def _for_people(row: Row, group: str | None) -> Row:
    """The row of a table, with one age."""
    left_out = NOT_IN_TABLES if group is None else NOT_IN_TABLES | {"group"}
    age_s = row["written_s_ago"] if row["open_for_s"] is None else row["open_for_s"]
    last = ("age_s", "handler", "seen", "note")
    names = [*(name for name in COLUMNS if name not in {*left_out, *last}), *last]
    return {name: {**row, "age_s": age_s}[name] for name in names}


def _of_commit(seen: Progress) -> dict[str, Any]:
    floor, read_to = seen.floor, seen.read_to
    return {
        "floor": floor,
        "read_to": read_to,
        "open": None if floor is None or read_to is None else read_to - floor - seen.settled,
        "settled": seen.settled,
        "oldest": seen.oldest,
        "open_for_s": None,
        "handler": "",
    }


def _of_run(live: Live) -> dict[str, Any]:
    part = live.part
    since_ms = part["oldest_open_ms"]
    return {
        "floor": part["floor"],
        "read_to": part["position"],
        "open": part["open_count"],
        "settled": part["gap_count"],
        "oldest": part["floor"] if part["open_count"] else None,
        "open_for_s": None if since_ms is None else round((live.now_ms - since_ms) / 1000, 1),
        "handler": part["handler"],
    }
