"""A partition's row, as `ackfloor acks` and the console show it: by its run, or by its commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ackfloor.cli.lanes.lane_list import blocked_of, quarantined_of
from ackfloor.cli.shared.rows import Row
from ackfloor.core.acks.ack_strip import ack_strip
from ackfloor.operations.run_client import workers_of

if TYPE_CHECKING:
    from ackfloor.core.acks.progress import Progress

COLUMNS: Final = (
    *("group", "partition", "floor", "map", "read_to", "open", "settled", "gaps", "oldest"),
    *("written_s_ago", "open_for_s", "handler", "seen", "note"),
)
#: How many failed records a note names.
MOST_NAMED: Final = 3

Place = tuple[str, int]


class Live(NamedTuple):
    """A partition in the state of a run.

    Attributes:
        worker: the number of the worker that has it.
        part: the partition's part of `/state`.
        busy: the offsets in flight, as far as `/state` names them.
        blocked: the offsets of failed records that block a key or partition, likewise.
        quarantined: the offsets of those whose key is quarantined, likewise.
        now_ms: the run's clock.
    """

    worker: int
    part: Mapping[str, Any]
    busy: Sequence[int]
    blocked: Sequence[int]
    quarantined: Sequence[int]
    now_ms: int

    @property
    def open_for_s(self) -> float | None:
        """For how long its oldest open record has been open, in seconds; None where none is."""
        since_ms = self.part["oldest_open_ms"]
        return None if since_ms is None else round((self.now_ms - since_ms) / 1000, 1)


def live_partitions(state: Mapping[str, Any]) -> Iterator[Live]:
    """The partitions that the workers of a run have."""
    for number, worker in workers_of(state):
        busy = _offsets(each for handler in worker["handlers"] for each in handler["oldest"])
        blocked = _offsets(lane for _, each in blocked_of(worker) for lane in each["oldest"])
        heads = (lane for _, each in quarantined_of(worker) for lane in each["oldest"])
        quarantined = _offsets(lane for lane in heads if lane["offset"] >= 0)
        for part in worker["partitions"]:
            place = part["topic"], part["partition"]
            yield Live(
                number,
                part,
                busy.get(place, []),
                blocked.get(place, []),
                quarantined.get(place, []),
                state["now_ms"],
            )


def _offsets(places: Iterable[Mapping[str, Any]]) -> dict[Place, list[int]]:
    """The offsets of records by their partition."""
    found: dict[Place, list[int]] = {}
    for each in places:
        found.setdefault((each["topic"], each["partition"]), []).append(each["offset"])
    return found


def partition_row(seen: Progress, live: Live | None, written_ms: int | None, width: int) -> Row:
    """What is known of a partition: as its run has it, or without one as the group's commit has it.

    Args:
        written_ms: when its oldest open record was written, in wall-clock ms; None: not known.
        width: of its map, in cells.
    """
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
        "note": seen.note or lanes_note(live),
        **facts,
    }
    return {name: row[name] for name in COLUMNS}


def lanes_note(live: Live | None) -> str:
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
    return {
        "floor": part["floor"],
        "read_to": part["position"],
        "open": part["open_count"],
        "settled": part["gap_count"],
        "oldest": part["floor"] if part["open_count"] else None,
        "open_for_s": live.open_for_s,
        "handler": part["handler"],
    }
