"""RunSettings: the settings of a run, of which the supervisor sends every worker the same version.

The settings in force come from layers: the code, the live part of the file (`settings.live`), the
environment, the flags, and on top the values given with `config set`. A change is checked against
the app before any worker gets it; if it is refused, nothing changes. The supervisor sends the
newest version to each worker until it has it; a worker that is started gets it before anything
else but forced breakers and paused handlers.

Two kinds of threads: the supervisor's loop calls everything but `change`, which runs in a request's
thread and waits until the loop is done, and `effective`, which any thread may ask.
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
from ackfloor.live.frames import Answer, SettingsVersion
from ackfloor.live.pause_orders import RunPauses
from ackfloor.live.requests import Change, Request, Requests
from ackfloor.live.settings_file import SettingsFile
from ackfloor.live.worker_orders import WorkerOrders
from ackfloor.runtime.logging.logs import set_log_level
from ackfloor.runtime.supervision.channel import Kind
from ackfloor.runtime.supervision.supervisor import Tell
from ackfloor.settings.app_sections import own_name
from ackfloor.settings.layers import Layer, set_layer, shown
from ackfloor.settings.live_settings import (
    Changed,
    changes,
    effective,
    held_back,
    is_live,
    new_delays,
    restart_needed,
    retry_paths,
)

log = logging.getLogger("ackfloor.run")

Relaunch = Callable[[Layer, Layer], Launch]


@dataclass(slots=True)
class _Wanted:
    """The settings of one request, and what they change."""

    values: dict[str, object]
    dry_run: bool
    changed: tuple[Changed, ...] = ()


class RunSettings:
    """The settings of a run while it runs; implements `supervisor.LiveSettings`.

    Args:
        relaunch: makes the launch from the file's values and those of `config set`; raises
            SettingError.
        config: the settings file named on the command line.
        group: the app's group as its code names it; file and environment may name another.

    Attributes:
        launch: the app with the settings in force now.
        state: of the settings: reloads, refusals, what needs a restart.
        on_state: called with `state` after each change.

    Raises:
        SettingError: the settings are refused; nothing has been started yet.
    """

    def __init__(self, relaunch: Relaunch, config: Path | None, group: str = "") -> None:
        self._relaunch = relaunch
        self.on_state: Callable[[SettingsState], None] = lambda _: None
        self._file = SettingsFile(config, group=group)
        self._started_with = self._file.read()
        #: The part of the file that is in force.
        self._counts = self._started_with
        self._above: Layer = {}
        self._values: dict[str, object] = {}
        #: The launch as the run was started, and as it is now.
        self._start = self.launch = relaunch(self._counts, {})
        self._last_number = 0
        self._newest = self._next(self._counts, {})
        self._sent: dict[int, int] = {}
        self._running: set[int] = set()
        self._reread_asked = False
        #: Orders about waiting records, circuit breakers and handlers go the same way.
        self.retry_orders, self.lane_orders = WorkerOrders(Kind.RETRY_NOW), WorkerOrders(Kind.LANES)
        self._orders = {Kind.RETRY_NOW_DONE: self.retry_orders, Kind.LANES_DONE: self.lane_orders}
        self.breakers, self.pauses = RunBreakers(self._names), RunPauses(self._names)
        self._kept = (self.breakers, self.pauses)
        self._requests = Requests[_Wanted, Answer]()
        self.state = SettingsState()

    @property
    def remark(self) -> str:
        """What a person may want to know about the settings file, or ""."""
        return self._file.remark

    def _names(self) -> list[str]:
        return [spec.name for spec in self.launch.handlers]

    # The supervisor's loop.

    def reread(self) -> None:
        """Read the file again at the next step, changed or not."""
        self._reread_asked = True

    def started(self, worker: int, tell: Tell) -> None:
        """Send a new worker process its settings, for which it waits."""
        # These first: it begins to work once it has its settings.
        for kept in self._kept:
            kept.started(worker, tell)
        self._sent.pop(worker, None)
        self._send_newest(worker, tell)

    def received(self, worker: int, kind: Kind, body: bytes) -> None:
        """Take a worker's frame."""
        if kind in self._orders:
            self._orders[kind].received(worker, body)
        for kept in self._kept:
            kept.received(worker, kind, body)
        if kind is not Kind.SETTINGS_TAKEN:
            return
        answer = Answer.from_bytes(body)
        self._requests.answered(worker, answer.number, answer)
        if answer.number == self._newest.number:
            self._note_refusal(worker, answer.refused)

    def status(self, worker: int, status: str) -> None:
        """Take a worker's status: only one that is running answers requests."""
        if status == "running":
            self._running.add(worker)
        elif status == "draining":
            self._left(worker)

    def gone(self, worker: int) -> None:
        """A worker process ended."""
        self._sent.pop(worker, None)
        for kept in self._kept:
            kept.gone(worker)
        self._left(worker)
        if worker in self.state.refused_by:
            self._note_refusal(worker, "")

    def step(self, tell: Tell) -> None:
        """Check the file, take new requests, and send workers what they don't have yet."""
        if self._reread_asked or self._file.changed(time.monotonic()):
            self._reread_asked = False
            self._read()
        for request in self._requests.new():
            self._accept(request, tell)
        for worker in list(self._sent):
            self._send_newest(worker, tell)
        for orders in self._orders.values():
            orders.step(self._running, tell)
        for kept in self._kept:
            kept.step(self._running, tell)
        self._requests.pending()

    # Requests.

    def effective(self) -> dict[str, object]:
        """The settings in force, each with its source, for JSON; secrets as `***`."""
        launch = self.launch
        shown = effective(launch.settings, launch.handlers)
        return {"group": launch.settings.group, **shown}

    def change(self, values: Mapping[str, object], *, dry_run: bool, wait_s: float) -> Change:
        """Set settings for as long as the run lasts; waits until the running workers have them.

        Args:
            values: by setting name, which may begin with the app's own section.
            dry_run: change nothing; only find out what would change.
            wait_s: how long to wait for the workers, in seconds.

        Raises:
            SettingError: refused; nothing was changed.
            TimeoutError: the run is not ready to take settings yet.
        """
        group = self.launch.settings.group
        own = {own_name(name, group): value for name, value in values.items()}
        wanted_change = _Wanted(own, dry_run)
        answers = self._requests.ask(wanted_change, wait_s)
        return replace(Change.of(answers, wanted_change.changed), group=group)

    def _accept(self, request: Request[_Wanted, Answer], tell: Tell) -> None:
        wanted_change = request.asked
        values = self._values | wanted_change.values
        try:
            above = set_layer(values)
            _refuse_fixed(above)
            wanted = self._relaunch(self._counts, above)
            self._refuse_delays(wanted)
        except SettingError as exc:
            request.refuse(exc)
            return
        changed = changes(self.launch.settings, wanted.settings, self.launch.app.handlers)
        wanted_change.changed = changed
        version = self._next(self._counts, above, dry_run=wanted_change.dry_run)
        self._requests.sent(request, version.number, self._running)
        if wanted_change.dry_run:
            # Sent once: a worker whose channel has no room now is reported as silent.
            for worker in self._running:
                tell(worker, Kind.SETTINGS, version.to_bytes())
            return
        self._above, self._values = above, values
        self._adopt(wanted, changed, version)
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
            # The state before the log line: whoever has read that finds it in `/readyz`.
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
            log.info("settings read again: no live setting has changed")
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

    # Versions.

    def _next(self, counts: Layer, above: Layer, *, dry_run: bool = False) -> SettingsVersion:
        self._last_number += 1
        return SettingsVersion(self._last_number, counts, above, dry_run)

    def _adopt(
        self, launch: Launch, changed: tuple[Changed, ...], version: SettingsVersion
    ) -> None:
        for each in changed:
            log.info("setting %s (%s)", each, each.source)
        self.launch, self._newest = launch, version
        set_log_level(launch.settings.app.log_level)
        self._tell_state(replace(self.state, refused_by={}))

    def _send_newest(self, worker: int, tell: Tell) -> None:
        """Send a worker the newest version, unless it has it or its channel has no room now."""
        if self._sent.get(worker) == self._newest.number:
            return
        sent = tell(worker, Kind.SETTINGS, self._newest.to_bytes())
        self._sent[worker] = self._newest.number if sent else 0

    def _left(self, worker: int) -> None:
        self._running.discard(worker)
        for orders in self._orders.values():
            orders.left(worker)
        for kept in self._kept:
            kept.left(worker)
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
