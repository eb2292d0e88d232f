"""A node's data folder, formatted as `kafka.tools.StorageTool` does it, without a Java process.

That process takes a third of a node's start. What it writes are two small files: one holds the ids,
the other the features that a new cluster begins with, which are the same for each of a version.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

#: What the tool of Kafka 4.3.0 writes into `bootstrap.checkpoint`: three batches of records, of
#: which the second sets metadata.version (30: 4.3), eligible.leader.replicas.version (1),
#: group.version (1), share.version (1), streams.version (1) and transaction.version (2).
BOOTSTRAP = base64.b64decode(
    "AAAAAAAAAAAAAABHAAAAAALIEDMQACAAAAAAAAABoibHgm8AAAGiJseCb///////////////////AAAAASoAAAAI"
    "AAAAAxYAAAAAAAAAAAAAAAAAAAAAAAAAAQAAAPEAAAAAAlFWLD8AAAAAAAUAAAGiJseCxgAAAaImx4LG////////"
    "//////////8AAAAGOgAAAAEuAQwAEW1ldGFkYXRhLnZlcnNpb24AHgAAWgAAAgFOAQwAIWVsaWdpYmxlLmxlYWRl"
    "ci5yZXBsaWNhcy52ZXJzaW9uAAEAADQAAAQBKAEMAA5ncm91cC52ZXJzaW9uAAEAADQAAAYBKAEMAA5zaGFyZS52"
    "ZXJzaW9uAAEAADgAAAgBLAEMABBzdHJlYW1zLnZlcnNpb24AAQAAQAAACgE0AQwAFHRyYW5zYWN0aW9uLnZlcnNp"
    "b24AAgAAAAAAAAAAAAcAAAA/AAAAAAIDioLbACAAAAAAAAABoibHgsgAAAGiJseCyP//////////////////AAAA"
    "ARoAAAAIAAAABAYAAAAA"
)
#: Broker properties with which the tool writes something else, or elsewhere.
_ELSE = frozenset({"metadata.log.dir", "unstable.feature.versions.enable"})


def can_format(config: Mapping[str, str]) -> bool:
    """Whether `write_formatted` does what the tool would, with these broker properties."""
    return _ELSE.isdisjoint(config)


def write_formatted(folder: Path, *, cluster_id: str, node_id: int, directory_id: str) -> None:
    """Make the data folder of a node.

    Args:
        folder: not there yet.
        cluster_id: in Kafka's form, the same for all nodes.
        node_id: from 1.
        directory_id: in Kafka's form, of this folder alone.
    """
    folder.mkdir()
    ids = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": directory_id,
    }
    text = "".join(f"{name}={value}\n" for name, value in ids.items())
    (folder / "meta.properties").write_text(text, "utf-8")
    (folder / "bootstrap.checkpoint").write_bytes(BOOTSTRAP)
