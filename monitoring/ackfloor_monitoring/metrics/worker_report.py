"""Report: what a worker sends the supervisor, as JSON over their private pipe.

Rows instead of objects keep it small and quick; it carries `SHAPE`, the names of all columns, so
that the report of another version (upgraded in place and restarted) is refused, not misread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple

from ackfloor.observe import (
    BlockedLane,
    BlockedLanes,
    BreakerSnapshot,
    Fault,
    HandlerSnapshot,
    LongSlots,
    NoisyKey,
    NoisyKeys,
    PartitionSnapshot,
    RateSnapshot,
    RunningDelivery,
    Snapshot,
)
from ackfloor_monitoring.metrics.tallies import Labels


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


_KINDS = (
    *(Snapshot, PartitionSnapshot, HandlerSnapshot),
    *(BreakerSnapshot, RunningDelivery, Fault, BlockedLanes, BlockedLane),
    *(NoisyKeys, NoisyKey, LongSlots, RateSnapshot),
)
SHAPE = "|".join(",".join(_names(kind)) for kind in _KINDS)
_ROW: dict[type[Any], attrgetter[tuple[Any, ...]]] = {
    kind: attrgetter(*_names(kind)) for kind in _KINDS
}


class Trace(NamedTuple):
    """A trace of a series.

    Attributes:
        value_s: the duration that was observed in it.
        at_s: when, by the wall clock.
    """

    trace_id: str
    value_s: float
    at_s: float


class ReportRefused(Exception):
    """These bytes are no report of this version."""


@dataclass(frozen=True, slots=True)
class Report:
    """One worker's report. Labels come without `group` and `worker`.

    Attributes:
        pid: its process, for people who want to look at it or end it.
        version: the ackfloor that it runs; after an upgrade in place not that of its run.
        joined: the group has given this worker an assignment, maybe an empty one.
        edges: histogram -> its upper edges.
        histograms: histogram -> (labels, counts between edges, sum) of each series.
        traces: metric -> (labels, the newest trace) of each series that has one.
        user: the user's own metrics as text, which `user_families` reads.
    """

    started_s: float
    pid: int
    version: str
    joined: bool
    counters: Mapping[str, Sequence[tuple[Labels, int]]]
    edges: Mapping[str, Sequence[float]]
    histograms: Mapping[str, Sequence[tuple[Labels, Sequence[int], float]]]
    traces: Mapping[str, Sequence[tuple[Labels, Trace]]]
    snapshot: Snapshot | None
    user: str = ""

    def to_bytes(self) -> bytes:
        """Serialise."""
        parts = {
            "shape": SHAPE,
            "started_s": self.started_s,
            "pid": self.pid,
            "version": self.version,
            "joined": self.joined,
            "counters": self.counters,
            "edges": self.edges,
            "histograms": self.histograms,
            "traces": self.traces,
            "snapshot": None if self.snapshot is None else _pack(self.snapshot),
            "user": self.user,
        }
        return json.dumps(parts, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """Read what `to_bytes` wrote.

        Raises:
            ReportRefused: it is something else.
        """
        try:
            parts = json.loads(data)
            if parts["shape"] != SHAPE:
                raise ReportRefused("the worker runs another version of ackfloor")
            packed = parts["snapshot"]
            return cls(
                started_s=float(parts["started_s"]),
                pid=int(parts["pid"]),
                version=str(parts["version"]),
                joined=bool(parts["joined"]),
                counters={
                    name: [(tuple(labels), count) for labels, count in rows]
                    for name, rows in parts["counters"].items()
                },
                edges=parts["edges"],
                histograms={
                    name: [(tuple(labels), counts, total) for labels, counts, total in rows]
                    for name, rows in parts["histograms"].items()
                },
                traces={
                    name: [(tuple(labels), Trace(*trace)) for labels, trace in rows]
                    for name, rows in parts["traces"].items()
                },
                snapshot=None if packed is None else _unpack(packed),
                user=str(parts["user"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise ReportRefused(f"not a report: {exc!r}") from exc


def _pack(snapshot: Snapshot) -> list[Any]:
    row = _tree(snapshot)
    row["partitions"] = [_ROW[PartitionSnapshot](p) for p in snapshot.partitions]
    row["handlers"] = [_pack_handler(h) for h in snapshot.handlers]
    row["faults"] = [_ROW[Fault](f) for f in snapshot.faults]
    return list(row.values())


def _pack_handler(handler: HandlerSnapshot) -> list[Any]:
    row = _tree(handler)
    row["oldest"] = [_ROW[RunningDelivery](r) for r in handler.oldest]
    row["breaker"] = _ROW[BreakerSnapshot](handler.breaker)
    row["blocked"] = _pack_lanes(handler.blocked)
    row["quarantined"] = _pack_lanes(handler.quarantined)
    row["noisy_keys"] = _pack_keys(handler.noisy_keys)
    row["long_slots"] = _ROW[LongSlots](handler.long_slots)
    row["rate"] = _ROW[RateSnapshot](handler.rate)
    return list(row.values())


def _pack_keys(keys: NoisyKeys) -> list[Any]:
    row = _tree(keys)
    row["newest"] = [_ROW[NoisyKey](key) for key in keys.newest]
    return list(row.values())


def _pack_lanes(lanes: BlockedLanes) -> list[Any]:
    row = _tree(lanes)
    row["oldest"] = [_ROW[BlockedLane](lane) for lane in lanes.oldest]
    return list(row.values())


def _unpack(values: Sequence[Any]) -> Snapshot:
    row = dict(zip(_names(Snapshot), values, strict=True))
    row["partitions"] = tuple(PartitionSnapshot(*p) for p in row["partitions"])
    row["handlers"] = tuple(_unpack_handler(h) for h in row["handlers"])
    row["faults"] = tuple(Fault(*f) for f in row["faults"])
    return Snapshot(**row)


def _unpack_handler(values: Sequence[Any]) -> HandlerSnapshot:
    row = dict(zip(_names(HandlerSnapshot), values, strict=True))
    row["oldest"] = tuple(_unpack_running(r) for r in row["oldest"])
    row["delays_s"] = tuple(row["delays_s"])
    row["breaker"] = BreakerSnapshot(*row["breaker"])
    row["blocked"] = _unpack_lanes(row["blocked"])
    row["quarantined"] = _unpack_lanes(row["quarantined"])
    row["noisy_keys"] = _unpack_keys(row["noisy_keys"])
    row["long_slots"] = LongSlots(*row["long_slots"])
    row["rate"] = RateSnapshot(*row["rate"])
    return HandlerSnapshot(**row)


def _unpack_keys(values: Sequence[Any]) -> NoisyKeys:
    row = dict(zip(_names(NoisyKeys), values, strict=True))
    row["newest"] = tuple(NoisyKey(*key) for key in row["newest"])
    return NoisyKeys(**row)


def _unpack_lanes(values: Sequence[Any]) -> BlockedLanes:
    row = dict(zip(_names(BlockedLanes), values, strict=True))
    row["oldest"] = tuple(BlockedLane(*lane) for lane in row["oldest"])
    return BlockedLanes(**row)


def _unpack_running(values: Sequence[Any]) -> RunningDelivery:
    row = dict(zip(_names(RunningDelivery), values, strict=True))
    row["stack"] = tuple(row["stack"])
    return RunningDelivery(**row)


def as_tree(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as plain dictionaries under the names of its fields: what `/state` shows."""
    return {
        **_tree(snapshot),
        "partitions": [_tree(p) for p in snapshot.partitions],
        "handlers": [_handler_tree(handler) for handler in snapshot.handlers],
        "faults": [_tree(f) for f in snapshot.faults],
    }


def _handler_tree(handler: HandlerSnapshot) -> dict[str, Any]:
    oldest = [{**_tree(running), "stack": list(running.stack)} for running in handler.oldest]
    return {
        **_tree(handler),
        "oldest": oldest,
        "delays_s": list(handler.delays_s),
        "breaker": _tree(handler.breaker),
        "blocked": _lanes_tree(handler.blocked),
        "quarantined": _lanes_tree(handler.quarantined),
        "noisy_keys": {
            **_tree(handler.noisy_keys),
            "newest": [_tree(key) for key in handler.noisy_keys.newest],
        },
        "long_slots": _tree(handler.long_slots),
        "rate": _tree(handler.rate),
    }


def _lanes_tree(lanes: BlockedLanes) -> dict[str, Any]:
    return {**_tree(lanes), "oldest": [_tree(lane) for lane in lanes.oldest]}


def _tree(part: object) -> dict[str, Any]:
    kind = type(part)
    return dict(zip(_names(kind), _ROW[kind](part), strict=True))
