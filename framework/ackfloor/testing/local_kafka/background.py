"""Local brokers that outlive the command that started them, each under a name.

Each has a file in the user's state folder: its address, its folder, and the identity (pid and start
time) of its guard and nodes, so that a process that merely got the same pid later is never killed.
The file is written before the guard detaches: a start that is interrupted leaves either nothing or
a broker that `take_down` finds. One lock per name orders its commands.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from ackfloor.errors import AckfloorError
from ackfloor.testing.local_kafka.cluster import KafkaCluster
from ackfloor.testing.local_kafka.guard import FOLDER_PREFIX
from ackfloor.testing.local_kafka.jars import KAFKA_VERSION
from ackfloor.testing.local_kafka.processes import ProcessIdentity

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_END_TIMEOUT_S = 15.0


class BackgroundBrokerRefused(AckfloorError):
    """A background broker cannot be started or stopped as asked."""


class NoBackgroundBroker(BackgroundBrokerRefused):
    """No broker of that name runs."""


class BrokerNameRefused(BackgroundBrokerRefused):
    """A name that cannot be a file's name everywhere."""


@dataclass(frozen=True, slots=True)
class BackgroundBroker:
    """One broker in the background, as recorded at its start."""

    name: str
    bootstrap_servers: str
    nodes: int
    kafka_version: str
    started_at: str
    data_dir: str
    guard: ProcessIdentity
    processes: tuple[ProcessIdentity, ...]

    @property
    def running(self) -> bool:
        """Whether its guard runs; the guard ends when the last node has."""
        return self.guard.alive

    @property
    def nodes_running(self) -> int:
        """How many of its nodes run."""
        return sum(process.alive for process in self.processes)


def state_dir() -> Path:
    """Where background brokers are recorded.

    ACKFLOOR_STATE_DIR, else `ackfloor` in XDG_STATE_HOME, else `~/.local/state/ackfloor`.
    """
    own = os.environ.get("ACKFLOOR_STATE_DIR")
    if own:
        return Path(own).expanduser() / "brokers"
    state_home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_home) / "ackfloor" / "brokers"


def bring_up(name: str, nodes: int, port: int | None) -> tuple[BackgroundBroker, bool]:
    """The running broker `name`, and whether this call started it.

    Args:
        name: letters, digits, `.`, `_` and `-`.
        nodes: 1 or 3.
        port: client port of the first node; None chooses free ones, or accepts those in use.

    Raises:
        BackgroundBrokerRefused: one of that name runs with other nodes or another port.
        AckfloorError: as `KafkaCluster.start`.
    """
    with _locked(name) as file:
        there = _read(file)
        if there is not None and there.running:
            _check_same(there, nodes, port)
            return there, False
        if there is not None:
            _remove(there)
        cluster = KafkaCluster(nodes, port=port).start()
        try:
            broker = _describe(name, cluster)
            _write(file, broker)
            cluster.detach()
        except BaseException:
            cluster.stop()
            file.unlink(missing_ok=True)
            raise
        return broker, True


def take_down(name: str) -> BackgroundBroker | None:
    """Stop the broker `name` and remove its data; None where there is none.

    Raises:
        BackgroundBrokerRefused: its processes do not end.
    """
    with _locked(name) as file:
        broker = _read(file)
        if broker is None:
            return None
        _remove(broker)
        file.unlink(missing_ok=True)
        return broker


def running_broker(name: str) -> BackgroundBroker:
    """The running broker `name`.

    Raises:
        NoBackgroundBroker: there is none.
        BrokerNameRefused: no broker can have that name.
    """
    with _locked(name) as file:
        broker = _read(file)
    if broker is None or not broker.running:
        raise NoBackgroundBroker(
            f"no broker {name!r} runs; start it: ackfloor broker up --name {name}"
        )
    return broker


def background_brokers() -> list[BackgroundBroker]:
    """All that are recorded, running or not, by name."""
    found = (_read(file) for file in sorted(state_dir().glob("*.json")))
    return [broker for broker in found if broker is not None]


def _describe(name: str, cluster: KafkaCluster) -> BackgroundBroker:
    guard, *nodes = (ProcessIdentity.of(pid) for pid in (cluster.guard_pid, *cluster.pids.values()))
    if guard is None or None in nodes:
        raise BackgroundBrokerRefused(f"broker {name!r} ended right after its start; try again")
    return BackgroundBroker(
        name=name,
        bootstrap_servers=cluster.bootstrap_servers,
        nodes=len(nodes),
        kafka_version=KAFKA_VERSION,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        data_dir=str(cluster.data_dir),
        guard=guard,
        processes=tuple(node for node in nodes if node is not None),
    )


def _check_same(broker: BackgroundBroker, nodes: int, port: int | None) -> None:
    first_port = int(broker.bootstrap_servers.partition(",")[0].rpartition(":")[2])
    if broker.nodes == nodes and port in (None, first_port):
        return
    raise BackgroundBrokerRefused(
        f"broker {broker.name!r} runs already with --nodes {broker.nodes} --port {first_port}; "
        f"stop it first (ackfloor broker down --name {broker.name}) or choose another --name"
    )


def _remove(broker: BackgroundBroker) -> None:
    """Terminate its guard, kill whatever is left, then remove the data."""
    if not broker.guard.end(signal.SIGTERM, _END_TIMEOUT_S):
        broker.guard.end(signal.SIGKILL, _END_TIMEOUT_S)
    for process in (broker.guard, *broker.processes):
        if not process.end(signal.SIGKILL, _END_TIMEOUT_S):
            raise BackgroundBrokerRefused(
                f"broker {broker.name!r}: process {process.pid} does not end; look at it by hand"
            )
    data_dir = Path(broker.data_dir)
    # The file could have been edited: only a folder that a guard makes is ever removed.
    if data_dir.name.startswith(FOLDER_PREFIX) and data_dir.parent.is_dir():
        shutil.rmtree(data_dir, ignore_errors=True)


@contextmanager
def _locked(name: str) -> Iterator[Path]:
    """The state file of `name`, for this process alone. The lock file stays: removing it races."""
    if not _NAME.fullmatch(name):
        raise BrokerNameRefused(
            f"--name {name!r}: use up to 64 letters, digits, '.', '_' or '-', "
            "a letter or digit first"
        )
    folder = state_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / f"{name}.json"


def _read(file: Path) -> BackgroundBroker | None:
    try:
        raw = json.loads(file.read_text("utf-8"))
        guard = ProcessIdentity(**raw.pop("guard"))
        processes = tuple(ProcessIdentity(**process) for process in raw.pop("processes"))
        return BackgroundBroker(guard=guard, processes=processes, **raw)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BackgroundBrokerRefused(
            f"{file} cannot be read ({error}); end its broker by hand, then delete the file"
        ) from None


def _write(file: Path, broker: BackgroundBroker) -> None:
    handle, draft = tempfile.mkstemp(prefix=".broker-", dir=file.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump(asdict(broker), out, indent=2)
    Path(draft).replace(file)
