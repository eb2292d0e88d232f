"""AckMap: what became of each offset from the floor to where a partition is read to, in cells.

It is the strip of `ackfloor acks`, wider, and tells more: of what is open what is in flight and how
much of its time is used, and which failed records others wait for; of what is settled what was
parked, as the index has it. A cell is one offset, or equally many where there are more offsets than
cells; it shows the worst of what is in it.

What is settled above the floor is in the group's last commit, and a run is ahead of that: it says
how many offsets it has settled there, not which. As long as it has settled more than the commit
lists, an offset that nothing else names is not known yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, NamedTuple

from ackfloor.core.acks.ack_strip import OPEN, PARTLY, SETTLED, ack_strip
from ackfloor.core.values.durations import format_rounded
from ackfloor_monitoring.console.reads.partition_facts import PartitionFacts, Row

#: Cells at most: a few lines on a desk, some more on a phone.
CELLS: Final = 240
#: Ranges of a map that are said in words.
RANGES: Final = 60
#: Parked records that a cell names.
NAMED: Final = 3

#: The kinds of cells, the worst first, each with what the legend says of it.
KINDS: Final[Mapping[str, str]] = {
    "over": "in flight beyond its deadline",
    "blocked": "failed, and others wait for it",
    "half": "in flight, more than half of its time used",
    "running": "in flight",
    "dead": "in the dead-letter topic",
    "parked": "in a retry topic",
    "open": "open: it waits for a slot, or for its time",
    "unknown": "not known yet: open, settled since the last commit, or gone on elsewhere",
    "disposed": "was in the dead-letter topic: replayed, discarded or archived",
    "partly": "partly settled",
    "settled": "settled above the floor",
}
_RANKS: Final = {kind: rank for rank, kind in enumerate(KINDS)}
_PLAIN: Final = {SETTLED: "settled", PARTLY: "partly", OPEN: "open"}


@dataclass(frozen=True, slots=True)
class Cell:
    """Some offsets.

    Attributes:
        kind: one of `KINDS`.
        first, last: the first and the last of them.
        text: what is in flight, failed or parked there; "" where nothing is.
        parked: those of which the index has more, the first few.
    """

    kind: str
    first: int
    last: int
    text: str = ""
    parked: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """Which offsets, and what became of them."""
        where = f"{self.first:,}"
        if self.last > self.first:
            where += f" to {self.last:,}"
        return f"{where}: {self.text or KINDS[self.kind]}"


@dataclass(frozen=True, slots=True)
class AckMap:
    """That of one partition.

    Attributes:
        floor: where it begins.
        until: the position behind its last offset.
        cells: in the order of their offsets.
        unknown: how many offsets are settled of which the commit does not say which.
    """

    floor: int
    until: int
    cells: Sequence[Cell]
    unknown: int = 0

    @property
    def offsets(self) -> int:
        """How many offsets a cell has, the most."""
        return max((each.last - each.first + 1 for each in self.cells), default=0)

    def kinds(self) -> Sequence[tuple[str, str]]:
        """Those that are there, with what they mean, as a legend names them."""
        there = {each.kind for each in self.cells}
        return [(kind, text) for kind, text in KINDS.items() if kind in there]

    def ranges(self) -> Iterator[Cell]:
        """Cells that follow each other and are alike, as one."""
        for _, cells in groupby(self.cells, lambda each: (each.kind, each.text)):
            alike = list(cells)
            yield replace(alike[0], last=alike[-1].last)


class ParkedOffset(NamedTuple):
    """An offset whose record was parked: settled here, and its life goes on elsewhere.

    Attributes:
        kind: "parked", "dead", "disposed" or "unknown".
        text: what became of it.
    """

    offset: int
    kind: str
    text: str


def ack_map(
    facts: PartitionFacts, parked: Iterable[ParkedOffset] = (), most: int = CELLS
) -> AckMap | None:
    """The map of a partition; None where nothing is known, or all that was read is settled."""
    row = facts.row(most)
    floor, until = row["floor"], row["read_to"]
    if floor is None or until is None or until <= floor:
        return None
    strip = ack_strip(floor, facts.seen.runs, until, (), most)
    count, span = len(strip), until - floor
    bounds = [floor + n * span // count for n in range(count + 1)]
    cells = [Cell(_PLAIN[each], bounds[n], bounds[n + 1] - 1) for n, each in enumerate(strip)]
    unknown = _unknown(facts, floor, until)
    if unknown:
        cells = [_not_known(cell, floor) for cell in cells]

    def cell_of(offset: int) -> int:
        # The last cell that begins at the offset or before it.
        at: int = ((offset - floor + 1) * count - 1) // span
        return at

    within = (each for each in parked if floor <= each.offset < until)
    for at, some in groupby(sorted(within), lambda each: cell_of(each.offset)):
        cells[at] = _with_parked(cells[at], list(some))
    for offset, kind, text in _records(facts):
        if floor <= offset < until:
            cells[cell_of(offset)] = _with(cells[cell_of(offset)], kind, text)
    return AckMap(floor, until, cells, unknown)


def _unknown(facts: PartitionFacts, floor: int, until: int) -> int:
    """How many offsets the run has settled above its floor beyond those that the commit lists."""
    if facts.live is None:
        return 0
    known = sum(max(0, min(end, until) - max(start, floor)) for start, end in facts.seen.runs)
    settled: int = facts.live.part["gap_count"]
    return max(0, settled - known)


def _not_known(cell: Cell, floor: int) -> Cell:
    """An open cell may be settled by now; but for the floor, which is open."""
    return replace(cell, kind="unknown") if cell.kind == "open" and cell.first > floor else cell


def _with_parked(cell: Cell, some: Sequence[ParkedOffset]) -> Cell:
    """A cell with records that were parked; what is certain of a single one says all."""
    texts = [each.text for each in some[:NAMED]]
    if len(some) > NAMED:
        texts.append(f"{len(some) - NAMED:,} more were parked")
    certain = cell.first == cell.last
    kinds = [each.kind for each in some] + ([] if certain else [cell.kind])
    worst = min(kinds, key=lambda each: _RANKS[each])
    offsets = tuple(each.offset for each in some[:NAMED])
    return Cell(worst, cell.first, cell.last, "; ".join(texts), offsets)


def _with(cell: Cell, kind: str, text: str) -> Cell:
    """A cell in which there is something else as well."""
    worst = min(cell.kind, kind, key=lambda each: _RANKS[each])
    both = "; ".join(filter(None, (cell.text, text)))
    return replace(cell, kind=worst, text=both)


def _records(facts: PartitionFacts) -> Iterable[tuple[int, str, str]]:
    """The records of which more is known: offset, kind of cell, and what there is to say."""
    for lane in facts.lanes:
        offset = _offset_of(lane)
        if lane["state"] == "blocked" and offset is not None:
            yield offset, "blocked", f"{offset:,} failed, {lane['behind']:,} behind"
    for row in facts.running:
        offset = _offset_of(row)
        if offset is not None:
            yield offset, _kind_of(row), f"{offset:,} in flight, {_time_of(row)}"


def _offset_of(row: Row) -> int | None:
    """The offset of the record that a row is about; None where it is not known yet."""
    parts = row["record"].split("/")
    return int(parts[2]) if len(parts) == 3 else None


def _kind_of(row: Row) -> str:
    left_s = row["left_s"]
    if left_s is None:
        return "running"
    if left_s < 0:
        return "over"
    return "half" if row["running_s"] > left_s else "running"


def _time_of(row: Row) -> str:
    running, left_s = format_rounded(row["running_s"]), row["left_s"]
    if left_s is None:
        return f"running for {running}"
    if left_s < 0:
        return f"running for {running}, {format_rounded(-left_s)} over its deadline"
    return f"running for {running}, {format_rounded(left_s)} left"
