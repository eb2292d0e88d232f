"""`ackfloor topics plan|apply` on a real broker: shown first, created when confirmed."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from ackfloor.cli.setup.topics import topics_app
from ackfloor.errors import ConfigError, KafkaUnreachable
from ackfloor.operations import TOPIC
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.framework.kafka.wire import until

pytestmark = [pytest.mark.kafka]

APP = """
from ackfloor.app import App
from ackfloor.core.records.retry_policy import RetryPolicy

app = App("billing")


@app.handler("{topic}", retry=RetryPolicy.fixed("5s"))
async def bill(order: bytes) -> None: ...
"""
MODULE = "shop_of_topics_test"


@pytest.fixture
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootstrap_servers: str) -> Iterator[str]:
    """A source topic, and a folder with an app that handles it."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{MODULE}.py").write_text(APP.format(topic=name), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)
    until(lambda: name in admin.list_topics(timeout=60).topics)
    yield name
    sys.modules.pop(MODULE, None)


def topics(*arguments: str) -> Result:
    """Run the command on the app."""
    command, *rest = arguments
    return CliRunner().invoke(topics_app, [command, f"{MODULE}:app", *rest])


def actions() -> dict[str, str]:
    """Topic -> action, as `plan -o json` says."""
    result = topics("plan", "-o", "json")
    assert result.exit_code == 0, result.output
    return {row["topic"]: row["action"] for row in json.loads(result.stdout)}


def test_nothing_is_created_without_a_word(topic: str) -> None:
    """Neither plan, nor a dry run, nor apply where nobody can be asked, creates anything."""
    wanted = {f"{topic}--billing--retry-5s": "create", f"{topic}--billing--dlq": "create"}
    assert actions() == wanted
    assert topics("apply", "--dry-run").exit_code == 0
    refused = topics("apply")
    assert refused.exit_code == Exit.USAGE
    assert "--yes" in refused.stderr
    assert actions() == wanted


def test_apply_creates_what_is_missing_once(topic: str) -> None:
    """The table names every topic; afterwards all is in order, and exit codes tell the state."""
    assert topics("plan", "--detailed-exitcode").exit_code == Exit.USAGE
    applied = topics("apply", "--yes")
    assert applied.exit_code == 0
    assert applied.stderr.count("created ") == 2
    assert set(actions().values()) == {"ok"}
    assert topics("plan", "--detailed-exitcode").exit_code == 0
    again = topics("apply", "--yes")
    assert (again.exit_code, again.stderr) == (0, "")


def test_the_topic_of_actions_is_made_where_that_is_asked_for(topic: str) -> None:
    """Beside the app's own, for operators who may create none."""
    assert TOPIC not in actions()
    applied = topics("apply", "--actions", "--yes")
    assert applied.exit_code == 0, applied.output
    planned = json.loads(topics("plan", "--actions", "-o", "json").stdout)
    [found] = [row for row in planned if row["topic"] == TOPIC]
    assert (found["action"], found["partitions"]) == ("ok", 1)


def test_a_missing_source_is_named(topic: str, tmp_path: Path) -> None:
    """Source topics are never created, and the error says what to do."""
    (tmp_path / f"{MODULE}.py").write_text(APP.format(topic=f"{topic}-typo"), "utf-8")
    result = topics("apply", "--yes")
    assert isinstance(result.exception, ConfigError)
    assert f"{topic}-typo" in str(result.exception)


def test_a_broker_that_is_away_is_named(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait has an end, and the error names the servers."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    result = topics("plan", "--connect-timeout", "100ms")
    assert isinstance(result.exception, KafkaUnreachable)
    assert "127.0.0.1:1" in str(result.exception)
