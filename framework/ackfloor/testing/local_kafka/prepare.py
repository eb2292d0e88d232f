"""Prepares a broker's start: fetches its jars and makes an archive of its classes.

Do this once where brokers start often: in the image that tests run in, or on your own machine.
"""

from __future__ import annotations

from ackfloor.testing.local_kafka.class_archive import ClassArchive
from ackfloor.testing.local_kafka.cluster import DEFAULT_JVM_ARGS, KafkaCluster, broker_archive
from ackfloor.testing.local_kafka.jars import broker_jars
from ackfloor.testing.local_kafka.java import JavaChoice, find_java

#: The training run writes the archive at its exit, which takes long.
_ENDS_WITHIN_S = 180.0


def prepare_broker(java: JavaChoice | None = None) -> tuple[ClassArchive, bool]:
    """Fetch the jars of a broker and make the archive of its classes, where missing.

    Args:
        java: as in `KafkaCluster`.

    Returns the archive, and whether it was made now.

    Raises:
        ArchiveFailed: this Java, or this folder, can't have one; the jars are fetched.
        ClusterFailed, JavaMissing, JarRefused, JarsUnavailable, MissingExtra: as they say.
    """
    archive = broker_archive(find_java(java), broker_jars())
    if archive.works():
        return archive, False
    with (
        archive.training() as options,
        KafkaCluster(java=java, jvm_args=(*DEFAULT_JVM_ARGS, *options)) as cluster,
    ):
        # A clean stop, unlike the block's end: only then Java writes.
        cluster.stop_node(1, grace_s=_ENDS_WITHIN_S)
    return archive, True
