"""`ackfloor demo`: what the command makes of its options; the demo itself has its own tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.cli.setup import demo as command

Given = dict[str, Any]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Given]:
    """The options that the demo was called with; it answers 1."""
    calls: list[Given] = []

    def run(**options: Any) -> int:
        calls.append(options)
        return 1

    monkeypatch.setattr(command, "load_command", lambda _path: run)
    return calls


def test_the_defaults_are_those_of_the_demo(given: list[Given]) -> None:
    """Without a flag the whole demo runs, and its answer is the exit code."""
    from ackfloor_handlers.demo.demo_run import Plan

    assert CliRunner().invoke(cli, ["demo"]).exit_code == 1
    assert Plan(**given[0]) == Plan()


def test_flags_reach_the_demo(given: list[Given]) -> None:
    """Each in its own unit."""
    flags = "--orders 500 --rate 0 --workers 3 --seed 9 --no-kill --no-spark --replace --keep"
    runner, page = CliRunner(), ("--report", "page.html")
    runner.invoke(
        cli, ["demo", *flags.split(), "--broker-outage", "1m5s", "--log", "run.log", *page]
    )
    assert given == [
        {
            "orders": 500,
            "rate": 0,
            "workers": 3,
            "seed": 9,
            "kill": False,
            "outage_s": 65.0,
            "spark": False,
            "replace": True,
            "keep": True,
            "log_file": Path("run.log"),
            "page": Path("page.html"),
        }
    ]


def test_every_flag_has_its_variable(given: list[Given]) -> None:
    """For a container or a CI job."""
    variables = {
        "ACKFLOOR_DEMO_ORDERS": "700",
        "ACKFLOOR_DEMO_RATE": "10",
        "ACKFLOOR_DEMO_KILL": "false",
        "ACKFLOOR_DEMO_SPARK": "false",
        "ACKFLOOR_DEMO_BROKER_OUTAGE": "20s",
    }
    CliRunner(env=variables).invoke(cli, ["demo"])
    (options,) = given
    assert (options["orders"], options["rate"], options["outage_s"]) == (700, 10, 20.0)
    assert (options["kill"], options["spark"]) == (False, False)


def test_an_outage_without_a_unit_is_refused(given: list[Given]) -> None:
    """Exit code 2 and the unit it lacks; nothing is started."""
    result = CliRunner().invoke(cli, ["demo", "--broker-outage", "20"])
    assert result.exit_code == 2
    assert "--broker-outage" in result.output
    assert given == []
