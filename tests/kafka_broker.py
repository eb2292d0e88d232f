"""One broker for a whole test run, started only when a test asks for it.

Without xdist the fixture opens it itself. Under xdist the first worker that needs it starts a
keeper (this file run as a script), which holds the broker for all of them and lets go when the
controller ends: told by the controller's `pytest_unconfigure`, or by finding it gone. So neither
a worker that finishes early nor a killed run decides over the broker of the others.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackfloor.testing.local_kafka.bootstrap import open_broker
from ackfloor.testing.local_kafka.processes import ProcessIdentity

_START_TIMEOUT_S = 180.0
#: Under the broker's own protocol a member hears of a change with its next heartbeat: every five
#: seconds, by default, for each step of a rebalance.
_CONFIG = {"group.consumer.heartbeat.interval.ms": "1000"}
_RUN_FOLDER = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Bootstrap servers of a real Kafka that all tests of the run share: use names of your own."""
    run_folder = getattr(request.config, "workerinput", {}).get("broker_run_folder")
    if run_folder is None:
        with open_broker(config=_CONFIG) as broker:
            yield broker.bootstrap_servers
    else:
        yield _shared(Path(run_folder))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In xdist's controller, for each worker: tell it the folder of the run."""
    stash = node.config.stash
    if _RUN_FOLDER not in stash:
        stash[_RUN_FOLDER] = Path(tempfile.mkdtemp(prefix="ackfloor-tests-"))
        (stash[_RUN_FOLDER] / "controller").write_text(str(os.getpid()))
    node.workerinput["broker_run_folder"] = str(stash[_RUN_FOLDER])


def pytest_unconfigure(config: pytest.Config) -> None:
    """In the controller, when the run is over: let the keeper close the broker, and wait."""
    folder = config.stash.get(_RUN_FOLDER, None)
    if folder is None:
        return
    started = folder / "broker.json"
    if started.exists():
        keeper = ProcessIdentity(**json.loads(started.read_text())["keeper"])
        keeper.end(signal.SIGTERM, wait_s=20)
    shutil.rmtree(folder, ignore_errors=True)


def _shared(folder: Path) -> str:
    """The run's broker; the first caller starts the keeper while the others wait at the lock."""
    started = folder / "broker.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not started.exists():
            _start_keeper(folder, started)
    servers: str = json.loads(started.read_text())["bootstrap_servers"]
    return servers


def _start_keeper(folder: Path, started: Path) -> None:
    log = folder / "keeper.log"
    with log.open("ab") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-P", __file__, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    give_up = time.monotonic() + _START_TIMEOUT_S
    while not started.exists():
        if keeper.poll() is not None or time.monotonic() > give_up:
            keeper.kill()
            keeper.wait()
            raise RuntimeError(f"no broker for the tests:\n{log.read_text()}")
        time.sleep(0.02)
    # It outlives this worker on purpose; the controller ends it.
    keeper.returncode = 0


def _keep(folder: Path) -> None:
    """Hold a broker until SIGTERM, or until the controller or the folder of the run is gone."""
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ending.append(number))
    controller = ProcessIdentity.of(int((folder / "controller").read_text()))
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    with open_broker(config=_CONFIG) as broker:
        keeper = {"pid": me.pid, "started": me.started}
        answer = {"bootstrap_servers": broker.bootstrap_servers, "keeper": keeper}
        draft = folder / "broker.json.new"
        draft.write_text(json.dumps(answer))
        draft.rename(folder / "broker.json")
        while not ending and controller is not None and controller.alive:
            time.sleep(0.2)
    if not ending:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
