"""RunSettings: the supervisor's side. One word about settings, the same for all workers.

What counts is made of layers: the code's, what is live of the file (`settings.live`), the
environment, the flags, and on top what `config set` told this run. A change is checked against
the app before anybody hears of it; one that is refused changes nothing. Workers are told the
newest word until they have it, and a worker that is started is told it before anything else.

Two threads: the supervisor's loop calls everything but `change`, which waits in a request's
thread until the loop has seen to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ackfloor.control import SettingsState
from ackfloor.core.values.durations import format_duration
from ackfloor.core.values.setting_error import SettingError
from ackfloor.errors import ConfigError
from ackfloor.launch import Launch
from ackfloor.live.breaker_orders import RunBreakers
from ackfloor.live.frames import Answer, Told
from ackfloor.live.requests import Change, Request, Requests
from ackfloor.live.retry_orders import RetryOrders
from ackfloor.live.settings_file import SettingsFile
from ackfloor.runtime.logging.logs import set_log_level
from ackfloor.runtime.supervision.channel import Kind
from ackfloor.runtime.supervision.supervisor import Tell
from ackfloor.settings.layers import Layer, set_layer, shown
from ackfloor.settings.live_settings import (
    Changed,
    changes,
    held_back,
    is_live,
    new_delays,
    restart_needed,
    retry_paths,
)

log = logging.getLogger("ackfloor.run")

Relaunch = Callable[[Layer, Layer], Launch]


@dataclass(slots=True)
class _Wish:
    """Settings that somebody wants, and what differs by them."""

    values: dict[str, object]
    dry_run: bool
    changed: tuple[Changed, ...] = ()


class RunSettings:
    """The settings of a run while it runs; implements `supervisor.LiveSettings`.

    Args:
        relaunch: the launch with what a file says and what `config set` told; raises SettingError.
        config: the settings file named on the command line.

    Attributes:
        launch: what runs, with the settings that count now.
        state: how the run stands to its settings.
        on_state: is told that after each change.

    Raises:
        SettingError: the settings are refused; nothing has been started yet.
    """

    def __init__(self, relaunch: Relaunch, config: Path | None) -> None:
        self._relaunch = relaunch
        self.on_state: Callable[[SettingsState], None] = lambda _: None
        self._file = SettingsFile(config)
        self._started_with = self._file.read()
        #: What counts of the file, and all that it says.
        self._counts = self._wanted = self._started_with
        self._above: Layer = {}
        self._values: dict[str, object] = {}
        #: As the run was started, and as it is now.
        self._start = self.launch = relaunch(self._counts, {})
        self._words = 0
        self._word = self._next(self._counts, {})
        self._told: dict[int, int] = {}
        self._running: set[int] = set()
        self._hung_up = False
        #: What operators say about waiting records and circuit breakers goes the same way.
        self.early = RetryOrders()
        self.breakers = RunBreakers(lambda: [spec.name for spec in self.launch.handlers])
        self._requests = Requests[_Wish, Answer]()
        self.state = SettingsState()

    # The supervisor's loop.

    def reread(self) -> None:
        """Read the file again at the next step, whatever it looks like."""
        self._hung_up = True

    def started(self, worker: int, tell: Tell) -> None:
        """A worker process was started: it waits for its settings."""
        # Before its settings, with which it begins: it has the rest by then.
        self.breakers.started(worker, tell)
        self._told.pop(worker, None)
        self._say(worker, tell)

    def received(self, worker: int, kind: Kind, body: bytes) -> None:
        """A worker answered."""
        if kind is Kind.RETRY_NOW_DONE:
            self.early.heard(worker, body)
        self.breakers.heard(worker, kind, body)
        if kind is not Kind.SETTINGS_TAKEN:
            return
        answer = Answer.from_bytes(body)
        self._requests.answered(worker, answer.number, answer)
        if answer.number == self._word.number:
            self._note_refusal(worker, answer.refused)

    def status(self, worker: int, status: str) -> None:
        """What a worker is doing: only one that runs answers."""
        if status == "running":
            self._running.add(worker)
        elif status == "draining":
            self._left(worker)

    def gone(self, worker: int) -> None:
        """A worker process ended."""
        self._told.pop(worker, None)
        self.breakers.gone(worker)
        self._left(worker)
        if worker in self.state.refused_by:
            self._note_refusal(worker, "")

    def step(self, tell: Tell) -> None:
        """Look at the file, see to requests, and tell the workers what they don't know yet."""
        if self._hung_up or self._file.changed(time.monotonic()):
            self._hung_up = False
            self._read()
        for request in self._requests.new():
            self._see_to(request, tell)
        for worker in list(self._told):
            self._say(worker, tell)
        self.early.step(self._running, tell)
        self.breakers.step(self._running, tell)
        self._requests.pending()

    # Requests.

    def change(self, values: Mapping[str, object], *, dry_run: bool, wait_s: float) -> Change:
        """Set settings for as long as the run lasts; waits until the running workers have them.

        Args:
            values: by setting name.
            dry_run: only say what it would do.
            wait_s: how long to wait for workers, in seconds.

        Raises:
            SettingError: refused; nothing was changed.
            TimeoutError: the run is not ready to take settings yet.
        """
        wish = _Wish(dict(values), dry_run)
        return Change.of(self._requests.ask(wish, wait_s), wish.changed)

    def _see_to(self, request: Request[_Wish, Answer], tell: Tell) -> None:
        wish = request.asked
        values = self._values | wish.values
        try:
            above = set_layer(values)
            _refuse_fixed(above)
            wanted = self._relaunch(self._counts, above)
            self._refuse_delays(wanted)
        except SettingError as exc:
            request.refuse(exc)
            return
        changed = changes(self.launch.settings, wanted.settings, self.launch.app.handlers)
        wish.changed = changed
        word = self._next(self._counts, above, dry_run=wish.dry_run)
        self._requests.sent(request, word.number, self._running)
        if wish.dry_run:
            # Asked once: who can't hear it now has not answered when the time is over.
            for worker in self._running:
                tell(worker, Kind.SETTINGS, word.to_bytes())
            return
        self._above, self._values = above, values
        self._adopt(wanted, changed, word)
        self._tell_state(replace(self.state, overridden=_shown(above)))

    def _refuse_delays(self, wanted: Launch) -> None:
        for name, delays in new_delays(self._start.handlers, wanted.handlers).items():
            raise ConfigError(
                f"handlers.{name}.retry", ", ".join(map(format_duration, delays)),
                "there is no retry topic with this delay, and none is created while the run runs",
                "restart the run, or keep to the delays it was started with",
            )  # fmt: skip

    # The file.

    def _read(self) -> None:
        try:
            wanted = self._file.read()
            full = self._relaunch(wanted, self._above)
            late = new_delays(self._start.handlers, full.handlers)
            kept = retry_paths(late, self._started_with, wanted)
            counts = held_back(self._started_with, wanted, kept)
            launch = self._relaunch(counts, self._above)
        except SettingError as exc:
            # The state before its log line: who has read that finds it in `/readyz`.
            failures = self.state.failures + 1
            self._tell_state(replace(self.state, failures=failures, error=str(exc)))
            log.error("settings not changed: %s", exc)  # noqa: TRY400 -- made for people
            return
        waiting = restart_needed(self._start.settings, full.settings, kept)
        changed = changes(self.launch.settings, launch.settings, self.launch.app.handlers)
        news = waiting and waiting != self.state.needs_restart
        self._counts = counts
        if changed:
            self._adopt(launch, changed, self._next(counts, self._above))
        else:
            log.info("settings read again: nothing has changed for a run that runs")
        self._tell_state(
            replace(
                self.state,
                reloads=self.state.reloads + 1,
                reloaded_ms=time.time_ns() // 1_000_000,
                error="",
                needs_restart=waiting,
            )
        )
        if news:
            log.warning("changed in the settings file, and needs a restart: %s", ", ".join(waiting))

    # The word.

    def _next(self, counts: Layer, above: Layer, *, dry_run: bool = False) -> Told:
        self._words += 1
        return Told(self._words, counts, above, dry_run)

    def _adopt(self, launch: Launch, changed: tuple[Changed, ...], word: Told) -> None:
        for each in changed:
            log.info("setting %s (%s)", each, each.source)
        self.launch, self._word = launch, word
        set_log_level(launch.settings.app.log_level)
        self._tell_state(replace(self.state, refused_by={}))

    def _say(self, worker: int, tell: Tell) -> None:
        """Tell a worker the newest word, unless it has it or has no room for it now."""
        if self._told.get(worker) == self._word.number:
            return
        heard = tell(worker, Kind.SETTINGS, self._word.to_bytes())
        self._told[worker] = self._word.number if heard else 0

    def _left(self, worker: int) -> None:
        self._running.discard(worker)
        self.early.left(worker)
        self.breakers.left(worker)
        self._requests.left(worker)

    def _note_refusal(self, worker: int, refused: str) -> None:
        others = {number: why for number, why in self.state.refused_by.items() if number != worker}
        if refused:
            log.error("worker %d did not take the settings: %s", worker, refused)
            others[worker] = refused
        if others != self.state.refused_by:
            failures = self.state.failures + bool(refused)
            self._tell_state(replace(self.state, refused_by=others, failures=failures))

    def _tell_state(self, state: SettingsState) -> None:
        if state != self.state:
            self.state = state
            try:
                self.on_state(state)
            except Exception:
                log.exception("the monitor failed")


def _refuse_fixed(layer: Layer) -> None:
    for path, (value, _) in layer.items():
        if not is_live(path):
            why = "can't change while the run runs"
            fix = "change it where `ackfloor config show` says that it comes from, and restart"
            raise ConfigError(".".join(path), shown(path, value), why, fix)


def _shown(layer: Layer) -> dict[str, str]:
    return {".".join(path): str(value) for path, (value, _) in layer.items()}
