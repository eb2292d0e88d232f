"""`ackfloor policy preview`: the schedule as people and as programs read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ackfloor.cli.main import cli

APP = """
from ackfloor import App, RetryPolicy

app = App(group="a-group-with-a-long-name")


@app.handler(
    "a-topic-with-a-long-name",
    retry=RetryPolicy(initial_delay="1s", max_delay="2m", max_redeliveries=3),
    dead_letter_on=(ValueError,),
)
async def bill(order: bytes) -> None: ...
"""
TIERS = [
    f"a-topic-with-a-long-name--a-group-with-a-long-name--retry-{delay}"
    for delay in ("1s", "5s", "25s")
]


@pytest.fixture(autouse=True)
def app_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app to preview, where the command looks for it."""
    (tmp_path / "long_names.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def preview(*options: str) -> str:
    """What the command prints to standard output."""
    done = CliRunner().invoke(cli, ["policy", "preview", "long_names:app", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_narrow_terminal_folds_topic_names_and_cuts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that was cut could not be copied into another command."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = "".join(line.rstrip().rpartition("  ")[2] for line in preview().splitlines())
    assert [tier for tier in TIERS if tier not in shown] == []


def test_programs_read_the_same_schedule() -> None:
    """As JSON: every redelivery with its wait, the total, and the warnings."""
    (told,) = json.loads(preview("-o", "json", "--retention", "10s"))
    assert [delivery["tier"] for delivery in told["deliveries"]] == TIERS
    assert [delivery["wait_s"] for delivery in told["deliveries"]] == [1, 5, 25]
    assert told["total_s"] == 31
    assert len(told["warnings"]) == 2


def test_a_handler_that_does_not_exist_is_refused() -> None:
    """With the names of those that do."""
    done = CliRunner().invoke(cli, ["policy", "preview", "long_names:app", "--handler", "biil"])
    assert done.exit_code == 1
    assert "handlers are bill" in str(done.exception)
