"""Exactly-once output while nodes of a cluster are killed: each input has one committed output.

Three kills here: of a node that leads an output, of one that leads the source, and of the group's
coordinator. OUTPUT_LEADERS=20 for the proof.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.testing import KafkaCluster
from tests.framework.runtime.on_kafka import Crowd, Place, on_kafka
from tests.framework.runtime.test_cluster_faults import coordinator

KILLS = int(os.environ.get("OUTPUT_LEADERS", "3"))
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.e2e,
    pytest.mark.xdist_group("cluster faults"),
    pytest.mark.timeout(900 + 120 * KILLS),
]

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three nodes, three replicas of everything, two of which must be in sync."""
    with KafkaCluster(nodes=3) as made:
        yield made


def billing(place: Place, bills: str) -> App:
    """Of fifty records one fails ten times, one always, and ten once."""
    app = App(place.group)

    @app.handler(
        place.topic,
        name="bill",
        output="exactly_once",
        retry=RetryPolicy.fixed("50ms", 11, jitter=0),
        breaker=None,
    )
    async def bill(delivery: Delivery) -> None:
        origin = delivery.origin
        delivery.publish(bills, f"{origin.partition}/{origin.offset}", key=str(origin.offset))
        number = origin.offset % 50
        if number == 7 or delivery.attempt <= (10 if number == 41 else number % 5 == 3):
            raise ValueError("no")

    return app


def in_sync(place: Place, *topics: str) -> bool:
    """Whether each node has everything of these topics."""
    found = [place.admin.list_topics(topic, timeout=60).topics[topic] for topic in topics]
    return all(len(one.isrs) == 3 for topic in found for one in topic.partitions.values())


def kill_under_load(crowd: Crowd, cluster: KafkaCluster, node: int) -> None:
    """Kill a node, go on without it, and go on while it comes back."""
    cluster.kill(node)
    crowd.place.send(150)
    crowd.turn_for(1.0)
    with ThreadPoolExecutor(1) as aside:
        back = aside.submit(cluster.start_nodes, [node])
        crowd.until(back.done, "the node's return")
        back.result()


def test_a_leader_that_is_killed_neither_loses_nor_doubles_an_output(cluster: KafkaCluster) -> None:
    """What is committed has each handled input once, however a transaction was left."""
    with on_kafka(cluster.bootstrap_servers, partitions=PARTITIONS) as crowd:
        place = crowd.place
        bills = f"{place.topic}-bills"
        place.create(bills, PARTITIONS)
        for _ in range(2):
            crowd.start(billing(place, bills))
        for number in range(KILLS):
            place.send(150)
            crowd.turn_for(0.3)
            topic = (bills, place.topic)[number % 2]
            which = number // 2 % PARTITIONS
            node = coordinator(place) if number % 3 == 2 else place.leader(topic, which)
            kill_under_load(crowd, cluster, node)
            crowd.until(lambda: in_sync(place, bills, place.topic), "all replicas")
        ends = [place.end(place.topic, number) for number in range(PARTITIONS)]

        def settled() -> list[int]:
            return [place.committed(partition=number) for number in range(PARTITIONS)]

        crowd.until(lambda: settled() == ends, "all records")
        handled = Counter(
            f"{number}/{offset}".encode()
            for number, end in enumerate(ends)
            for offset in range(end)
            if offset % 50 != 7
        )
        crowd.until(lambda: len(place.read(bills)) >= handled.total(), "all outputs")
        assert Counter(m.value() for m in place.read(bills)) == handled
