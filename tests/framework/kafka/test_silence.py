"""A broker that accepts and does not answer: nothing here may wait for it without end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ackfloor.core.records.record import CommitPosition, StartPosition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.consume import quarantined_topics
from ackfloor.kafka.consume import source as source_module
from ackfloor.kafka.consume.quarantined_topics import QuarantinedTopics
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.topics.topic_ids import TopicIds
from ackfloor.testing import KafkaCluster
from tests.framework.kafka.wire import Listener, fresh, make_topic, options, produce, pump, silent

# One broker for all of them.
pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("silence")]

#: What librdkafka itself waits is minutes; what is allowed here is seconds.
BOUND_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A broker of this module's own: silencing the shared one would stop other tests."""
    with KafkaCluster() as made:
        yield made


def reading(cluster: KafkaCluster) -> tuple[KafkaSource, Listener, str]:
    """A source that has read three records."""
    servers = cluster.bootstrap_servers
    topic = make_topic(servers)
    produce(servers, topic, 3)
    source, listener = KafkaSource(options(servers), fresh("g")), Listener()
    source.subscribe([topic], listener)
    pump(source, lambda: len(listener.records) == 3)
    return source, listener, topic


def test_a_commit_that_must_be_answered_now_gives_up(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each position is reported as not confirmed, within the bound; later ones succeed again."""
    monkeypatch.setattr(source_module, "COMMIT_S", 2.0)
    source, listener, topic = reading(cluster)
    wanted = CommitPosition(topic, 0, 2, "", 1)
    with silent(cluster):
        began_s = time.monotonic()
        source.commit([wanted], wait=True)
        assert time.monotonic() - began_s < BOUND_S
    [(position, why)] = listener.commits
    # By our own bound, or in the words of the client where its connection broke before that.
    assert position == wanted
    assert why is not None

    def confirmed() -> bool:
        source.commit([wanted], wait=True)
        return listener.commits[-1] == (wanted, None)

    pump(source, confirmed, 60)
    source.close()


def test_leaving_with_a_commit_unanswered_is_bounded(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker can end while its broker is away, and says what that means for the group."""
    monkeypatch.setattr(source_module, "LEAVE_S", 2.0)
    source, listener, topic = reading(cluster)
    with silent(cluster):
        source.commit([CommitPosition(topic, 0, 3, "", 1)], wait=False)
        began_s = time.monotonic()
        source.close()
        assert time.monotonic() - began_s < BOUND_S
        assert [p.partition for p in listener.revoked] == [0]
    for thread in threading.enumerate():
        if thread.name == "ackfloor:leave":
            thread.join(60)


def test_the_end_has_one_bound_whatever_is_committed_in_it(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait by itself was in bounds, and all together longer than a supervisor's patience."""
    monkeypatch.setattr(source_module, "COMMIT_S", 10 * BOUND_S)
    monkeypatch.setattr(source_module, "LEAVE_S", 2.0)
    source, listener, topic = reading(cluster)
    last = CommitPosition(topic, 0, 3, "", 1)
    monkeypatch.setattr(listener, "on_revoked", lambda _: source.commit([last], wait=True))
    with silent(cluster):
        began_s = time.monotonic()
        source.close()
        assert time.monotonic() - began_s < BOUND_S
    assert listener.commits[-1][0] == last
    for thread in threading.enumerate():
        if thread.name == "ackfloor:leave":
            thread.join(60)


def test_reading_what_is_parked_gives_up(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing its client included, whose fetch is not answered."""
    servers = cluster.bootstrap_servers
    topic = make_topic(servers)
    produce(servers, topic, 3)
    ids = TopicIds(options(servers))
    quarantined = QuarantinedTopics(options(servers), fresh("g"), {topic: "orders"}, ids)
    step = quarantined_topics._Reading.step
    silence = silent(cluster)

    def silenced(self: Any) -> None:
        monkeypatch.setattr(quarantined_topics._Reading, "step", step)
        # Only now: on a busy machine all that comes before takes longer.
        monkeypatch.setattr(quarantined_topics, "PATIENCE_S", 1.0)
        self._patience.renew()
        silence.__enter__()
        step(self)

    monkeypatch.setattr(quarantined_topics._Reading, "step", silenced)
    began_s = time.monotonic()
    try:
        with pytest.raises(SourceFailed, match=f"what is parked in {topic}/0 could not be read"):
            quarantined.with_parked([StartPosition(topic, 0, 0)])
        assert time.monotonic() - began_s < BOUND_S
    finally:
        silence.__exit__(None, None, None)
        ids.close()
