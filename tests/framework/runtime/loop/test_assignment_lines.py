"""What a worker logs of partitions that come and go, in words for whoever runs it."""

from __future__ import annotations

import logging

import pytest

from ackfloor import App, RetryPolicy
from ackfloor.core.messages.events import PartitionsRevoked
from ackfloor.core.records.record import TopicPartition
from tests.framework.runtime.live import live


def lines(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    """The lines of the worker that hold a word."""
    found = [r.getMessage() for r in caplog.records if r.name == "ackfloor.worker"]
    return [line for line in found if word in line]


def app_of() -> App:
    """One handler with two retry topics."""
    app = App("g")

    @app.handler("orders", retry=RetryPolicy(delays=["1s", "2s"]))
    def handle(value: bytes) -> None:
        """Nothing fails."""

    return app


def test_partitions_that_come_and_go_are_summed_by_topic(caplog: pytest.LogCaptureFixture) -> None:
    """A line for all of them, whatever their number."""
    caplog.set_level(logging.INFO)
    with live(app_of(), partitions=40) as worker:
        worker.until(lambda: lines(caplog, "assigned"))
        worker.broker.rebalance()
        worker.until(lambda: worker.watcher.told(PartitionsRevoked))
        assert lines(caplog, "revoked")
    all_of_them = "orders: 0-39; retry topics of orders (1s, 2s): 0-39"
    assert lines(caplog, "assigned")[0] == f"assigned {all_of_them}"
    assert lines(caplog, "revoked")[0] == f"revoked {all_of_them}"


def test_a_worker_without_partitions_says_that_it_is_in_the_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It takes over when another one leaves: nothing is wrong with it."""
    caplog.set_level(logging.INFO)
    with live(app_of()) as worker:
        worker.loop.on_assigned([])
        (line,) = lines(caplog, "no partitions")
    assert line == "joined the group, which has no partitions for this worker so far"
    assert not lines(caplog, "nothing")


def test_lost_partitions_are_named_with_what_becomes_of_their_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who reads `lost` thinks of records: none is."""
    caplog.set_level(logging.INFO)
    with live(app_of(), partitions=3) as worker:
        worker.until(lambda: lines(caplog, "assigned"))
        worker.loop.on_lost([TopicPartition("orders", number) for number in range(3)])
        (line,) = lines(caplog, "lost")
    assert line == (
        "lost orders: 0-2 without a last commit: another worker has them or will; what was open "
        "here is delivered again there"
    )
