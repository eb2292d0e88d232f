"""Settings of runs: read with their sources, and changed, over their addresses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackfloor.live.frames import Overdue
from ackfloor.live.requests import Change
from ackfloor.live.run_control import PATH, ConfigControl
from ackfloor.operations import (
    ActionState,
    ControlFailed,
    Ending,
    Runs,
    SettingChange,
    SettingValue,
    ask_settings,
)
from ackfloor.settings import rows
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from tests.monitoring.console.settings_stage import TOKEN, SettingsRun

CONCURRENCY = "handlers.bill.concurrency"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("ACKFLOOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ACKFLOOR_HANDLERS__PAY_BACK__CONSUME_TIMEOUT", "7s")
    monkeypatch.setenv("ACKFLOOR_KAFKA__PROPERTIES__SSL_KEY_PEM", "hush-hush")
    monkeypatch.chdir(tmp_path)


def made(folder: Path, concurrency: int) -> SettingsRun:
    """A run with a file of its own."""
    toml = folder / f"{concurrency}.toml"
    toml.write_text(f"[handlers.bill]\nconcurrency = {concurrency}\n")
    return SettingsRun(toml)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[tuple[SettingsRun, SettingsRun]]:
    """Two of one group, which differ."""
    both = made(tmp_path, 8), made(tmp_path, 4)
    yield both
    for each in both:
        each.close()


def of(*runs: SettingsRun) -> Runs:
    """They, with their token."""
    return Runs({each.listen: TOKEN for each in runs})


def test_each_value_has_its_source(runs: tuple[SettingsRun, SettingsRun]) -> None:
    """As `config show` names them, with what was changed meanwhile; a secret is none of them."""
    run = runs[0]
    SettingChange("handlers.bill.rate", "50/s").act(of(run), Ending())
    found = ask_settings(run.listen, TOKEN)
    assert (found.run, found.group, list(found.handlers)) == (
        run.listen, "billing", ["bill", "pay.back"],
    )  # fmt: skip
    values = {value.name: value for value in found.all()}
    assert "hush-hush" not in f"{found}"
    toml = run.settings._file._given
    for name, value, source, live in (
        ("app.group", "billing", "code", False),
        ("app.workers", "2", "flag --workers", False),
        ("app.commit_interval", "1s", "built-in", True),
        ("kafka.properties.ssl.key.pem", "***",
         "environment ACKFLOOR_KAFKA__PROPERTIES__SSL_KEY_PEM", False),
        (CONCURRENCY, "8", f"file {toml}", True),
        ("handlers.bill.rate", "50/s", "config set", True),
        ("handlers.bill.retry.max_delay", "5s", "code", True),
        ("handlers.pay.back.consume_timeout", "7s",
         "environment ACKFLOOR_HANDLERS__PAY_BACK__CONSUME_TIMEOUT", True),
        ("handlers.pay.back.process_memory_limit", "none", "built-in", False),
    ):  # fmt: skip
        assert values[name] == SettingValue(name, value, source, live)


def test_it_is_what_config_show_prints(runs: tuple[SettingsRun, SettingsRun]) -> None:
    """Row for row."""
    launch = runs[0].settings.launch
    shown = rows(launch.settings, launch.app.handlers)
    assert [value[:3] for value in ask_settings(runs[0].listen, TOKEN).all()] == shown


def test_only_what_runs_is_told(runs: tuple[SettingsRun, SettingsRun]) -> None:
    """Of a run with `--only`, the others' settings are of no use."""
    settings = runs[0].settings
    settings.launch = replace(settings.launch, handlers=settings.launch.handlers[1:])
    assert list(ask_settings(runs[0].listen, TOKEN).handlers) == ["pay.back"]


def test_without_the_token_nothing_is_told(runs: tuple[SettingsRun, SettingsRun]) -> None:
    """The same rule as for whatever changes a run."""
    with pytest.raises(ControlFailed, match=r"refused \(401\): not the token of this run"):
        ask_settings(runs[0].listen, "x" * 48)


def test_a_run_that_takes_no_requests_says_what_it_is() -> None:
    """As does one of an older release, and one whose answer is not known."""
    metrics = RunMetrics("billing", 1)
    listen = metrics.start("127.0.0.1:0")
    try:
        with pytest.raises(ControlFailed, match=r"takes no requests: .* or it is of an older"):
            ask_settings(listen, TOKEN)
        for old in (None, lambda: {"group": "billing", "settings": 3, "handlers": {}}):
            metrics.control(PATH, ConfigControl(TOKEN, _nothing, anywhere=False, tells=old))
            with pytest.raises(ControlFailed, match=r"takes no requests|of another release"):
                ask_settings(listen, TOKEN)
    finally:
        metrics.stop()
    with pytest.raises(ControlFailed, match="no run answers"):
        ask_settings(listen, TOKEN)


def _nothing(*_: object, **__: object) -> Change:
    raise AssertionError("asked to change something")


def test_a_change_is_judged_then_made_in_all_runs(runs: tuple[SettingsRun, SettingsRun]) -> None:
    """Nothing is changed by the first; both say what it ends in flight."""
    first, second = runs
    first.overdue = tuple(Overdue("bill", "orders", 0, n, 1, 10.0 + n) for n in range(2))
    second.overdue = (Overdue("bill", "orders", 1, 9, 1, 99.0),)
    change = SettingChange(CONCURRENCY, "4")
    would = change.judge(of(*runs))
    row = {"name": CONCURRENCY, "before": "8", "after": "4", "source": "config set"}
    assert would.changed == {first.listen: [row]}
    assert would.applied == {first.listen: [0, 1], second.listen: [0, 1]}
    assert (would.ends, [row["offset"] for row in would.overdue()]) == (3, [9, 1, 0])
    assert next(would.overdue())["run"] == second.listen
    assert would.whole
    assert (first.changes, first.concurrency()) == ([], 8)
    ending = Ending()
    did = change.act(of(*runs), ending)
    assert (first.concurrency(), second.concurrency()) == (4, 4)
    assert (ending.state, ending.counts) == (ActionState.DONE, {"done": 4, "parked": 3})
    assert did.noted() == {"before": "8", "after": "4"}
    assert (change.name, change.target) == ("config set", CONCURRENCY)


def test_what_was_different_is_noted_as_such(runs: tuple[SettingsRun, SettingsRun]) -> None:
    """Who wants to undo it has to know both; nothing where nothing changes."""
    assert SettingChange(CONCURRENCY, "6").judge(of(*runs)).noted() == {
        "before": "8 or 4", "after": "6",
    }  # fmt: skip
    assert SettingChange(CONCURRENCY, "8").judge(of(runs[0])).noted() == {}


def test_what_follows_from_a_change_comes_after_it(runs: tuple[SettingsRun, SettingsRun]) -> None:
    """Another part of the circuit breaker, which is no less than this one."""
    change = SettingChange("handlers.pay.back.breaker.failures", "5")
    changed = change.judge(of(runs[0])).changed[runs[0].listen]
    assert [(each["name"], each["after"]) for each in changed] == [
        ("handlers.pay.back.breaker.failures", "5"),
        ("handlers.pay.back.breaker.quiet_failures", "5"),
    ]
    quiet = SettingChange("handlers.pay.back.breaker.quiet_failures", "7")
    assert quiet.judge(of(runs[0])).noted() == {"before": "10", "after": "7"}


def test_who_did_not_take_it_is_named(runs: tuple[SettingsRun, SettingsRun]) -> None:
    """A worker, and a run; of one run alone its refusal is the failure."""
    first, second = runs
    first.refused = "older code"
    ending = Ending()
    asked = Runs(of(first).tokens, {"gone:1": "no run answers"})
    did = SettingChange(CONCURRENCY, "6").act(asked, ending)
    assert did.refused == {f"{first.listen} worker 1": "older code", "gone:1": "no run answers"}
    assert (ending.state, ending.counts) == (ActionState.PARTIAL, {"done": 1, "refused": 2})
    with pytest.raises(ControlFailed, match=r"\(422\): app\.workers='3': can't change while"):
        SettingChange("app.workers", "3").judge(of(second))
    both = SettingChange("app.workers", "3").judge(of(*runs))
    assert both.refused.keys() == {first.listen, second.listen}
    assert not both.answers
