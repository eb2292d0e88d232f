"""One broker with a proxy in front of it: those pass the proxy who are given its address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ackfloor.testing import KafkaCluster
from tests.soak.proxy import Proxy

#: The only node.
NODE = 1


@contextmanager
def proxied_broker(config: Mapping[str, str] | None = None) -> Iterator[tuple[Proxy, KafkaCluster]]:
    """Start both; others reach the broker by the cluster's `internal_servers`."""
    proxy = Proxy(NODE)
    with KafkaCluster(NODE, config=config, advertised_ports=proxy.ports) as cluster:
        proxy.start()
        try:
            proxy.aim({NODE: int(cluster.bootstrap_servers.rpartition(":")[2])})
            yield proxy, cluster
        finally:
            proxy.stop()
