"""A data folder is formatted as Kafka's own tool does it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackfloor.testing import KafkaCluster
from ackfloor.testing.local_kafka.formatted_folder import BOOTSTRAP, can_format, write_formatted


def ids(folder: Path) -> dict[str, str]:
    """What `meta.properties` says, but for comments."""
    lines = (folder / "meta.properties").read_text().splitlines()
    return dict(line.split("=") for line in lines if not line.startswith("#"))


def batches(checkpoint: bytes) -> Iterator[bytes]:
    """The batches of records, without their times, and the checksums that these are part of."""
    while checkpoint:
        length = 12 + int.from_bytes(checkpoint[8:12], "big")
        batch, checkpoint = checkpoint[:length], checkpoint[length:]
        yield batch[:17] + batch[21:27] + batch[43:]


@pytest.mark.kafka
def test_it_is_what_the_tool_writes(tmp_path: Path) -> None:
    """Which formats a cluster whose metadata is to lie elsewhere."""
    elsewhere = tmp_path / "metadata"
    with KafkaCluster(config={"metadata.log.dir": str(elsewhere)}) as cluster:
        assert b"Formatting" in (cluster.data_dir / "node-1" / "broker.log").read_bytes()
        theirs = ids(elsewhere)
        [*written] = batches((elsewhere / "bootstrap.checkpoint").read_bytes())
    ours = tmp_path / "ours"
    write_formatted(
        ours, cluster_id=theirs["cluster.id"], node_id=1, directory_id=theirs["directory.id"]
    )
    assert ids(ours) == theirs
    assert [*batches((ours / "bootstrap.checkpoint").read_bytes())] == written
    assert len(written) == 3


@pytest.mark.parametrize("name", ["metadata.log.dir", "unstable.feature.versions.enable"])
def test_what_differs_from_it_is_left_to_the_tool(name: str) -> None:
    """Other properties change nothing of it."""
    assert not can_format({name: "true", "num.io.threads": "2"})
    assert can_format({"num.io.threads": "2"})


@pytest.mark.kafka
def test_no_java_process_formats_a_cluster() -> None:
    """Each folder has an id of its own, which the broker takes as it is."""
    with KafkaCluster() as cluster:
        folder = cluster.data_dir / "node-1"
        assert b"Formatting" not in (folder / "broker.log").read_bytes()
        assert (folder / "data" / "bootstrap.checkpoint").read_bytes() == BOOTSTRAP
        assert ids(folder / "data")["node.id"] == "1"
