"""`ackfloor policy preview`: the schedule as people and as programs read it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
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
IN_PLACE = """
from ackfloor import App, RetryPolicy

app = App(group="g")


@app.handler("orders", ordering="key", retry=RetryPolicy.fixed("5s", 1))
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


def test_a_narrow_terminal_has_topic_names_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that was cut or folded could not be copied into another command."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = [line.split()[-1] for line in preview().splitlines() if line.strip()]
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


POLICIES = """
from ackfloor import App, RetryPolicy

app = App(group="g")


@app.handler("a", retry=RetryPolicy.fixed("1s", 3))
async def short(order: bytes) -> None: ...


@app.handler("b", retry=RetryPolicy.fixed("1h", None), consume_timeout=None)
async def endless(order: bytes) -> None: ...


@app.handler("c", dead_letter_on=(ValueError, OSError))
async def usual(order: bytes) -> None: ...


@app.handler("d", retry=RetryPolicy(max_redeliveries=0))
async def never(order: bytes) -> None: ...
"""


@pytest.fixture
def policies(tmp_path: Path) -> str:
    """An app with policies that a person should look at twice."""
    (tmp_path / "many_policies.py").write_text(POLICIES)
    return "many_policies:app"


def test_the_table_says_when_each_delivery_is_due(
    policies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In absolute times, with the total to the dead-letter queue, on standard output."""
    monkeypatch.setenv("COLUMNS", "160")
    before = datetime.now(UTC).replace(microsecond=0)
    done = CliRunner().invoke(cli, ["policy", "preview", policies, "--handler", "usual"])
    after = datetime.now(UTC)
    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines() if "--g--retry-" in line]
    assert [row[:3] for row in rows] == [
        ["2", "1s", "1s"],
        ["3", "5s", "6s"],
        ["4", "25s", "31s"],
        ["5", "2m5s", "2m36s"],
        ["6", "10m", "12m36s"],
        ["7", "10m", "22m36s"],
    ]
    for row, total_s in zip(rows, (1, 6, 31, 156, 756, 1356), strict=True):
        due = datetime.fromisoformat(f"{row[3]} {row[4]}+00:00")
        assert before <= due - timedelta(seconds=total_s) <= after
    assert "after 7 deliveries and at least 22m36s of waiting: c--g--dlq" in done.stdout


@pytest.mark.parametrize(
    ("handler", "options", "named"),
    [
        ("short", [], ["the whole schedule is over in 3s"]),
        ("endless", [], ["unlimited"]),
        ("usual", [], ["OSError", "ValueError"]),
        ("usual", ["--retention", "10m"], ["retention of 10m", "OSError", "ValueError"]),
        ("usual", ["--retention", "1h"], ["OSError", "ValueError"]),
        ("never", [], ["no redelivery"]),
    ],
)
def test_what_a_person_should_know_is_a_warning(
    policies: str, handler: str, options: list[str], named: list[str]
) -> None:
    """On standard error beside the table, and in the JSON: one for each reason and no other."""
    command = ["policy", "preview", policies, "--handler", handler, *options]
    shown = CliRunner().invoke(cli, command)
    told = json.loads(CliRunner().invoke(cli, [*command, "-o", "json"]).stdout)[0]["warnings"]
    assert len(told) == len(named)
    assert [name for name, text in zip(named, told, strict=True) if name not in text] == []
    assert shown.stderr.count("warning:") == len(named)
    assert "warning" not in shown.stdout


def test_policies_without_end_and_without_retries_are_told_as_such(policies: str) -> None:
    """JSON has no number for them, and the table says it in words."""
    rows = json.loads(CliRunner().invoke(cli, ["policy", "preview", policies, "-o", "json"]).stdout)
    told = {row["handler"]: row for row in rows}
    assert told["endless"]["total_s"] is None
    assert told["endless"]["max_redeliveries"] is None
    assert told["endless"]["consume_timeout_s"] is None
    assert told["never"]["deliveries"] == []
    shown = CliRunner().invoke(cli, ["policy", "preview", policies]).stdout
    assert "without end" in shown
    assert "after the first failure: d--g--dlq" in shown


def test_a_wrong_duration_is_refused_with_the_units(policies: str) -> None:
    """A bare number has none."""
    done = CliRunner().invoke(cli, ["policy", "preview", policies, "--retention", "7"])
    assert "--retention='7'" in str(done.exception)


def test_a_handler_that_retries_in_place_waits_in_no_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same schedule, without retry topics."""
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "in_place.py").write_text(IN_PLACE)
    told = CliRunner().invoke(cli, ["policy", "preview", "in_place:app"]).stdout
    assert "its place" in told
    assert "--retry-" not in told
    done = CliRunner().invoke(cli, ["policy", "preview", "in_place:app", "-o", "json"])
    (facts,) = json.loads(done.stdout)
    assert [(d["wait_s"], d["tier"]) for d in facts["deliveries"]] == [(5, None)]
