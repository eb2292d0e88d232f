"""The ack map in a worker's log: for each partition its floor and what is open above it."""

from __future__ import annotations

from ackfloor.core.state.snapshot import PartitionSnapshot, Snapshot


def ack_map(snapshot: Snapshot) -> str:
    """One line a partition, then the longest-running deliveries."""
    lines = [_line(partition, snapshot.taken_ms) for partition in snapshot.partitions]
    for handler in snapshot.handlers:
        lines.extend(
            f"{handler.name}: {d.topic}/{d.partition}/{d.offset} attempt {d.attempt} "
            f"running {d.running_s:.1f}s"
            for d in handler.oldest
        )
    return "\n".join(lines) or "no partitions assigned"


def _line(p: PartitionSnapshot, now_ms: int) -> str:
    text = (
        f"{p.topic}/{p.partition} floor={p.floor} position={p.position} open={p.open_count} "
        f"gaps={p.gap_count} parking={p.parking}"
    )
    if p.waiting:
        text += f" waiting={p.waiting}"
    if p.blocked:
        text += f" blocked={p.blocked}"
    if p.oldest_open_ms is not None:
        text += f" oldest={(now_ms - p.oldest_open_ms) / 1000:.1f}s"
    return text + (" paused" if p.paused else "")
