"""RunSettings: one word for all workers, whoever changes what, and refused whole."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ackfloor import App, ConfigError, RetryPolicy
from ackfloor.control import SettingsState
from ackfloor.launch import Launch
from ackfloor.live.breaker_orders import Action
from ackfloor.live.frames import Answer, Overdue, SettingsVersion
from ackfloor.live.pause_orders import PauseAction
from ackfloor.live.requests import Change
from ackfloor.live.run_settings import RunSettings
from ackfloor.runtime.supervision.channel import Kind
from ackfloor.settings.layers import Layer

TICK = count(1)


def shop() -> App:
    """Two handlers; one has retry topics of 1 s and 5 s, one retries in place."""
    app = App("billing")

    @app.handler("orders", concurrency=4, retry=RetryPolicy("1s", 5, "5s", 6), name="bill")
    async def bill(order: bytes) -> None: ...

    @app.handler("refunds", ordering="key", name="pay.back")
    async def pay_back(refund: bytes) -> None: ...

    return app


class Run:
    """A run with workers that answer when a test says so."""

    def __init__(self, toml: Path, **environment: str) -> None:
        self.toml = toml
        app = shop()

        def relaunch(file: Layer, above: Layer) -> Launch:
            return Launch.of(app, flags={}, file=file, above=above)

        self.settings = RunSettings(relaunch, toml, app.group)
        self.states: list[SettingsState] = []
        self.settings.on_state = self.states.append
        self.sent: dict[int, list[SettingsVersion]] = {}
        self.deaf: set[int] = set()
        self.newest = 0

    def tell(self, worker: int, kind: Kind, body: bytes) -> bool:
        assert kind is Kind.SETTINGS
        version = SettingsVersion.from_bytes(body)
        self.newest = version.number
        if worker in self.deaf:
            return False
        self.sent.setdefault(worker, []).append(version)
        return True

    def start(self, *workers: int) -> None:
        """Worker processes come as far as running."""
        for worker in workers:
            self.sent[worker] = []
            self.settings.started(worker, self.tell)
            self.settings.status(worker, "running")

    def step(self) -> None:
        self.settings.step(self.tell)

    def write(self, text: str, *, hang_up: bool = True) -> None:
        """Change the file; SIGHUP, unless it is to be noticed."""
        self.toml.write_text(text)
        os.utime(self.toml, (next(TICK), 0))
        if hang_up:
            self.settings.reread()
            self.step()

    def answer(self, worker: int, refused: str = "", **rest: Any) -> None:
        """A worker answers what it was told last."""
        number = self.sent[worker][-1].number
        body = Answer(number, refused, **rest).to_bytes()
        self.settings.received(worker, Kind.SETTINGS_TAKEN, body)

    def launched(self, worker: int) -> Launch:
        """What a worker makes of what it was told last."""
        version = self.sent[worker][-1]
        return self.settings._relaunch(version.file, version.above)

    def change(
        self, values: Mapping[str, object], *, dry_run: bool = False, wait_s: float = 20.0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Change:  # fmt: skip
        """Ask for a change, with the supervisor's loop going on meanwhile."""
        result: list[Change | BaseException] = []

        def ask() -> None:
            try:
                result.append(self.settings.change(values, dry_run=dry_run, wait_s=wait_s))
            except BaseException as exc:  # noqa: BLE001 -- raised again below
                result.append(exc)

        asking, before = threading.Thread(target=ask), self.newest
        asking.start()
        while self.newest == before and not result:
            self.step()
            time.sleep(0.001)
        meanwhile()
        while not result:
            self.step()
            time.sleep(0.001)
        asking.join()
        if isinstance(result[0], BaseException):
            raise result[0]
        return result[0]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with a settings file and no variables."""
    for name in [name for name in os.environ if name.startswith("ACKFLOOR_")]:
        monkeypatch.delenv(name)
    toml = tmp_path / "ackfloor.toml"
    toml.write_text("[handlers.bill]\nconcurrency = 8\n[app]\nworkers = 2\n")
    return Run(toml)


def concurrency(launch: Launch) -> int:
    """Of the handler `bill`."""
    return launch.handlers[0].concurrency


def test_a_worker_that_starts_has_what_operators_want_before_its_settings(run: Run) -> None:
    """It begins when it has these; the names that can be forced are those of the run."""
    version: list[Kind] = []

    def tell(_worker: int, kind: Kind, _body: bytes) -> bool:
        version.append(kind)
        return True

    run.settings.received(0, Kind.BREAKERS_OPEN, b'{"bill": [50, "Boom: x"]}')
    orders = (
        lambda: run.settings.breakers.force(Action.OPEN, "pay.back", None, "", 20.0),
        lambda: run.settings.pauses.order(PauseAction.PAUSE, "pay.back", None, "", 20.0),
    )
    for order in orders:
        asking = threading.Thread(target=order)
        asking.start()
        while asking.is_alive():
            run.settings.step(tell)
    run.settings.started(0, tell)
    assert version == [Kind.RESUME, Kind.BREAKERS, Kind.PAUSES, Kind.SETTINGS]


# The file.


def test_workers_are_told_at_their_start_and_at_each_change(run: Run) -> None:
    """Before they import anything; and all the same."""
    run.start(0, 1)
    assert [concurrency(run.launched(worker)) for worker in (0, 1)] == [8, 8]
    run.write("[handlers.bill]\nconcurrency = 2\n")
    assert [concurrency(run.launched(worker)) for worker in (0, 1)] == [2, 2]
    assert run.sent[0] == run.sent[1]
    assert len(run.sent[0]) == 2
    run.step()
    assert len(run.sent[0]) == 2
    assert (run.states[-1].reloads, run.states[-1].failures) == (1, 0)
    run.start(2)
    assert concurrency(run.launched(2)) == 2


def test_a_change_is_noticed_without_a_signal(run: Run) -> None:
    """By looking; what looks different and says the same changes nothing."""
    run.start(0)
    run.write("[handlers.bill]\nconcurrency = 3\n", hang_up=False)
    until_s = time.monotonic() + 60
    while len(run.sent[0]) < 2:
        assert time.monotonic() < until_s
        run.step()
        time.sleep(0.02)
    assert concurrency(run.launched(0)) == 3
    run.write("# said again\n[handlers.bill]\nconcurrency = 3\n")
    assert len(run.sent[0]) == 2
    assert run.states[-1].reloads == 2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[handlers.bill]\nconsume_timeout = 5\nconcurrency = 2", "bill.consume_timeout=5: "),
        ('[handlers.bill]\nconsume_timout = "5s"', "did you mean handlers.bill.consume_timeout"),
        ("[handlers.bill]\nconcurrency = 0", "handlers.bill.concurrency=0"),
        ("[handlers.bil]\nconcurrency = 2", "did you mean bill"),
        ("[hanlers.bill]\nconcurrency = 2", "hanlers"),
        ('[handlers.bill]\nconcurrency = 2\n[handlers.bill.retry]\njitter = 2', "retry.jitter"),
        ("[handlers.bill\nconcurrency = 2", "not TOML"),
        ("handlers = 2", "not a table"),
        ("concurrency = 2", "no such section"),
        ('[handlers.bill]\nconsume_timeout = "1s"\nmax_extend = "500ms"', "max_extend"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_whole_and_named(
    run: Run, text: str, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Log and state say why; nobody hears of it; a worker that starts goes by the old ones."""
    run.start(0)
    run.write(text)
    assert len(run.sent[0]) == 1
    assert named in run.states[-1].error
    assert named in caplog.text
    assert run.states[-1].failures == 1
    run.start(1)
    assert concurrency(run.launched(1)) == 8
    run.write("[handlers.bill]\nconcurrency = 2\n")
    assert (run.states[-1].error, run.states[-1].failures) == ("", 1)
    assert concurrency(run.launched(0)) == 2


def test_what_needs_a_restart_is_named_and_held_back(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of the file counts; back as it was, nothing is waiting any more."""
    run.start(0)
    run.write(
        '[app]\nworkers = 3\nmax_open = 7\n[kafka]\nclient_id = "x"\n'
        "[handlers.bill]\nconcurrency = 2\n[handlers.bill.retry]\nmultiplier = 3\njitter = 0.5\n"
    )
    waiting = ("app.workers", "handlers.bill.retry.jitter", "handlers.bill.retry.multiplier")
    assert run.states[-1].needs_restart == (*waiting, "kafka.client_id")
    assert "needs a restart: app.workers" in caplog.text
    launch = run.launched(0)
    app = launch.settings.app
    assert (app.workers, app.max_open, concurrency(launch)) == (2, 7, 2)
    assert launch.settings.kafka.client_id == "ackfloor"
    assert launch.handlers[0].retry == RetryPolicy("1s", 5, "5s", 6)
    run.write("[handlers.bill]\nconcurrency = 2\n[app]\nworkers = 2\n")
    assert run.states[-1].needs_restart == ()


def test_a_retry_policy_within_its_topics_counts_at_once(run: Run) -> None:
    """Another budget or jitter, fewer delays; one that retries in place has no topics at all."""
    run.start(0)
    run.write(
        "[handlers.bill.retry]\nmax_redeliveries = 1\njitter = 0.5\n"
        '[handlers."pay.back".retry]\ninitial_delay = "123ms"\n'
    )
    assert run.states[-1].needs_restart == ("app.workers",)
    bill, pay_back = run.launched(0).handlers
    assert bill.retry == RetryPolicy("1s", 5, "5s", 1, 0.5)
    assert pay_back.retry.initial_delay_s == 0.123


def test_what_stronger_places_say_is_no_change(tmp_path: Path, run: Run, monkeypatch: Any) -> None:
    """A variable counts more than the file, before and after."""
    monkeypatch.setenv("ACKFLOOR_APP__WORKERS", "5")
    monkeypatch.setenv("ACKFLOOR_HANDLERS__BILL__CONCURRENCY", "9")
    covered = Run(run.toml)
    covered.start(0)
    covered.write("[handlers.bill]\nconcurrency = 2\n[app]\nworkers = 4\n")
    assert concurrency(covered.launched(0)) == 9
    assert covered.states[-1].needs_restart == ()


def test_the_log_level_follows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the supervisor as well, where the logging is ours."""
    root = logging.getLogger()
    ours = logging.NullHandler()
    ours.set_name("ackfloor")
    monkeypatch.setattr(root, "handlers", [*root.handlers, ours])
    monkeypatch.setattr(root, "level", logging.WARNING)
    run.write('[app]\nlog_level = "debug"\n')
    assert root.level == logging.DEBUG
    monkeypatch.setattr(root, "handlers", [])
    run.write('[app]\nlog_level = "error"\n')
    assert root.level == logging.DEBUG


# Workers.


def test_a_worker_without_room_is_told_later_and_only_the_newest(run: Run) -> None:
    """One that does not read keeps nobody."""
    run.start(0, 1)
    run.deaf.add(0)
    for number in (2, 3, 4):
        run.write(f"[handlers.bill]\nconcurrency = {number}\n")
    assert (len(run.sent[0]), len(run.sent[1])) == (1, 4)
    run.deaf.clear()
    run.step()
    assert len(run.sent[0]) == 2
    assert concurrency(run.launched(0)) == 4


def test_a_worker_that_refuses_is_named_until_it_is_gone_or_takes_them(run: Run) -> None:
    """The others go on with the new ones; a late word about older settings says nothing."""
    run.start(0, 1)
    run.write("[handlers.bill]\nconcurrency = 2\n")
    run.answer(0)
    run.answer(1, "no handler 'bill'")
    assert run.states[-1].refused_by == {1: "no handler 'bill'"}
    assert run.states[-1].failures == 1
    run.settings.gone(1)
    assert run.states[-1].refused_by == {}
    run.start(1)
    run.answer(1, "again")
    assert run.states[-1].refused_by == {1: "again"}
    stale = Answer(run.sent[0][-1].number, "too late").to_bytes()
    run.write("[handlers.bill]\nconcurrency = 3\n")
    assert run.states[-1].refused_by == {}
    run.settings.received(0, Kind.SETTINGS_TAKEN, stale)
    assert run.states[-1].refused_by == {}
    run.settings.received(0, Kind.STATUS, b"none of ours")


def test_a_monitor_that_fails_keeps_nobody(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the workers are told."""

    def fail(_: SettingsState) -> None:
        raise LookupError("broken monitor")

    run.start(0)
    run.settings.on_state = fail
    run.write("[handlers.bill]\nconcurrency = 2\n")
    assert concurrency(run.launched(0)) == 2
    assert "broken monitor" in caplog.text


# `config set`.


def test_what_is_set_counts_more_than_the_file_until_the_run_ends(run: Run) -> None:
    """In workers that are started anew as well, and over files that come later."""
    run.start(0, 1)

    def answers() -> None:
        run.answer(0, ends=2, overdue=(Overdue("bill", "orders", 0, 1, 1, 3.0),))
        run.answer(1, ends=1, overdue=(Overdue("bill", "orders", 1, 7, 2, 9.0),))

    change = run.change({"handlers.bill.concurrency": "3"}, meanwhile=answers)
    assert [str(each) for each in change.changed] == ["handlers.bill.concurrency from 8 to 3"]
    assert (change.applied, change.refused, change.silent) == ((0, 1), {}, ())
    assert (change.ends, [each.offset for each in change.overdue]) == (3, [7, 1])
    assert run.states[-1].overridden == {"handlers.bill.concurrency": "3"}
    run.write('[handlers.bill]\nconcurrency = 20\nconsume_timeout = "7s"\n')
    run.start(2)
    for worker in (0, 2):
        assert concurrency(run.launched(worker)) == 3
        assert run.launched(worker).handlers[0].consume_timeout_s == 7.0
    change = run.change(
        {"handlers.pay.back.consume_timeout": "9s"},
        meanwhile=lambda: [run.answer(worker) for worker in (0, 1, 2)] and None,
    )
    assert run.launched(1).handlers[1].consume_timeout_s == 9.0
    assert concurrency(run.launched(1)) == 3


def test_a_dry_run_changes_nothing(run: Run) -> None:
    """It asks who runs, once; who is started meanwhile hears nothing of it."""
    run.start(0)
    timeout = {"handlers.bill.consume_timeout": "1s"}
    change = run.change(timeout, dry_run=True, meanwhile=lambda: run.answer(0, ends=4))
    assert (change.ends, change.applied) == (4, (0,))
    assert [version.dry_run for version in run.sent[0]] == [False, True]
    run.start(1)
    run.step()
    assert [version.dry_run for version in run.sent[1]] == [False]
    assert run.launched(1).handlers[0].consume_timeout_s == 60.0
    assert run.settings.launch.handlers[0].consume_timeout_s == 60.0
    assert run.states == []


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("handlers.bill.concurrency", "0", "handlers.bill.concurrency='0'"),
        ("handlers.bill.concurency", "3", "did you mean handlers.bill.concurrency"),
        ("handlers.bil.concurrency", "3", "did you mean bill"),
        (
            "handlers.bill.breaker.failure",
            "3",
            "no such setting; did you mean handlers.bill.breaker.failures?",
        ),
        (
            "handlers.bill.breaker.window",
            "3",
            "there are enabled, failures, quiet_failures, quiet_after, park_rate, gives_in_after",
        ),
        ("handlers.bill.retry.initial_delay", "3s", "no retry topic with this delay"),
        ("app.workers", "3", "can't change while the run runs"),
        ("kafka.sasl_password", "hunter2", "can't change while the run runs"),
        ("bill.concurrency", "3", "set handlers.bill.concurrency"),
        ("concurrency", "3", "set handlers.<name>.concurrency"),
        ("bill.retry.jitter", "3", "set handlers.bill.retry.jitter"),
        ("app", "3", "no such setting"),
        ("", "3", "no such setting"),
        ("handlers", "3", "no such setting"),
        ("handlers.bill", "3", "no such setting"),
        (".", "3", "no such setting"),
    ],
)
def test_what_can_not_be_set_is_refused(run: Run, name: str, value: str, named: str) -> None:
    """Named, without a secret, and nobody hears of it."""
    run.start(0)
    with pytest.raises(ConfigError, match=named) as refused:
        run.change({"handlers.bill.consume_timeout": "5s", name: value})
    assert "hunter2" not in str(refused.value)
    run.step()
    assert len(run.sent[0]) == 1
    assert run.states == []


def test_workers_that_refuse_leave_or_keep_silent_are_told_of(run: Run) -> None:
    """One that drains or ends is not waited for; one that is silent only for so long."""
    run.start(0, 1, 2, 3)

    def meanwhile() -> None:
        run.answer(0, "older code")
        run.settings.gone(1)
        run.settings.status(2, "draining")

    change = run.change({"app.max_open": 5}, meanwhile=meanwhile, wait_s=3.0)
    assert (change.refused, change.silent, change.applied) == ({0: "older code"}, (3,), ())


def test_a_request_that_nobody_looked_at_is_not_done_later(run: Run) -> None:
    """Who asked has been told that it was not done."""
    with pytest.raises(TimeoutError, match="still starting"):
        run.settings.change({"app.max_open": 5}, dry_run=False, wait_s=-0.9)
    run.start(0)
    run.step()
    assert run.launched(0).settings.app.max_open == 50_000


APPS = """
[apps.billing.handlers.bill]
concurrency = 6
[apps.billing.app]
max_open = 500
[apps.refunds.handlers.pay]
concurrency = 1
"""


def test_a_run_of_a_file_with_several_apps_takes_its_section(run: Run) -> None:
    """Also when the file changes; what belongs to another app changes nothing."""
    run.write(APPS)
    run.start(0)
    assert concurrency(run.launched(0)) == 6
    before = run.newest
    run.write(APPS.replace("concurrency = 1", "concurrency = 2"))
    assert (run.newest, run.settings.state.error) == (before, "")
    run.write(APPS.replace("concurrency = 6", "concurrency = 5"))
    assert concurrency(run.launched(0)) == 5
    run.write(APPS.replace("max_open", "max_opn"))
    assert "did you mean app.max_open? (from file" in run.settings.state.error
    assert "[apps.billing])" in run.settings.state.error
    assert concurrency(run.launched(0)) == 5


@pytest.mark.parametrize("section", ["", "apps.billing."])
def test_a_value_set_counts_above_the_app_s_section(run: Run, section: str) -> None:
    """It may be named with its section; the answer says whose setting it is."""
    run.write(APPS)
    run.start(0)
    name = f"{section}handlers.bill.concurrency"
    change = run.change({name: "3"}, meanwhile=lambda: run.answer(0))
    assert change.group == "billing"
    assert [each.name for each in change.changed] == ["handlers.bill.concurrency"]
    assert concurrency(run.launched(0)) == 3
    # By its other name it is the same setting.
    run.change({"handlers.bill.concurrency": "2"}, meanwhile=lambda: run.answer(0))
    run.change({name: "4"}, meanwhile=lambda: run.answer(0))
    assert concurrency(run.launched(0)) == 4


def test_a_value_of_another_app_is_refused(run: Run) -> None:
    """This run can't change it, and its group is told."""
    run.start(0)
    with pytest.raises(ConfigError, match="this app's group is 'billing'"):
        run.change({"apps.refunds.handlers.pay.concurrency": "3"})
