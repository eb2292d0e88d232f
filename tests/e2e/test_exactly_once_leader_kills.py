"""Exactly-once output while nodes of a cluster are killed: each input has one committed output.

Three kills here: of a node that leads an output, of one that leads the source, and of the group's
coordinator. OUTPUT_LEADERS=20 for the proof. The workers are processes: a client may never return
from a transaction whose coordinator was killed, and then the run replaces its worker.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ackfloor.testing import KafkaCluster
from tests.framework.cli import command
from tests.framework.cli.command import Running
from tests.framework.runtime.on_kafka import Place
from tests.framework.runtime.test_cluster_faults import coordinator

KILLS = int(os.environ.get("OUTPUT_LEADERS", "3"))
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.e2e,
    pytest.mark.xdist_group("cluster faults"),
    pytest.mark.timeout(900 + 120 * KILLS),
]

PARTITIONS = 3
#: Of fifty records one fails ten times, one always, and ten once.
APP = """
from ackfloor import App, Delivery, RetryPolicy

app = App("GROUP", commit_interval="50ms")


@app.handler("TOPIC", name="bill", output="exactly_once", breaker=None,
             retry=RetryPolicy.fixed("50ms", 11, jitter=0))
async def bill(delivery: Delivery) -> None:
    origin = delivery.origin
    delivery.publish("BILLS", f"{origin.partition}/{origin.offset}", key=str(origin.offset))
    number = origin.offset % 50
    if number == 7 or delivery.attempt <= (10 if number == 41 else number % 5 == 3):
        raise ValueError("no")
"""


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    """Three nodes, three replicas of everything, two of which must be in sync."""
    with KafkaCluster(nodes=3) as made:
        yield made


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not return is noticed after a minute, its worker replaced after that."""
    monkeypatch.setattr(command, "PATIENCE_S", 300.0)


@contextmanager
def running(folder: Path, place: Place, bills: str) -> Iterator[Running]:
    """Two workers of the app."""
    app = APP.replace("GROUP", place.group).replace("TOPIC", place.topic).replace("BILLS", bills)
    (folder / "billing.py").write_text(app)
    # The partitions of a worker that ended in a hurry move on after it.
    (folder / "ackfloor.toml").write_text('[kafka.consumer]\n"session.timeout.ms" = 10000\n')
    where = {
        "ACKFLOOR_BOOTSTRAP_SERVERS": place.servers,
        "ACKFLOOR_RUN_LISTEN": "127.0.0.1:0",
    }
    run = Running("billing:app", "--workers", "2", cwd=folder, **where)
    try:
        yield run
    finally:
        run.close()


def in_sync(place: Place, *topics: str) -> bool:
    """Whether each node has everything of these topics."""
    found = [place.admin.list_topics(topic, timeout=60).topics[topic] for topic in topics]
    return all(len(one.isrs) == 3 for topic in found for one in topic.partitions.values())


def kill_under_load(run: Running, place: Place, cluster: KafkaCluster, node: int) -> None:
    """Kill a node, send without it, and send while it comes back."""
    cluster.kill(node)
    place.send(150)
    time.sleep(1.0)
    with ThreadPoolExecutor(1) as aside:
        back = aside.submit(cluster.start_nodes, [node])
        place.send(50)
        run.until(back.done, "the node's return")
        back.result()


def settled(place: Place) -> list[int]:
    """What the group has committed of each partition of the source."""
    return [place.committed(partition=number) for number in range(PARTITIONS)]


def test_a_leader_that_is_killed_neither_loses_nor_doubles_an_output(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """What is committed has each handled input once, however a transaction was left."""
    place = Place(cluster.bootstrap_servers, PARTITIONS)
    bills = f"{place.topic}-bills"
    place.create(bills, PARTITIONS)
    with running(tmp_path, place, bills) as run:
        place.send(150)
        run.until(lambda: max(settled(place)) > 0, "the first commit")
        for number in range(KILLS):
            place.send(150)
            time.sleep(0.3)
            topic = (bills, place.topic)[number % 2]
            which = number // 2 % PARTITIONS
            node = coordinator(place) if number % 3 == 2 else place.leader(topic, which)
            kill_under_load(run, place, cluster, node)
            run.until(lambda: in_sync(place, bills, place.topic), "all replicas")
        ends = [place.end(place.topic, number) for number in range(PARTITIONS)]
        run.until(lambda: settled(place) == ends, "all records")
        handled = Counter(
            f"{number}/{offset}".encode()
            for number, end in enumerate(ends)
            for offset in range(end)
            if offset % 50 != 7
        )
        run.until(lambda: len(place.read(bills)) >= handled.total(), "all outputs")
        assert Counter(m.value() for m in place.read(bills)) == handled
    place.clear()
