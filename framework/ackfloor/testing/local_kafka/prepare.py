"""What a broker needs, got and made ahead: its jars, and an archive of its classes.

Whoever starts brokers often does this once: in the image that tests run in, or on a machine of
one's own.
"""

from __future__ import annotations

from ackfloor.testing.local_kafka.class_archive import ClassArchive
from ackfloor.testing.local_kafka.cluster import DEFAULT_JVM_ARGS, KafkaCluster, broker_archive
from ackfloor.testing.local_kafka.jars import broker_jars
from ackfloor.testing.local_kafka.java import JavaChoice, find_java

#: Writing the archive is most of how the training run ends.
_ENDS_WITHIN_S = 180.0


def prepare_broker(java: JavaChoice | None = None) -> tuple[ClassArchive, bool]:
    """Fetch the jars of a broker and make the archive of its classes, where they are not there.

    Args:
        java: as in `KafkaCluster`.

    Returns the archive, and whether it was made now.

    Raises:
        ArchiveFailed: this Java, or this folder, is not fit for one; the jars are there then.
        ClusterFailed, JavaMissing, JarRefused, JarsUnavailable, MissingExtra: as they say.
    """
    archive = broker_archive(find_java(java), broker_jars())
    if archive.works():
        return archive, False
    with (
        archive.training() as options,
        KafkaCluster(java=java, jvm_args=(*DEFAULT_JVM_ARGS, *options)) as cluster,
    ):
        # In order, and not as the block's end does it: only then Java writes.
        cluster.stop_node(1, grace_s=_ENDS_WITHIN_S)
    return archive, True
