"""One broker for the test processes of a run, as pytest-xdist starts them.

The first process that needs it starts an owner (this module run as a program), which holds the
broker for all of them and lets go when the run's controller ends: told by `end_shared_broker`, or
by finding it gone. So neither a test process that finishes early nor a killed run decides over the
broker of the others.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from ackfloor.errors import AckfloorError
from ackfloor.testing.local_kafka.bootstrap import check_answers, open_broker
from ackfloor.testing.local_kafka.processes import ProcessIdentity

#: More than a first start takes that fetches jars or an image; the owner's own limits are shorter.
_START_TIMEOUT_S = 180.0
_END_TIMEOUT_S = 20.0
_NO_CONFIG: Mapping[str, str] = MappingProxyType({})


class SharedBrokerFailed(AckfloorError):
    """The owner of a run's broker could not open one; the message is its own."""


def shared_broker(
    folder: Path, controller_pid: int, *, config: Mapping[str, str] = _NO_CONFIG
) -> str:
    """Bootstrap servers of the run's broker; the first caller starts it while others wait.

    Args:
        folder: one of the run's own, in which the processes find each other; made here.
        controller_pid: the process whose end ends the broker.
        config: extra broker properties, as in `open_broker`; the first caller's count.

    Raises:
        SharedBrokerFailed: no broker is available.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    started = folder / "broker.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not started.exists():
            _start_owner(folder, controller_pid, config)
    answer = json.loads(started.read_text())
    if "error" in answer:
        raise SharedBrokerFailed(answer["error"])
    servers: str = answer["bootstrap_servers"]
    return servers


def end_shared_broker(folder: Path) -> None:
    """In the controller, when the run is over: let the owner close the broker, and wait."""
    started = folder / "broker.json"
    if started.exists() and "owner" in (answer := json.loads(started.read_text())):
        ProcessIdentity(**answer["owner"]).end(signal.SIGTERM, wait_s=_END_TIMEOUT_S)
    shutil.rmtree(folder, ignore_errors=True)


def _start_owner(folder: Path, controller_pid: int, config: Mapping[str, str]) -> None:
    log = folder / "owner.log"
    module = "ackfloor.testing.local_kafka.shared_broker"
    arguments = (folder, str(controller_pid), json.dumps(dict(config)))
    with log.open("ab") as output:
        owner = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    give_up = time.monotonic() + _START_TIMEOUT_S
    while not (folder / "broker.json").exists():
        ended = owner.poll() is not None and not (folder / "broker.json").exists()
        if ended or time.monotonic() > give_up:
            owner.kill()
            owner.wait()
            raise SharedBrokerFailed(f"the owner of the broker ended:\n{log.read_text()}")
        time.sleep(0.02)
    # It outlives this process on purpose; the controller ends it.
    owner.returncode = 0


def _keep(folder: Path, controller_pid: int, config: Mapping[str, str]) -> None:
    """Hold a broker until SIGTERM, or until the controller or the folder of the run is gone."""
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ending.append(number))
    controller = ProcessIdentity.of(controller_pid)
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(open_broker(config=config))
            check_answers(broker)
        except AckfloorError as exc:
            # Whoever comes later is told at once, and starts no second attempt.
            _tell(folder, {"error": str(exc)})
            return
        owner = {"pid": me.pid, "started": me.started}
        _tell(folder, {"bootstrap_servers": broker.bootstrap_servers, "owner": owner})
        while not ending and controller is not None and controller.alive:
            time.sleep(0.2)
    if not ending:
        shutil.rmtree(folder, ignore_errors=True)


def _tell(folder: Path, answer: Mapping[str, object]) -> None:
    draft = folder / "broker.json.new"
    draft.write_text(json.dumps(answer))
    draft.rename(folder / "broker.json")


if __name__ == "__main__":
    _keep(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
