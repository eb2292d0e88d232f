"""FloorRecord: the record that a partition's floor waits for, and what keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ackfloor_monitoring.console.pages.console_page import Page
from ackfloor_monitoring.console.pages.handlers_page import HANDLERS
from ackfloor_monitoring.console.pages.in_flight_page import IN_FLIGHT
from ackfloor_monitoring.console.pages.lanes_page import LANES
from ackfloor_monitoring.console.reads.partition_facts import PartitionFacts, Row


@dataclass(frozen=True, slots=True)
class FloorRecord:
    """One.

    Attributes:
        place: topic, partition and offset.
        open_s: for how long it has been open, in seconds; None where it is not known.
        running: its row among the deliveries in flight; None where it is not named there.
        lane: its row among the records that others wait for; None likewise.
        hints: what may keep it, in sentences, where neither names it; each with the page that
            shows more, or None.
    """

    place: str
    open_s: float | None
    running: Row | None
    lane: Row | None
    hints: tuple[tuple[str, Page | None], ...] = ()

    @property
    def closer(self) -> list[Page]:
        """The pages that show more of it."""
        found = [(IN_FLIGHT, self.running), (LANES, self.lane)]
        return [page for page, row in found if row is not None]


def floor_record(facts: PartitionFacts) -> FloorRecord | None:
    """That of a partition; None where nothing is open that was read."""
    row = facts.row(1)
    if row["oldest"] is None or not row["open"]:
        return None
    place = f"{facts.place}/{row['oldest']}"
    running = next((each for each in facts.running if each["record"] == place), None)
    lane = next((each for each in facts.lanes if each["record"] == place), None)
    hints = () if running or lane else tuple(_hints(facts))
    return FloorRecord(place, row["open_for_s"], running, lane, hints)


def _hints(facts: PartitionFacts) -> Iterator[tuple[str, Page | None]]:
    if facts.live is None:
        return
    part = facts.live.part
    if part["parking"]:
        yield f"{_records(part['parking'])} to be written to another topic, and not yet", None
    if part["waiting"]:
        yield f"{_records(part['waiting'])} waiting for their time", None
    handler = facts.handler or {"paused": "", "breaker": []}
    if handler["paused"]:
        yield f"the handler is paused: {handler['paused']}", HANDLERS
    states = [each for each in handler["breaker"] if each not in {"", "closed"}]
    if states:
        yield f"the handler's circuit breaker: {', '.join(states)}", HANDLERS
    if facts.more_running:
        yield "the handler has more in flight than its run names: it may be among those", IN_FLIGHT


def _records(count: int) -> str:
    return f"{count:,} record{' is' if count == 1 else 's are'}"
