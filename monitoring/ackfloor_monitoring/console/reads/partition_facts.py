"""PartitionFacts: one partition of a group, as its worker has it and as the group's commit has it.

What a run says is of now, and knows handlers; what is settled above the floor, and the log's end,
is in Kafka. Either may be missing. In broadcast mode each worker has every partition, and after a
rebalance two runs may name one for a moment: both are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ackfloor.cli.lanes.lane_list import waits_for
from ackfloor.cli.progress.partition_rows import Live, live_partitions, partition_row
from ackfloor.core.values.durations import format_rounded
from ackfloor.observe import Progress
from ackfloor_monitoring.console.reads.kafka_facts import OfKafka
from ackfloor_monitoring.console.reads.runs.run_facts import OfRuns

Row = Mapping[str, Any]


class Rank(IntEnum):
    """How bad something is, the worst first."""

    over = 0
    """A handler goes on beyond its deadline."""
    stuck = 1
    """Records wait for one that failed."""
    unowned = 2
    """Nobody has it, and records are open."""
    odd = 3
    """Its commit is not as it should be."""
    full = 4
    """It is not read on, because of what is open."""


class Trouble(NamedTuple):
    """Something that is wrong with a partition, in a few words."""

    rank: Rank
    text: str


#: Why a partition is not read on, in words; `PauseReason` has the reasons.
_FULL: Final = {
    "handler": "its handler takes no records",
    "open": "too many of its records are open",
    "waiting": "too many of its records wait",
    "span": "it is read too far above its floor",
    "metadata": "too much is settled above its floor",
    "worker": "its worker has too many open records",
}
#: These come and go while all is well; what waits in a retry topic is not due yet.
_USUAL: Final = frozenset({"open", "worker"})
_USUAL_IN_TIERS: Final = _USUAL | {"waiting"}


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition.

    Attributes:
        seen: its progress by the group's commit; nothing but its name where Kafka has not said.
        live: what its worker says of it; None where no run has it.
        run: that has it.
        running: those of its records that are in flight, as far as the run names them, the
            longest-running first.
        lanes: those that others wait for, likewise.
        handler: its handler in that run, as the page of handlers shows it; None without a run.
        more_running: whether its handler has more in flight than its run names.
        unowned: whether no member of the group has it, as far as Kafka knows.
    """

    seen: Progress
    live: Live | None = None
    run: str = ""
    running: Sequence[Row] = ()
    lanes: Sequence[Row] = ()
    handler: Row | None = None
    more_running: bool = False
    unowned: bool = False

    @property
    def place(self) -> str:
        """Its topic and number."""
        return f"{self.seen.topic}/{self.seen.partition}"

    @property
    def lag(self) -> int | None:
        """From the committed floor to the log's end."""
        if self.seen.lag is not None or self.live is None:
            return self.seen.lag
        end = self.live.part["high_watermark"]
        return None if end is None else max(0, end - self.live.part["floor"])

    @property
    def open(self) -> int | None:
        """How many of its records are open; without a worker also those that were not read."""
        if self.live is None:
            return self.seen.open
        count: int = self.live.part["open_count"]
        return count

    @property
    def open_for_s(self) -> float | None:
        """For how long its oldest open record has been open, in seconds; None: not known."""
        return None if self.live is None else self.live.open_for_s

    def row(self, width: int) -> Row:
        """As `ackfloor acks` shows it, with a map of so many cells at most."""
        return partition_row(self.seen, self.live, None, width)

    def troubles(self) -> list[Trouble]:
        """What is wrong with it, the worst first."""
        return sorted(self._troubles(), key=lambda each: each.rank)

    @property
    def _has_records(self) -> bool:
        return (self.seen.end or 0) > (self.seen.start or 0)

    def _troubles(self) -> Iterator[Trouble]:
        over = [each for each in self.running if (each["left_s"] or 0) < 0]
        if over:
            worst = min(over, key=lambda each: float(each["left_s"]))
            text = f"{_offset(worst)} is {format_rounded(-worst['left_s'])} over its deadline"
            yield Trouble(Rank.over, text)
        for each in self.lanes:
            yield Trouble(Rank.stuck, _of_lane(each))
        if self.unowned and self.seen.open:
            yield Trouble(Rank.unowned, "no worker has it")
        # That there is no commit is odd only where nobody is about to make one.
        awaited = self.seen.floor is None and (self.live is not None or not self._has_records)
        if self.seen.note and not awaited:
            yield Trouble(Rank.odd, self.seen.note)
        if self.live is not None:
            named = any(each["state"] == "blocked" for each in self.lanes)
            yield from _of_worker(self.live.part, named=named)


def _of_worker(part: Row, *, named: bool) -> Iterator[Trouble]:
    # An older run does not tell.
    blocked, reason = part.get("blocked"), part.get("pause_reason")
    if blocked and not named:
        yield Trouble(Rank.stuck, f"{blocked:,} records wait behind one that failed")
    usual = _USUAL if part["tier_s"] is None else _USUAL_IN_TIERS
    if reason and reason not in usual:
        yield Trouble(Rank.full, f"not read on: {_FULL.get(reason, reason)}")


def _of_lane(lane: Row) -> str:
    how = f"{lane['state']} for {waits_for(lane)}"
    return f"{how}: {lane['behind']:,} behind {_offset(lane)}"


def _offset(row: Row) -> str:
    parts = row["record"].split("/")
    return str(parts[2]) if len(parts) > 2 else "a record that is not known yet"


def partitions_of(
    runs: OfRuns | None, kafka: OfKafka | None, group: str | None = None
) -> Iterator[PartitionFacts]:
    """The partitions of a group, or of all, in no order; those of dead-letter topics are none."""
    seen: dict[tuple[str, str, int], tuple[Progress, bool]] = {}
    for look in kafka.looks if kafka is not None else ():
        for each in look.progress:
            if each.kind != "dlq" and group in {None, look.group}:
                unowned = look.members is not None and not each.owner
                seen[look.group, each.topic, each.partition] = each, unowned
    found = set[tuple[str, str, int]]()
    for facts in _of_runs(runs, seen, group) if runs is not None else ():
        found.add((facts.seen.group, facts.seen.topic, facts.seen.partition))
        yield facts
    for place, (progress, unowned) in seen.items():
        if place not in found:
            yield PartitionFacts(progress, unowned=unowned)


def _of_runs(
    runs: OfRuns, seen: Mapping[tuple[str, str, int], tuple[Progress, bool]], group: str | None
) -> Iterator[PartitionFacts]:
    handlers = {(each["run"], each["handler"]): each for each in runs.handlers()}
    running = _by_partition(runs.running(), "running_s")
    lanes = _by_partition(runs.lanes(), "blocked_s")
    for answer in runs.known():
        if group not in {None, answer.group}:
            continue
        named = _named(answer.state)
        for live in live_partitions(answer.state):
            topic, partition = live.part["topic"], live.part["partition"]
            place = answer.run, live.worker, f"{topic}/{partition}"
            kind = "source" if live.part["tier_s"] is None else "retry"
            unknown = Progress(answer.group, topic, partition, kind)
            yield PartitionFacts(
                seen.get((answer.group, topic, partition), (unknown, False))[0],
                live,
                answer.run,
                running.get(place, ()),
                lanes.get(place, ()),
                handlers.get((answer.run, live.part["handler"])),
                more_running=(live.worker, live.part["handler"]) not in named,
            )


def _by_partition(rows: Iterator[Row], age: str) -> dict[tuple[str, int, str], list[Row]]:
    """Rows about records by their run, worker and partition, those of the highest age first."""
    found: dict[tuple[str, int, str], list[Row]] = {}
    for row in sorted(rows, key=lambda each: -float(each[age])):
        topic, _, rest = row["record"].partition("/")
        place = row["run"], row["worker"], f"{topic}/{rest.partition('/')[0]}"
        found.setdefault(place, []).append(row)
    return found


def _named(state: Row) -> set[tuple[int, str]]:
    """The workers and handlers of which a run names all records in flight."""
    return {
        (int(number), handler["name"])
        for number, worker in state["workers"].items()
        if worker is not None
        for handler in worker["handlers"]
        if handler["running"] <= len(handler["oldest"])
    }
