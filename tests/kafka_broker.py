"""One broker for a whole test run, started only when a test asks for it.

As the plugin's `ackfloor_kafka`, but for a setting that the tests of groups need.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackfloor.testing.local_kafka.bootstrap import open_broker
from ackfloor.testing.local_kafka.shared_broker import end_shared_broker, shared_broker

#: Under the broker's own protocol a member hears of a change with its next heartbeat: every five
#: seconds, by default, for each step of a rebalance.
_CONFIG = {
    "group.consumer.heartbeat.interval.ms": "1000",
    # Nobody kills this one. On a busy machine it is late to say that it lives, and a broker that is
    # fenced for it gets no topic.
    "broker.session.timeout.ms": "60000",
}
_RUN_FOLDER = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Bootstrap servers of a real Kafka that all tests of the run share: use names of your own."""
    worker: dict[str, Any] = getattr(request.config, "workerinput", {})
    if "broker_run_folder" in worker:
        folder = Path(worker["broker_run_folder"])
        yield shared_broker(folder, worker["broker_controller"], config=_CONFIG)
    else:
        with open_broker(config=_CONFIG) as broker:
            yield broker.bootstrap_servers


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In xdist's controller, for each worker: tell it the folder of the run."""
    stash = node.config.stash
    if _RUN_FOLDER not in stash:
        stash[_RUN_FOLDER] = Path(tempfile.mkdtemp(prefix="ackfloor-tests-"))
    node.workerinput["broker_run_folder"] = str(stash[_RUN_FOLDER])
    node.workerinput["broker_controller"] = os.getpid()


def pytest_unconfigure(config: pytest.Config) -> None:
    """In the controller, when the run is over: end the broker."""
    folder = config.stash.get(_RUN_FOLDER, None)
    if folder is not None:
        end_shared_broker(folder)
