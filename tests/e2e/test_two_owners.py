"""KIP-848: a worker that the group has thrown out, and that does not know it yet.

The connection to its group's coordinator stands still for several sessions, while it can read,
write and handle. The group gives its partitions to another worker meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackfloor.testing import KafkaCluster
from tests.e2e.churn import Churn
from tests.e2e.churn_account import find
from tests.e2e.commit_log import read_commits
from tests.soak.proxied_broker import NODE, proxied_broker
from tests.soak.proxy import Proxy

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

SESSION_S = 3.0
#: The coordinator's silence, from the moment at which the other worker has taken over.
BESIDE_S = 3 * SESSION_S
KINDS = {
    "parking at least once": ("", ""),
    "transactional parking": ("", 'parking = "transactional"\n'),
    "quarantined keys": (', ordering="key", on_failure="quarantine"', ""),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[Proxy, KafkaCluster]]:
    """A broker with a proxy in front of it, which only those pass who are told its address."""
    with proxied_broker({"group.consumer.min.session.timeout.ms": "1000"}) as both:
        yield both


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_is_thrown_out_unheard_stops_and_undoes_nothing(
    kind: str, tmp_path: Path, broker: tuple[Proxy, KafkaCluster]
) -> None:
    """It does not handle beside the new owner; no commit goes back, nothing is lost."""
    proxy, cluster = broker
    group = Churn(tmp_path, cluster.internal_servers, "broker", 1, SESSION_S, *KINDS[kind])
    try:
        group.prepare()
        with group.load(100.0):
            began_ms, ended_ms = _cut_off(group, proxy)
        group.until(group.settled, "the last commit")
        found = find(group.facts(), read_commits(group.servers, group.group))
    finally:
        proxy.release_heartbeats(NODE)
        group.close()
    old, new = (member.pid for member in group.members)
    ours, theirs = (
        {
            (line.topic, line.partition, line.offset)
            for line in group.ledger()
            if (line.pid, line.what) == (pid, "S") and began_ms < line.at_ms < ended_ms
        }
        for pid in (old, new)
    )
    assert len(theirs) > 300, "the other worker has not had everything"
    # Without a limit it handles all that it had before the cut, half of everything.
    assert len(ours & theirs) < len(theirs) / 10
    assert found.lost == []
    assert found.back == []


def _cut_off(group: Churn, proxy: Proxy) -> tuple[float, float]:
    """Cut one of two workers off from its coordinator; from when to when the other had all."""
    group.join(proxy.servers)
    group.join()
    group.until(lambda: group.moved_since(0), "the start")
    shared_ms = time.time() * 1000 + 2000
    group.until(lambda: group.moved_since(shared_ms), "a share for both")
    proxy.hold_heartbeats(NODE)
    new = group.members[1].pid
    cut_ms = time.time() * 1000

    def taken_over() -> bool:
        lines = [line for line in group.ledger() if line.at_ms > cut_ms and line.pid == new]
        return len({line.partition for line in lines if line.topic == group.topic}) == 6

    group.until(taken_over, "the other one's work on every partition")
    began_ms = time.time() * 1000
    time.sleep(BESIDE_S)
    ended_ms = time.time() * 1000
    proxy.release_heartbeats(NODE)
    old = group.members[0].pid
    group.until(
        lambda: any(line.pid == old and line.at_ms > ended_ms + 1500 for line in group.ledger()),
        "its work as a member again",
    )
    return began_ms, ended_ms
