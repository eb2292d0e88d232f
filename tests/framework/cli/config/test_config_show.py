"""`ackfloor config show`: a table for people, JSON for programs, and no secret in either."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ackfloor.cli.config.config_show import config_app
from ackfloor.cli.shared.parameters import Brokers
from ackfloor.errors import ConfigError, StartError
from ackfloor.live.token import token_path
from ackfloor.operations import ControlFailed, Ending, Runs, SettingChange
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.monitoring.console.settings_stage import TOKEN, SettingsRun

APP = """
from ackfloor.app import App

app = App("billing", start="latest", kafka={"client_id": "shop"})


@app.handler("orders", concurrency=8)
async def bill(order: bytes) -> None: ...


def make() -> App:
    return app
"""


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with an app of its own, importable as the command makes it."""
    (tmp_path / "shop_of_config_test.py").write_text(APP, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("ACKFLOOR_BOOTSTRAP_SERVERS", "ACKFLOOR_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    yield
    sys.modules.pop("shop_of_config_test", None)


def show(*arguments: str, **environment: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(config_app, ["show", *arguments], env=environment)


def as_rows(result: Result) -> dict[str, tuple[str, str]]:
    """name -> (value, source) of the JSON output."""
    assert result.exit_code == 0, result.output
    return {row["name"]: (row["value"], row["source"]) for row in json.loads(result.stdout)}


def test_each_value_is_shown_with_its_source() -> None:
    """From the app's code, a variable, and the file."""
    Path("ackfloor.toml").write_text("[app]\nworkers = 3", "utf-8")

    found = as_rows(
        show("shop_of_config_test:app", "-o", "json", ACKFLOOR_HANDLERS__BILL__CONCURRENCY="2")
    )

    assert found["app.group"] == ("billing", "code")
    assert found["app.start"] == ("latest", "code")
    assert found["kafka.client_id"] == ("shop", "code")
    assert found["app.workers"] == ("3", "file ackfloor.toml")
    assert found["handlers.bill.concurrency"] == (
        "2",
        "environment ACKFLOOR_HANDLERS__BILL__CONCURRENCY",
    )
    assert found["app.max_open"] == ("50000", "built-in")


def test_no_app_is_needed() -> None:
    """Then the code's arguments and the handlers are not known."""
    found = as_rows(show("-o", "json"))

    assert found["app.group"] == ("", "built-in")
    assert not any(name.startswith("handlers.") for name in found)


def test_a_factory_is_called() -> None:
    """As with `run`."""
    assert "app.group" in as_rows(show("shop_of_config_test:make", "--factory", "-o", "json"))


def test_the_table_is_for_people_and_hides_secrets() -> None:
    """Long sources are not cut, whatever the terminal's width."""
    result = show(ACKFLOOR_KAFKA__SASL_PASSWORD="s3cret", COLUMNS="40")

    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if "sasl_password" in line)
    assert line.split() == [
        "kafka.sasl_password",
        "***",
        "environment",
        "ACKFLOOR_KAFKA__SASL_PASSWORD",
    ]
    assert "s3cret" not in result.output


def test_another_file_can_be_named(tmp_path: Path) -> None:
    """By flag or by its variable."""
    other = tmp_path / "other.toml"
    other.write_text("[app]\nworkers = 9", "utf-8")

    by_flag = as_rows(show("--config", str(other), "-o", "json"))
    by_variable = as_rows(show("-o", "json", ACKFLOOR_CONFIG=str(other)))

    assert by_flag["app.workers"] == by_variable["app.workers"] == ("9", f"file {other}")


def test_mistakes_reach_the_command_line_as_errors_of_ours() -> None:
    """`main` prints them as one line and exits with their code."""
    assert isinstance(show(ACKFLOOR_APP__WORKERS="x").exception, ConfigError)
    assert isinstance(show("nowhere_at_all:app").exception, StartError)


TWO = """
[app]
workers = 3
[apps.billing.app]
workers = 5
[apps.billing.handlers.bill]
concurrency = 2
[apps.refunds.app]
workers = 7
"""


def test_an_apps_section_is_named_as_the_source() -> None:
    """That of the app's own group; without an app that of `--group`, or its variable."""
    Path("ackfloor.toml").write_text(TWO, "utf-8")

    found = as_rows(show("shop_of_config_test:app", "-o", "json"))
    assert found["app.workers"] == ("5", "file ackfloor.toml [apps.billing]")
    assert found["handlers.bill.concurrency"] == ("2", "file ackfloor.toml [apps.billing]")
    for named in (
        show("--group", "refunds", "-o", "json"),
        show("-o", "json", ACKFLOOR_GROUP="refunds"),
    ):
        assert as_rows(named)["app.workers"] == ("7", "file ackfloor.toml [apps.refunds]")
        assert as_rows(named)["app.group"] == ("refunds", "flag --group")
    unnamed = show("-o", "json")
    assert as_rows(unnamed)["app.workers"] == ("3", "file ackfloor.toml")
    assert "of single apps do not count here: [apps.billing.*], [apps.refunds.*]" in unnamed.stderr
    assert "no section [apps.refnds.*]; it has" in show("--group", "refnds").stderr
    assert show("shop_of_config_test:app").stderr == ""
    twin = show("--group", "refunds", "-o", "json", ACKFLOOR_APPS__REFUNDS__APP__WORKERS="9")
    assert as_rows(twin)["app.workers"] == ("9", "environment ACKFLOOR_APPS__REFUNDS__APP__WORKERS")


def test_a_group_that_is_not_the_apps_is_refused() -> None:
    """What would be shown then is what no run has."""
    refused = show("shop_of_config_test:app", "--group", "refunds")
    assert isinstance(refused.exception, ConfigError)
    assert "--group='refunds': the app's group is 'billing'" in str(refused.exception)
    assert show("shop_of_config_test:app", "--group", "billing").exit_code == 0


def test_a_group_that_no_app_can_have_has_no_section() -> None:
    """`lag --group` takes another tool's as well, and reads how to reach its brokers."""
    Path("ackfloor.toml").write_text('[kafka]\nbootstrap_servers = "k:1"\n', "utf-8")
    assert Brokers(group="another tool's").settings().kafka.bootstrap_servers == "k:1"
    assert Brokers(group="billing").settings().group == "billing"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SettingsRun]:
    """A run whose token is where it belongs."""
    monkeypatch.setenv("ACKFLOOR_STATE_DIR", str(tmp_path))
    (tmp_path / "run.toml").write_text("[handlers.bill]\nconcurrency = 8\n")
    made = SettingsRun(tmp_path / "run.toml")
    file = token_path(made.listen, None)
    file.write_text(TOKEN)
    file.chmod(0o600)
    yield made
    made.close()


def test_a_run_says_what_it_goes_by(run: SettingsRun) -> None:
    """With what was changed since it began; the files of this machine are not asked."""
    Path("ackfloor.toml").write_text("[app]\nworkers = 3", "utf-8")
    SettingChange("handlers.bill.rate", "5/s").act(Runs({run.listen: TOKEN}), Ending())
    found = as_rows(show("--running", "--listen", run.listen, "-o", "json"))
    assert found["handlers.bill.rate"] == ("5/s", "config set")
    assert found["app.workers"] == ("2", "flag --workers")
    assert found["handlers.bill.concurrency"][1].endswith("run.toml")
    table = show("--running", "--listen", run.listen).stdout
    assert TOKEN not in table
    assert "handlers.bill.rate" in table


def test_what_a_run_can_not_be_asked_is_refused(run: SettingsRun) -> None:
    """It has its app; nobody is there; it has another token."""
    both = show("shop_of_config_test:app", "--running", "--listen", run.listen)
    assert both.exit_code == Exit.USAGE
    assert "the run has its app" in both.stderr
    for option, value in (("--listen", run.listen), ("--token-file", "token")):
        alone = show(option, value)
        assert (alone.exit_code, "it is for --running" in alone.stderr) == (Exit.USAGE, True)
    assert show(ACKFLOOR_RUN_LISTEN=run.listen).exit_code == Exit.OK
    run.metrics.stop()
    gone = show("--running", "--listen", run.listen)
    assert isinstance(gone.exception, ControlFailed)
    assert gone.stdout == ""
