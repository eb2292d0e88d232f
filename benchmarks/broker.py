"""The broker that speed and latency are measured beside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ackfloor.testing.bootstrap import BOOTSTRAP_VARIABLE
from ackfloor.testing.cluster import KafkaCluster

#: What Kafka's own start scripts give a broker. Those that our tests start are smaller, and compile
#: less: their garbage collector stops everything for 6 to 18 ms.
AS_KAFKA_STARTS_IT = (
    *("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)


@contextmanager
def measured_broker() -> Iterator[str]:
    """The bootstrap servers of the broker that is given, or of one that is started for this."""
    if given := os.environ.get(BOOTSTRAP_VARIABLE, "").strip():
        yield given
        return
    with KafkaCluster(jvm_args=AS_KAFKA_STARTS_IT) as cluster:
        yield cluster.bootstrap_servers
