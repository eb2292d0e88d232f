"""What commands say of a handler that takes its topics by a pattern, on a real broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from ackfloor.cli.main import cli
from ackfloor.errors import ConfigError, TopicsMissing
from tests.framework.kafka.wire import fresh, until

pytestmark = [pytest.mark.kafka]

APP = """
from ackfloor import App, RetryPolicy

app = App(group="billing")


@app.handler("^{topic}-.*", retry=RetryPolicy.fixed("5s", 1))
async def bill(order: bytes) -> None: ...
"""
SECOND = """

@app.handler("^.*-{topic}-eu", "{topic}.named")
async def europe(order: bytes) -> None: ...
"""
MODULE = "shop_of_patterns_test"


class Scene:
    """An app with a pattern, and topics of its own."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.topic = fresh("orders")
        self._file = folder / f"{MODULE}.py"
        self._admin = AdminClient({"bootstrap.servers": servers})
        self.write(APP)

    def write(self, text: str) -> None:
        """The app from now on."""
        sys.modules.pop(MODULE, None)
        self._file.write_text(text.format(topic=self.topic), "utf-8")

    def create(self, *suffixes: str) -> list[str]:
        """New topics."""
        names = [f"{self.topic}-{suffix}" for suffix in suffixes]
        for future in self._admin.create_topics([NewTopic(n, 1, 1) for n in names]).values():
            future.result(60)
        until(lambda: set(names) <= self._admin.list_topics(timeout=60).topics.keys())
        return names

    def run(self, *words: str) -> Result:
        """A command on the app."""
        command = [word.replace("APP", f"{MODULE}:app") for word in words]
        return CliRunner().invoke(cli, command)

    def doctor(self) -> dict[str, dict[str, str]]:
        """What the doctor finds, by check."""
        return {
            each["check"]: each
            for each in json.loads(self.run("doctor", "APP", "-o", "json").stdout)
        }


@pytest.fixture
def scene(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootstrap_servers: str
) -> Iterator[Scene]:
    """A scene in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Scene(tmp_path, bootstrap_servers)
    sys.modules.pop(MODULE, None)


def test_topics_are_planned_and_made_for_what_matches_now(scene: Scene) -> None:
    """Again after a new one has come; what was made does not match."""
    [eu] = scene.create("eu")
    assert scene.run("topics", "apply", "APP", "--yes").exit_code == 0
    [us] = scene.create("us")
    rows = json.loads(scene.run("topics", "plan", "APP", "-o", "json").stdout)
    assert {(row["source"], row["topic"], row["action"]) for row in rows} == {
        (eu, f"{eu}--billing--retry-5s", "ok"),
        (eu, f"{eu}--billing--dlq", "ok"),
        (us, f"{us}--billing--retry-5s", "create"),
        (us, f"{us}--billing--dlq", "create"),
    }


def test_topics_refuse_what_a_run_would_refuse(scene: Scene) -> None:
    """No topic at all, and one that two handlers match."""
    assert isinstance(scene.run("topics", "plan", "APP").exception, TopicsMissing)
    scene.create("eu", f"x-{scene.topic}-eu")
    scene.write(APP + SECOND)
    refused = scene.run("topics", "plan", "APP").exception
    assert isinstance(refused, ConfigError)
    for named in (f"{scene.topic}-x-{scene.topic}-eu", "'europe'", "handlers.bill.topics"):
        assert named in str(refused)


def test_the_doctor_says_what_a_pattern_matches(scene: Scene) -> None:
    """And checks these topics; none is a warning, one that is left out a failure."""
    found = scene.doctor()[f"pattern ^{scene.topic}-.*"]
    assert (found["state"], found["fix"]) == ("warn", "create one, or correct the pattern")
    eu, us = scene.create("eu", "us")
    found = scene.doctor()
    assert found[f"pattern ^{scene.topic}-.*"]["detail"] == f"handler bill reads {eu}, {us}"
    for topic in (eu, us, f"{us}--billing--dlq", f"{eu}--billing--retry-5s"):
        assert found[f"topic {topic}"]["state"] == "ok"
    assert found[f"rights on {us}"]["state"] == "ok"
    [both] = scene.create(f"x-{scene.topic}-eu")
    scene.write(APP + SECOND)
    found = scene.doctor()
    assert found[f"topic {both}"]["state"] == "fail"
    assert "narrow one of the patterns" in found[f"topic {both}"]["fix"]
    assert found[f"topic {eu}"]["state"] == "ok"


def test_commands_without_a_broker_name_the_pattern(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They can't know what it matches, and say so by a place for the name."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    shown = scene.run("policy", "preview", "APP")
    assert shown.exit_code == 0, shown.output
    assert f"bill: ^{scene.topic}-.* (consume timeout" in shown.stdout
    assert "<topic>--billing--retry-5s" in shown.stdout
    [facts] = json.loads(scene.run("policy", "preview", "APP", "-o", "json").stdout)
    assert (facts["topics"], facts["patterns"]) == ([], [f"^{scene.topic}-.*"])
    settings = scene.run("config", "show", "APP")
    assert settings.exit_code == 0
    assert "handlers.bill.consume_timeout" in settings.stdout
    assert "app.max_pattern_topics" in settings.stdout
