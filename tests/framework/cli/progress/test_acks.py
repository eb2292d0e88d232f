"""`ackfloor acks` on a real broker: from commits alone, beside a run, and after it was killed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from typer.testing import CliRunner, Result

from ackfloor.cli.main import cli
from ackfloor.cli.progress.progress_watch import NotThere
from ackfloor.core.acks.gap_set import GapSet
from ackfloor.operations.run_client import ControlFailed
from tests.framework.cli.command import Running
from tests.framework.cli.progress.test_lag import committed, metadata
from tests.framework.kafka.wire import fresh, make_topic, produce
from tests.processes import kill
from tests.structure.pages import blocks
from tests.structure.sources import REPOSITORY

pytestmark = pytest.mark.kafka

#: The app that the guide's examples are of.
(SHOP,) = [
    block.text
    for block in blocks((REPOSITORY / "docs" / "guide" / "operations.md").read_text())
    if block.file == "shop.py"
]


@pytest.fixture(autouse=True)
def here(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings are the environment's alone, and by them there is no run."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.setenv("ACKFLOOR_APP__LISTEN", "127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def ended(*arguments: str) -> Result:
    """A command, run to its end."""
    return CliRunner().invoke(cli, list(arguments))


def told(*arguments: str) -> list[dict[str, Any]]:
    """What it prints as JSON."""
    done = ended(*arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_a_commit_tells_what_the_floor_waits_for(bootstrap_servers: str) -> None:
    """Of one partition, of a topic, of a group; the oldest open record says when it was written."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("acks")
    produce(bootstrap_servers, topic, 10)
    text = metadata(bootstrap_servers, topic, 0, GapSet(3, [(4, 6), (7, 9)]))
    committed(bootstrap_servers, group, TopicPartition(topic, 0, 3, metadata=text))
    (seen,) = told("acks", f"{topic}/0", "--group", group)
    names = ("floor", "read_to", "open", "settled", "gaps", "oldest", "map", "seen", "handler")
    assert [seen[name] for name in names] == [3, 9, 2, 4, 2, 3, "·██·██", "commit", ""]
    assert 0 <= seen["written_s_ago"] < 3600
    assert seen["open_for_s"] is None
    first, second = told("acks", topic, "--group", group)
    assert (first["floor"], second["floor"], second["map"]) == (3, None, "")
    assert second["note"] == "no commit yet"
    assert "·██·██" in ended("acks", "--group", group).stdout


def test_a_run_adds_what_it_knows_and_its_death_takes_nothing_away(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    """Two records hang: while the run lives they are at work, and killed with -9 they are open."""
    topic, group = make_topic(bootstrap_servers), fresh("hangs")
    shop = SHOP.replace('"orders"', repr(topic)).replace('"billing"', repr(group))
    (tmp_path / "shop.py").write_text(shop)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for n in range(10):
        producer.produce(topic, b"stuck" if n in (3, 6) else b"order")
    assert producer.flush(60) == 0
    run = Running("shop:app", "--listen", "127.0.0.1:0", cwd=tmp_path, **_servers())
    try:
        listen = run.logged("metrics and health on http://").rpartition("http://")[2]
        asked = ("acks", f"{topic}/0", "--group", group)
        # The first ones may be of a moment in which others were at work as well.
        run.until(lambda: _settled(*asked) == 5, "a commit of all but two")
        asked += ("--listen", listen)

        rows: list[dict[str, Any]] = []

        def seen_live() -> bool:
            rows[:] = looked(*asked)
            return bool(rows) and bool(rows[0]["open_for_s"]) and rows[0]["settled"] == 5

        run.until(seen_live, "a snapshot of the run")
        (seen,) = rows
        names = ("floor", "read_to", "open", "settled", "oldest", "handler", "seen", "map")
        assert [seen[name] for name in names] == [3, 10, 2, 5, 3, "bill", "live", "▸██▸███"]

        stuck = ("inflight", "--trace", "--listen", listen)

        def traced() -> bool:
            rows[:] = looked(*stuck)
            return len(rows) == 2 and all(row["stack"] for row in rows)

        run.until(traced, "stacks of both")
        assert sorted(row["record"] for row in rows) == [f"{topic}/0/3", f"{topic}/0/6"]
        assert all(
            any("shop.py" in line and "ask_the_bank" in line for line in r["stack"]) for r in rows
        )
        assert all(3_500 < row["left_s"] + row["running_s"] < 3_601 for row in rows)
        # The run stands still, so that it starts no other worker, and none that drains.
        run.signal(signal.SIGSTOP)
        kill(rows[0]["pid"])
        run.signal(signal.SIGKILL)
    finally:
        run.close()
    (seen,) = told("acks", f"{topic}/0", "--group", group)
    names = ("floor", "open", "settled", "gaps", "oldest", "seen", "map")
    assert [seen[name] for name in names] == [3, 2, 5, 2, 3, "commit", "·██·███"]
    (behind,) = [row for row in told("lag", "--group", group) if row["topic"] == topic]
    assert [behind[name] for name in ("lag", "settled", "open")] == [7, 5, 2]


def _settled(*arguments: str) -> int:
    """How many the commit has above its floor; 0 where the group is not known yet."""
    return sum(int(row["settled"]) for row in looked(*arguments))


def looked(*arguments: str) -> list[dict[str, Any]]:
    """What it prints as JSON; nothing where there is no group yet, or no answer in its time."""
    done = ended(*arguments, "-o", "json")
    if done.exit_code:
        time.sleep(0.1)
        return []
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def _servers() -> dict[str, str]:
    return {"ACKFLOOR_BOOTSTRAP_SERVERS": os.environ["ACKFLOOR_BOOTSTRAP_SERVERS"]}


def test_what_is_asked_wrongly_is_refused(bootstrap_servers: str) -> None:
    """A place that is none, and an address where nobody is."""
    done = ended("acks", "orders/x", "--group", "g")
    assert done.exit_code == 2
    assert "TOPIC or TOPIC/PARTITION" in " ".join(done.stderr.replace("│", " ").split())
    topic, group = make_topic(bootstrap_servers), fresh("acks")
    committed(bootstrap_servers, group, TopicPartition(topic, 0, 0))
    for place, text in (
        (f"{topic}x", f"{topic}x': there is {topic}"),
        (f"{topic}/99", "has no partition 99: it has 1, from 0"),
    ):
        done = ended("acks", place, "--group", group)
        assert isinstance(done.exception, NotThere)
        assert (done.exception.exit_code, text in str(done.exception)) == (2, True)
    done = ended("acks", "--group", group, "--listen", "127.0.0.1:1")
    assert isinstance(done.exception, ControlFailed)
