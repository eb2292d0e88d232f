"""Members that end are gone from their group at once, whatever the group is about."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka.admin import AdminClient

from ackfloor.kafka.consume import source as source_module
from ackfloor.kafka.consume.source import KafkaSource
from tests.framework.kafka.consume.test_membership import opened
from tests.framework.kafka.wire import PROTOCOLS, fresh, make_topic, until

pytestmark = pytest.mark.kafka

#: Far below the session of 45 seconds after which a silent member is thrown out.
SOON_S = 15.0


def poll_for(seconds: float, *members: KafkaSource) -> None:
    """Let members work for a while."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for member in members:
            member.poll(0.002)


def close_together(*members: KafkaSource) -> None:
    """End members at the same time, as workers of one run do."""
    closing = [threading.Thread(target=member.close) for member in members]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()


def members_of(servers: str, group: str) -> int:
    """How many members the group has."""
    admin = AdminClient({"bootstrap.servers": servers})
    return len(admin.describe_consumer_groups([group])[group].result(60).members)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_spare_member_that_ends_is_gone(
    bootstrap_servers: str, sources: list[KafkaSource], protocol: str
) -> None:
    """It has nothing to give back, and others would wait for it all the same."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    first, has = opened(sources, bootstrap_servers, group, topic, protocol)
    until(lambda: first.poll(0.02) or has.starts)
    second, other = opened(sources, bootstrap_servers, group, topic, protocol)
    told: list[int] = []
    other.on_assign = lambda: told.append(len(other.starts))

    def both() -> bool:
        poll_for(0.02, first, second)
        return bool(told)

    until(both)
    poll_for(1.0, first, second)
    spare, left = (second, first) if has.starts and not other.starts else (first, second)
    assert members_of(bootstrap_servers, group) == 2
    spare.close()

    def one() -> bool:
        poll_for(0.1, left)
        return members_of(bootstrap_servers, group) == 1

    until(one, SOON_S)


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_that_end_in_a_rebalance_are_gone(
    bootstrap_servers: str, sources: list[KafkaSource], protocol: str, partitions: int
) -> None:
    """All of them at any moment of it, as when a deployment follows another one."""
    topic = make_topic(bootstrap_servers, partitions)
    # Heartbeats come twice a second: with the first one the others hear of who joins.
    for moment_s in (0.0, 0.001, 0.002, 0.005, 0.01, 0.1, 0.3, 0.5, 0.55, 0.6, 1.1):
        group = fresh("g")
        first, has = opened(sources, bootstrap_servers, group, topic, protocol)
        until(lambda: first.poll(0.02) or has.starts)  # noqa: B023
        second, _ = opened(sources, bootstrap_servers, group, topic, protocol)
        poll_for(moment_s, first, second)
        close_together(first, second)
        until(lambda: members_of(bootstrap_servers, group) == 0, SOON_S)  # noqa: B023


@pytest.mark.usefixtures("both_ways")
def test_what_was_declined_is_given_back_without_a_fault(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """The group takes back what a member that leaves was given and did not take."""
    topic = make_topic(bootstrap_servers, 4)
    for moment_s in (0.1, 0.3, 0.5, 0.55):
        group = fresh("g")
        members = [
            opened(sources, bootstrap_servers, group, topic, "cooperative")[0] for _ in range(2)
        ]
        poll_for(moment_s, *members)
        close_together(*members)
        assert [member._membership.failure for member in members] == [None, None]


def test_a_member_leaves_also_where_its_time_is_over(
    bootstrap_servers: str, sources: list[KafkaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last commit may have taken all of it; a broker that answers gets its chance."""
    monkeypatch.setattr(source_module, "LEAVE_S", 0.0)
    topic, group = make_topic(bootstrap_servers), fresh("g")
    first, has = opened(sources, bootstrap_servers, group, topic, "cooperative")
    until(lambda: first.poll(0.02) or has.starts)
    second, _ = opened(sources, bootstrap_servers, group, topic, "cooperative")
    poll_for(2.0, first, second)
    assert members_of(bootstrap_servers, group) == 2
    second.close()
    until(lambda: members_of(bootstrap_servers, group) == 1, SOON_S)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_ends_while_the_others_drain_is_gone(
    bootstrap_servers: str, sources: list[KafkaSource], protocol: str
) -> None:
    """Its first request to join is answered when the others are done: it leaves after that."""
    topic, group = make_topic(bootstrap_servers, 4), fresh("g")
    first, has = opened(sources, bootstrap_servers, group, topic, protocol)
    until(lambda: first.poll(0.02) or has.starts)
    has.on_revoke = lambda: time.sleep(2.5)
    second, _ = opened(sources, bootstrap_servers, group, topic, protocol)
    # Until the first one knows that the second one joins.
    poll_for(1.0, second)
    closing = threading.Thread(target=second.close)
    working = threading.Thread(target=poll_for, args=(5.0, first))
    working.start()
    time.sleep(0.7)
    closing.start()
    closing.join()
    working.join()

    def one() -> bool:
        poll_for(0.1, first)
        return members_of(bootstrap_servers, group) == 1

    until(one, SOON_S)
