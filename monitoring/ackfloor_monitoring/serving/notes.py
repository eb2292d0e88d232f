"""Notes: what people should know of a run that is ready all the same.

They stand beside the reasons of `/readyz` and never make a run unready: a restart or a load
balancer can't mend what they say, or an operator wants it so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from ackfloor.core.values.durations import format_duration, format_rounded
from ackfloor.observe import (
    BlockedLane,
    BlockedLanes,
    HandlerSnapshot,
    RunningDelivery,
    SettingsState,
    Snapshot,
)

Note = dict[str, str]
#: What `BlockedLane.head` says of a dead-lettered record that keeps its key quarantined.
HELD = "held"


def settings_notes(state: SettingsState) -> Iterator[Note]:
    """Why a run works by older settings than somebody wants."""
    if state.error:
        yield {"check": "settings", "message": f"the old settings stay: {state.error}"}
    for worker, why in sorted(state.refused_by.items()):
        yield {"check": "settings", "message": f"worker {worker} kept its old settings: {why}"}
    if state.needs_restart:
        message = f"changed in the file, and needs a restart: {', '.join(state.needs_restart)}"
        yield {"check": "settings", "message": message}


def metric_notes(left_out: Mapping[str, str]) -> Iterator[Note]:
    """Which of the user's own metrics are not, or not all, on the page."""
    for name, why in sorted(left_out.items()):
        yield {"check": "metrics", "message": f"{name} is not, or not all, on /metrics: {why}"}


def lane_notes(snapshots: Iterable[Snapshot], now_ms: int) -> Iterator[Note]:
    """Which handlers have blocked lanes or quarantined keys, in all workers together."""
    blocked: dict[str, list[BlockedLanes]] = {}
    quarantined: dict[str, list[BlockedLanes]] = {}
    for snapshot in snapshots:
        for handler in snapshot.handlers:
            for found, lanes in ((blocked, handler.blocked), (quarantined, handler.quarantined)):
                if lanes.count:
                    found.setdefault(handler.name, []).append(lanes)
    for name, each in sorted(blocked.items()):
        what = _counted(each, "lane is blocked", "lanes are blocked", "by", now_ms)
        yield {"check": "lanes", "message": f"handler {name}: {what}"}
    for name, each in sorted(quarantined.items()):
        what = _counted(each, "key is quarantined", "keys are quarantined", "its head now", now_ms)
        yield {"check": "lanes", "message": f"handler {name}: {what}"}


def pause_notes(snapshots: Iterable[Snapshot]) -> Iterator[Note]:
    """Which handlers an operator paused: of each the last to end, of all workers."""
    paused: dict[str, list[HandlerSnapshot]] = {}
    for snapshot in snapshots:
        for handler in snapshot.handlers:
            if handler.paused:
                paused.setdefault(handler.name, []).append(handler)
    for name, each in sorted(paused.items()):
        last = max(each, key=lambda h: inf if h.paused_for_s is None else h.paused_for_s)
        for_s = last.paused_for_s
        how_long = "until it is resumed"
        if for_s is not None:
            how_long = f"for another {format_rounded(for_s)}"
        why = last.paused_reason or "no reason given"
        message = (
            f"handler {name}: an operator paused it {how_long} ({why}); "
            f"`ackfloor handlers resume {name}` ends that"
        )
        yield {"check": "paused", "message": message}


def slot_notes(snapshots: Iterable[Snapshot]) -> Iterator[Note]:
    """Which handlers have nothing but deliveries that run far longer than usual, in a worker."""
    full: dict[str, list[HandlerSnapshot]] = {}
    for snapshot in snapshots:
        for handler in snapshot.handlers:
            if handler.long_slots.full and handler.oldest:
                full.setdefault(handler.name, []).append(handler)
    for name, each in sorted(full.items()):
        count = sum(h.long_slots.count for h in each)
        of = "a worker" if len(each) == 1 else f"{len(each)} workers"
        longest = max((h.oldest[0] for h in each), key=lambda r: r.running_s)
        timeout_s = each[0].consume_timeout_s
        lever = "none" if timeout_s is None else format_duration(timeout_s)
        message = (
            f"handler {name}: all {count:,} slots of {of} are held by deliveries that run far "
            f"longer than usual, the longest for {format_rounded(longest.running_s)} "
            f"({longest.topic}/{longest.partition}/{longest.offset}, {_end(longest)}); a shorter "
            f"handlers.{name}.consume_timeout ({lever} now) frees them sooner; see `ackfloor "
            "inflight`"
        )
        yield {"check": "slots", "message": message}


def _end(running: RunningDelivery) -> str:
    """When a delivery ends at the latest."""
    if running.left_s is None:
        return "without a deadline"
    if running.left_s <= 0:
        return "beyond its deadline"
    return f"{format_rounded(running.left_s)} before its deadline"


def _counted(each: list[BlockedLanes], one: str, many: str, head: str, now_ms: int) -> str:
    """How many wait, and the oldest of them.

    Args:
        head: what its record is to it. A quarantined key is older than the record it waits for.
    """
    count, behind = sum(b.count for b in each), sum(b.behind for b in each)
    since_ms = min(b.since_ms for b in each if b.since_ms is not None)
    lane = min((lane for b in each for lane in b.oldest), key=lambda lane: lane.since_ms)
    age = format_duration(max(1, (now_ms - since_ms) // 1000))
    at_least = "at least " * lane.at_least
    records = "record" if behind == 1 else "records"
    return (
        f"{count:,} {one if count == 1 else many}, with {behind:,} {records} behind; the longest "
        f"for {at_least}{age}{_head(lane, head)}; see `ackfloor lanes ls`"
    )


def _head(lane: BlockedLane, head: str) -> str:
    """The record that a lane waits for, and why, as far as it is known."""
    if lane.offset < 0:
        return ""
    why = ": ".join(filter(None, ["held" if lane.head == HELD else "", lane.error]))
    place = f"{lane.topic}/{lane.partition}/{lane.offset}"
    return f", {head} {place}{f' ({why})' if why else ''}"
