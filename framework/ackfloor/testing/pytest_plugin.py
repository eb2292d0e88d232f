"""Fixtures for pytest, which finds this module by its entry point (`pytest11`).

Every pytest run of an environment that holds ackfloor imports this module, so it loads nothing
before a test asks for a fixture. The fixtures are plain ones: they serve tests of every async
plugin, and of none. Under pytest-xdist the processes of a run share one broker.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ackfloor.testing.kit.harness_factory import HarnessFactory

_RUN_FOLDER = pytest.StashKey[Path]()


@pytest.fixture
def ackfloor_harness() -> Iterator[HarnessFactory]:
    """Start an app on a broker in memory: `h = ackfloor_harness(app)`; it ends with the test.

    Takes the options of `ackfloor.testing.Harness`.
    """
    from ackfloor.testing.kit.harness_factory import HarnessFactory

    with HarnessFactory() as factory:
        yield factory


@pytest.fixture(scope="session")
def ackfloor_kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    """Bootstrap servers of a real Kafka that all tests of the run share: use topics of your own.

    That of ACKFLOOR_BOOTSTRAP_SERVERS, else one in Docker (extra `testcontainers`), else a local
    one (extra `broker`). Where there is none, tests that ask for it fail; none is skipped.
    """
    from ackfloor.errors import AckfloorError

    with ExitStack() as stack:
        try:
            servers = _servers(stack, getattr(request.config, "workerinput", {}))
        except AckfloorError as exc:
            pytest.fail(f"ackfloor_kafka: {exc}", pytrace=False)
        yield servers


def _servers(stack: ExitStack, worker: dict[str, Any]) -> str:
    """A broker until the stack ends, or that of all processes of a run with pytest-xdist."""
    from ackfloor.testing.local_kafka.bootstrap import check_answers, open_broker

    if "ackfloor_kafka" in worker:
        from ackfloor.testing.local_kafka.shared_broker import shared_broker

        folder, controller_pid = worker["ackfloor_kafka"]
        return shared_broker(Path(folder), controller_pid)
    broker = stack.enter_context(open_broker())
    check_answers(broker)
    return broker.bootstrap_servers


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In pytest-xdist's controller, for each process: where it finds the others' broker."""
    stash = node.config.stash
    if _RUN_FOLDER not in stash:
        name = f"ackfloor-pytest-{os.urandom(8).hex()}"
        stash[_RUN_FOLDER] = Path(tempfile.gettempdir()) / name
    node.workerinput["ackfloor_kafka"] = (str(stash[_RUN_FOLDER]), os.getpid())


def pytest_unconfigure(config: pytest.Config) -> None:
    """In the controller, when the run is over: end the broker, where a test has asked for it."""
    folder = config.stash.get(_RUN_FOLDER, None)
    if folder is not None and folder.exists():
        from ackfloor.testing.local_kafka.shared_broker import end_shared_broker

        end_shared_broker(folder)
