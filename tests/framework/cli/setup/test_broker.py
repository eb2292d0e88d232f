"""`ackfloor broker`: up outlives its command, is idempotent, and down leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ackfloor.testing import KafkaCluster
from ackfloor.testing.local_kafka.background import BackgroundBroker, background_brokers, take_down
from ackfloor.testing.local_kafka.cluster import DEFAULT_JVM_ARGS
from ackfloor.testing.local_kafka.metadata import known_brokers

pytestmark = [pytest.mark.kafka]

Run = Callable[..., "subprocess.CompletedProcess[str]"]
_COMMAND = "from ackfloor.cli.setup.broker import broker_app; broker_app()"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder of the test's own; its brokers are taken down at the end."""
    monkeypatch.setenv("ACKFLOOR_STATE_DIR", str(tmp_path))
    yield tmp_path / "brokers"
    for file in sorted((tmp_path / "brokers").glob("*.json")):
        take_down(file.stem)


@pytest.fixture
def broker(state: Path) -> Run:
    """Run one `broker` command to its end, in a process of its own."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _COMMAND, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert not state.exists()
    return run


def _only() -> BackgroundBroker:
    (found,) = background_brokers()
    return found


def test_up_status_down(broker: Run) -> None:
    """up prints the address of a broker that answers on; again it is the same; down ends it."""
    up = broker("up")
    assert up.returncode == 0, up.stderr
    servers = up.stdout.strip()
    assert f"export ACKFLOOR_BOOTSTRAP_SERVERS={servers}" in up.stderr
    host, _, port = servers.partition(":")
    assert known_brokers(host, int(port)) == {1}
    again = broker("up")
    assert (again.returncode, again.stdout) == (0, up.stdout)

    (row,) = json.loads(broker("status", "-o", "json").stdout)
    assert (row["name"], row["state"], row["nodes_running"]) == ("default", "running", 1)
    assert servers in broker("status").stdout

    known = _only()
    assert broker("down").returncode == 0
    assert not known.guard.alive
    assert not any(process.alive for process in known.processes)
    assert not Path(known.data_dir).exists()
    assert broker("status", "--name", "default").returncode == 1
    second = broker("down")
    assert (second.returncode, second.stdout) == (0, "")
    assert "there is none" in second.stderr


def test_a_topic_is_created_once(broker: Run) -> None:
    """With its partitions; again nothing changes, and other partitions are refused."""
    nobody = broker("topic", "orders")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "start it: ackfloor broker up --name default" in nobody.stderr
    servers = broker("up").stdout.strip()
    bad = broker("topic", "a--b")
    assert (bad.returncode, "topic='a--b'" in bad.stderr) == (2, True)
    made = broker("topic", "orders", "--partitions", "3")
    assert (made.returncode, made.stdout) == (0, "orders\n"), made.stderr
    assert "with 3 partitions created on broker 'default'" in made.stderr
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=60).topics
    assert len(topics["orders"].partitions) == 3
    again = broker("topic", "orders", "--partitions", "3")
    assert (again.returncode, again.stdout) == (0, "orders\n")
    assert "was already there" in again.stderr
    differs = broker("topic", "orders", "--partitions", "4")
    assert (differs.returncode, differs.stdout) == (1, "")
    assert "is there with 3 partitions, not 4" in differs.stderr


def test_running_broker_is_not_replaced(broker: Run) -> None:
    """Other nodes or another port under the same name are refused with the way out."""
    assert broker("up", "--name", "mine").returncode == 0
    refused = broker("up", "--name", "mine", "--nodes", "3")
    assert refused.returncode == 1
    assert "ackfloor broker down --name mine" in refused.stderr


def test_bad_usage_exits_2(broker: Run) -> None:
    """A number of nodes or a name that cannot be is a usage error."""
    nodes = broker("up", "--nodes", "2")
    assert (nodes.returncode, "1 or 3 nodes" in nodes.stderr) == (2, True)
    name = broker("up", "--name", "../elsewhere")
    assert name.returncode == 2
    assert "letters, digits" in name.stderr


def test_start_that_fails_exits_1_and_leaves_nothing(
    broker: Run, monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    """Without any usable Java the reason is one message, and nothing is written down."""
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("M2_REPO", str(state.parent / "empty"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    failed = broker("up")
    assert failed.returncode == 1
    assert re.search(r"could not fetch \d+ jars from .*: ProxyError", failed.stderr)
    assert "ACKFLOOR_BOOTSTRAP_SERVERS" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert background_brokers() == []


def test_broken_broker_is_replaced(broker: Run) -> None:
    """A broker whose guard was killed is shown as gone, and up starts a new one in its place."""
    assert broker("up").returncode == 0
    first = _only()
    os.kill(first.guard.pid, signal.SIGKILL)
    assert first.guard.gone_within(60)
    (row,) = json.loads(broker("status", "-o", "json").stdout)
    assert row["state"] == "gone"
    assert broker("up").returncode == 0
    assert not any(process.alive for process in first.processes)
    assert not Path(first.data_dir).exists()
    assert _only().running


def test_recycled_pids_are_left_alone(broker: Run, state: Path) -> None:
    """down after a restart of the machine kills nobody who happens to have the old pids."""
    assert broker("up").returncode == 0
    known = _only()
    file = state / "default.json"
    raw = json.loads(file.read_text())
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as bystander:
        raw["guard"]["pid"] = bystander.pid
        file.write_text(json.dumps(raw | {"processes": []}))
        assert broker("down").returncode == 0
        assert bystander.poll() is None
        bystander.kill()
    assert known.guard.end(signal.SIGTERM, wait_s=60)


def test_unreadable_state_is_named(broker: Run, state: Path) -> None:
    """A state file that is no longer one is named, not guessed at."""
    state.mkdir(parents=True)
    file = state / "default.json"
    file.write_text("{}")
    failed = broker("down")
    file.unlink()
    assert failed.returncode == 1
    assert str(file) in failed.stderr


def test_prepare_makes_an_archive_that_each_broker_takes(
    broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: the second time it is there. Brokers of tests take it, too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = broker("prepare")
    assert first.returncode == 0, first.stderr
    assert "archive of classes made" in first.stderr
    archive = Path(first.stdout.strip())
    assert list((tmp_path / "cache" / "ackfloor" / "java").iterdir()) == [archive]
    again = broker("prepare")
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert "was there already" in again.stderr
    options = ("-Xlog:class+load=info:file=" + str(tmp_path / "loaded"), *DEFAULT_JVM_ARGS)
    with KafkaCluster(jvm_args=options):
        told = (tmp_path / "loaded").read_text("utf-8")
    assert "kafka.server.KafkaRaftServer source: shared objects file" in told


def test_prepare_tells_why_there_can_be_no_archive(
    broker: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence, and exit code 1; brokers start without one."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = broker("prepare")
    assert done.returncode == 1
    assert f"error: Java 21 ({java}) has no archive of its own classes" in done.stderr
    assert "Traceback" not in done.stderr
