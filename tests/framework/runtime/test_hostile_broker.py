"""A broker that refuses: permissions taken away and given back, a smaller limit for metadata.

What is refused is named, keeps its records open, and goes on by itself when the fault ends.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.acks.gap_set import decode
from ackfloor.core.messages.events import CommitFailed, PublishFailed
from ackfloor.core.parking.transaction import Transaction
from ackfloor.core.records.record import CommitPosition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.produce.transactional_producer import Transactor
from ackfloor.testing import KafkaCluster
from tests.framework.runtime.on_kafka import Crowd, Place, consumer_of, on_kafka

# One broker for all of them.
pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("hostile broker")]

#: Characters of metadata that this broker takes: a tenth of the usual limit and less.
METADATA = 400
#: Half of so many, in no order, take more than that to tell.
RECORDS = 4000


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A broker with permissions, where everybody may do what nothing is said about."""
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "offset.metadata.max.bytes": str(METADATA),
    }
    with KafkaCluster(config=config) as made:
        yield made


@pytest.fixture
def servers(cluster: KafkaCluster) -> str:
    """Where it is reached."""
    return cluster.bootstrap_servers


@contextmanager
def forbidden(
    place: Place, kind: ResourceType, name: str, operation: AclOperation
) -> Iterator[None]:
    """Take one permission away from everybody, and give it back."""

    def rule(allowed: AclPermissionType, what: AclOperation) -> AclBinding:
        return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:*", "*", what, allowed)

    rules = [
        rule(AclPermissionType.DENY, operation),
        rule(AclPermissionType.ALLOW, AclOperation.ALL),
    ]
    for future in place.admin.create_acls(rules).values():
        future.result(60)
    try:
        yield
    finally:
        anything = AclBindingFilter(
            kind, name, ResourcePatternType.LITERAL, None, None,
            AclOperation.ANY, AclPermissionType.ANY,
        )  # fmt: skip
        for future in place.admin.delete_acls([anything]).values():
            future.result(60)


def app_of(place: Place, handled: list[int], failing: set[int] | None = None) -> App:
    """A handler that writes down what it handled; the first delivery of some fails."""
    app = App(place.group)

    @app.handler(place.topic, retry=RetryPolicy.fixed("200ms", 3))
    async def handle(delivery: Delivery) -> None:
        if delivery.origin.offset in (failing or ()) and delivery.attempt == 1:
            raise ValueError("once")
        handled.append(delivery.origin.offset)

    return app


def test_a_group_that_may_not_commit_goes_on_when_it_may(servers: str) -> None:
    """GROUP_AUTHORIZATION_FAILED: named, and the floors reach the group without a restart."""
    with on_kafka(servers) as crowd:
        place = crowd.place
        handled: list[int] = []
        worker = crowd.start(app_of(place, handled))
        crowd.until(lambda: worker.owns(place.topic) == [0])
        place.send(5)
        crowd.until(lambda: place.committed() == 5)
        with forbidden(place, ResourceType.GROUP, place.group, AclOperation.READ):
            place.send(5)
            crowd.until(lambda: worker.watcher.told(CommitFailed), "a refused commit")
            assert "GROUP_AUTHORIZATION_FAILED" in worker.watcher.told(CommitFailed)[0].reason
            assert "commit" in worker.faults()
            assert place.committed() == 5
        place.send(5)
        crowd.until(lambda: place.committed() == 15, "the commit")
        crowd.until(lambda: worker.faults() == "", "the end of the fault")
        assert set(handled) == set(range(15))


def test_a_client_that_has_ended_for_good_fails_its_worker_and_the_next_one_goes_on(
    servers: str,
) -> None:
    """Under the broker's own protocol that is fatal to the client: never a worker that idles."""
    with on_kafka(servers) as crowd:
        place = crowd.place
        handled: list[int] = []
        first = crowd.start(app_of(place, handled), consumer=consumer_of("broker"))
        # It may not even leave: the group gives it up when its session ends.
        place.set_group("consumer.session.timeout.ms", "6000")
        crowd.until(lambda: first.owns(place.topic) == [0])
        place.send(5)
        crowd.until(lambda: place.committed() == 5)
        with forbidden(place, ResourceType.GROUP, place.group, AclOperation.READ):
            place.send(5)
            with pytest.raises(SourceFailed, match="Group authorization failed"):
                crowd.until(lambda: False)
        # `run` starts another in its place.
        first.close()
        crowd.start(app_of(place, handled), consumer=consumer_of("broker"))
        place.send(5)
        crowd.until(lambda: place.committed() == 15, "the commit")
        assert set(handled) == set(range(15))


def test_a_source_topic_that_may_not_be_read_goes_on_when_it_may(servers: str) -> None:
    """TOPIC_AUTHORIZATION_FAILED at fetch and commit: nothing is lost, nothing restarted."""
    with on_kafka(servers) as crowd:
        place = crowd.place
        handled: list[int] = []
        worker = crowd.start(app_of(place, handled))
        crowd.until(lambda: worker.owns(place.topic) == [0])
        place.send(5)
        crowd.until(lambda: place.committed() == 5)
        with forbidden(place, ResourceType.TOPIC, place.topic, AclOperation.READ):
            place.send(5)
            crowd.turn_for(2.0)
            assert place.committed() <= 10
        place.send(5)
        crowd.until(lambda: place.committed() == 15, "the commit")
        crowd.until(lambda: worker.faults() == "", "the end of the fault")
        assert set(handled) == set(range(15))


def test_a_tier_that_may_not_be_written_keeps_its_records_open_until_it_may(servers: str) -> None:
    """The source offset is not acked, readiness names topic and error, others are handled."""
    with on_kafka(servers) as crowd:
        place = crowd.place
        handled: list[int] = []
        worker = crowd.start(app_of(place, handled, failing={0}))
        tier = place.our("retry")
        crowd.until(lambda: place.committed() == 0, "the first commit")
        with forbidden(place, ResourceType.TOPIC, tier, AclOperation.WRITE):
            place.send(5)
            crowd.until(lambda: worker.watcher.told(PublishFailed), "a refused park")
            assert "TOPIC_AUTHORIZATION_FAILED" in worker.watcher.told(PublishFailed)[0].error
            crowd.until(lambda: sorted(handled) == [1, 2, 3, 4], "the others")
            assert worker.floor(place.topic) == 0
            assert tier in worker.faults()
            assert place.committed() == 0
        crowd.until(lambda: sorted(handled) == [0, 1, 2, 3, 4], "the retry")
        crowd.until(lambda: place.committed() == 5)
        crowd.until(lambda: worker.faults() == "", "the end of the fault")


def scattered(crowd: Crowd, handled: list[int]) -> App:
    """A handler that leaves half of the records open, in no order, by hand."""
    app = App(crowd.place.group)
    left = set(random.Random(7).sample(range(1, RECORDS), RECORDS // 2)) | {0}

    @app.handler(crowd.place.topic, ack="manual", concurrency=RECORDS, consume_timeout="1h")
    async def handle(delivery: Delivery) -> None:
        handled.append(delivery.offset)
        if delivery.offset not in left:
            delivery.ack()

    return app


def test_metadata_over_the_brokers_limit_is_shortened_and_the_floor_still_committed(
    servers: str,
) -> None:
    """OFFSET_METADATA_TOO_LARGE: what fits is kept, the rest comes again, nothing is lost."""
    with on_kafka(servers) as crowd:
        place = crowd.place
        first: list[int] = []
        second: list[int] = []
        worker = crowd.start(scattered(crowd, first), shutdown_timeout="100ms")
        crowd.until(lambda: worker.owns(place.topic) == [0])
        place.send(RECORDS)
        crowd.until(lambda: len(first) == RECORDS)
        crowd.until(lambda: worker.watcher.told(CommitFailed), "a refused commit")
        assert "OFFSET_METADATA_TOO_LARGE" in worker.watcher.told(CommitFailed)[0].reason
        crowd.until(place.metadata, "a commit that fits")
        crowd.until(lambda: worker.faults() == "", "the end of the fault")
        worker.close()
        floor, text = place.committed(), place.metadata()
        assert (floor, len(text) < METADATA) == (0, True)
        kept = {n for start, end in decode(text, place.topic, 0).runs for n in range(start, end)}
        assert 0 < len(kept) < RECORDS // 2
        crowd.start(scattered(crowd, second), shutdown_timeout="100ms")
        crowd.until(lambda: len(second) >= RECORDS - len(kept), "what is not known as settled")
        crowd.turn_for(0.3)
        assert sorted(second) == sorted(set(range(RECORDS)) - kept)


def test_a_broker_that_goes_down_and_comes_back_needs_no_restart(
    cluster: KafkaCluster,
) -> None:
    """What was settled meanwhile is committed afterwards."""
    with on_kafka(cluster.bootstrap_servers) as crowd:
        place = crowd.place
        handled: list[int] = []
        worker = crowd.start(app_of(place, handled), commit_interval="2s")
        crowd.until(lambda: worker.owns(place.topic) == [0])
        place.send(50)
        crowd.until(lambda: len(handled) == 50)
        cluster.kill(1)
        crowd.turn_for(1.0)
        assert worker.floor(place.topic) == 50
        cluster.start_node(1)
        place.send(50)
        crowd.until(lambda: place.committed() == 100, "the commit")
        crowd.until(lambda: worker.faults() == "", "the end of every fault")
        assert set(handled) == set(range(100))


def test_asking_how_a_transaction_ended_survives_a_coordinator_that_is_just_coming_back(
    cluster: KafkaCluster,
) -> None:
    """The admin client's question crashes the process there; ours is answered in the end."""
    with on_kafka(cluster.bootstrap_servers) as crowd:
        place = crowd.place
        consumer = Consumer({"bootstrap.servers": place.servers, "group.id": place.group})
        consumer.commit(offsets=[TopicPartition(place.topic, 0, 7)], asynchronous=False)
        consumer.close()
        servers = {"bootstrap.servers": place.servers}
        transactor = Transactor(KafkaOptions(servers, servers, servers), place.group, "asks")
        wanted = Transaction((), (CommitPosition(place.topic, 0, 7, "", 1),))
        other = Transaction((), (CommitPosition(place.topic, 0, 8, "", 1),))
        assert transactor._has(wanted)
        assert not transactor._has(other)
        cluster.kill(1)
        back = threading.Thread(target=cluster.start_node, args=(1,))
        back.start()
        answers: list[bool] = []
        while not answers or back.is_alive():
            with suppress(KafkaException):
                answers.append(transactor._has(wanted))
        back.join()
        transactor.close()
        assert set(answers) == {True}
