"""Parked offsets: what became of the records of a partition that were parked, for its ack map.

They are settled in the partition. Where they are now the index knows, and the group's commits of
its retry topics, so that a record that is worked off is drawn as any other that is settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ackfloor.core.records.envelope import Reason
from ackfloor_monitoring.console.index.dead_letter_index import NoIndex
from ackfloor_monitoring.console.index.index_rows import SourcePlace
from ackfloor_monitoring.console.index.index_search import TooSlow
from ackfloor_monitoring.console.index.record_history import RecordHistory, Stage
from ackfloor_monitoring.console.pages.partitions.ack_cells import ParkedOffset
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.partition_facts import PartitionFacts
from ackfloor_monitoring.console.reads.settled_copies import SettledCopies

#: Stages that are read for one map.
MOST: Final = 2_000


@dataclass(frozen=True, slots=True)
class Parked:
    """Those of one map.

    Attributes:
        offsets: in order.
        until: from here on nothing is known; None where all is.
        late: why the index can't be read; "" where it can.
    """

    offsets: Sequence[ParkedOffset] = ()
    until: int | None = None
    late: str = ""


def parked_offsets(cluster: Cluster, facts: PartitionFacts, settled: SettledCopies) -> Parked:
    """Those above a partition's floor; none of a retry topic, whose records have another place."""
    row = facts.row(1)
    floor, until = row["floor"], row["read_to"]
    if cluster.index is None or facts.seen.kind != "source" or floor is None or until is None:
        return Parked()
    first = SourcePlace(facts.seen.topic, facts.seen.partition, floor)
    try:
        with cluster.index.searching() as search:
            history = RecordHistory(search)
            # First, so that the stages have all that was there then.
            index_ms = history.followed().taken_ms
            stages, read_to = history.between(first, until, facts.seen.group, MOST)
    except (NoIndex, TooSlow) as exc:
        return Parked(late=str(exc) or "it is being built")
    found = [each for stage in stages for each in _parked(stage, settled, index_ms)]
    return Parked(found, read_to if read_to < until else None)


def _parked(stage: Stage, settled: SettledCopies, index_ms: int | None) -> Iterator[ParkedOffset]:
    """What the newest stage of a record says; nothing where it is worked off."""
    offset = stage.source.offset
    copy = stage.group, stage.topic, stage.partition, stage.offset
    is_settled = settled.has(*copy)
    if stage.is_held:
        # Once that is settled an operator has freed the key.
        held = "" if is_settled else ", and its key is held"
        yield ParkedOffset(offset, "dead", f"{offset:,} dead-lettered{held}")
        return
    if stage.kind == "dlq":
        if stage.disposed is None:
            yield ParkedOffset(offset, "dead", f"{offset:,} dead-lettered{_why(stage)}")
        else:
            what = stage.disposed.disposition or "replayed, discarded or archived"
            yield ParkedOffset(offset, "disposed", f"{offset:,} dead-lettered, then {what}")
        return
    if is_settled:
        if not settled.had(index_ms, *copy):
            text = f"{offset:,} settled in {stage.topic}; the index does not say yet if it went on"
            yield ParkedOffset(offset, "unknown", text)
        return
    if stage.reason == Reason.BEHIND:
        yield ParkedOffset(offset, "parked", f"{offset:,} parked behind another one of its key")
    else:
        yield ParkedOffset(offset, "parked", f"{offset:,} parked{_why(stage)}")


def _why(stage: Stage) -> str:
    cause = stage.error_type or stage.reason
    return f" after attempt {stage.attempt}, {cause}" if cause else ""
