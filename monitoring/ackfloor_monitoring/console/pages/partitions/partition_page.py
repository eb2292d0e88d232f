"""One partition: its ack map, the record that its floor waits for, and what is in flight."""

from __future__ import annotations

from ackfloor_monitoring.console.pages.console_page import Known, Page
from ackfloor_monitoring.console.pages.partitions.ack_cells import CELLS, RANGES, ack_map
from ackfloor_monitoring.console.pages.partitions.floor_record import floor_record
from ackfloor_monitoring.console.pages.partitions.parked_offsets import parked_offsets
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.partition_facts import PartitionFacts, Row, partitions_of
from ackfloor_monitoring.console.reads.settled_copies import SettledCopies


def facts(cluster: Cluster, known: Known) -> Row:
    """What the template shows: the partition as each worker has it, mostly one."""
    runs, kafka = known.runs.value, None if known.kafka is None else known.kafka.value
    group, topic, partition = (known.asked.parts[name] for name in ("group", "topic", "partition"))
    found = [
        each
        for each in partitions_of(runs, kafka, group)
        if (each.seen.topic, str(each.seen.partition)) == (topic, partition)
    ]
    settled = SettledCopies(kafka)
    return {
        "group": group,
        "place": f"{topic}/{partition}",
        "views": [_view(cluster, each, settled) for each in found],
        "most_ranges": RANGES,
        "taken_ms": [each.taken_ms for each in (runs, kafka) if each is not None],
    }


def _view(cluster: Cluster, each: PartitionFacts, settled: SettledCopies) -> Row:
    record, parked = floor_record(each), parked_offsets(cluster, each, settled)
    asks = cluster.commands.asks_kafka
    commands = [asks("acks", each.place, "--group", each.seen.group)]
    if record is not None and each.seen.kind == "retry":
        commands.append(asks("retry show", record.place))
    return {
        "facts": each,
        "row": each.row(CELLS),
        "part": None if each.live is None else each.live.part,
        "troubles": each.troubles(),
        "record": record,
        "map": ack_map(each, parked.offsets),
        "parked": parked,
        "lanes": [{**lane, "shown_by": _shown_by(cluster, each, lane)} for lane in each.lanes],
        "commands": commands,
    }


def _shown_by(cluster: Cluster, each: PartitionFacts, lane: Row) -> str:
    """The command that shows the copy in a retry topic that a quarantined key waits for."""
    if lane["state"] != "quarantined" or lane["head"] == "held":
        return ""
    at_group = ("--group", each.seen.group)
    return cluster.commands.asks_kafka("retry show", lane["record"], *at_group)


PARTITION = Page(
    "partitions",
    "Partition {topic}/{partition}",
    "",
    facts,
    asks_kafka=True,
    asks_index=True,
    below="/{group}/{topic}/{partition}",
    template="partition.html",
)
