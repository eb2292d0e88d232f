"""WorkerSettings: applies new settings in a worker, or refuses them and says why.

The supervisor has checked them against the same app, so a refusal is rare: the code on disk has
changed since, or this worker subscribed to other retry topics. Settings are applied whole or not
at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.rule_changes import Reloaded
from ackfloor.core.values.setting_error import SettingError
from ackfloor.launch import Launch
from ackfloor.live.frames import MOST_NAMED, Answer, Overdue, SettingsVersion
from ackfloor.runtime.logging.logs import set_log_level
from ackfloor.runtime.loop.clock import SystemClock
from ackfloor.runtime.loop.worker_assembly import Worker

log = logging.getLogger("ackfloor.worker")


class WorkerSettings:
    """The settings of one worker while it runs; only the owner thread calls it.

    Args:
        relaunch: makes this worker's launch with other settings; raises SettingError.
        worker: the worker; it has been started.
    """

    def __init__(self, relaunch: Callable[[SettingsVersion], Launch], worker: Worker) -> None:
        self._relaunch = relaunch
        self._worker = worker

    def take(self, body: bytes) -> Answer:
        """Apply a frame's settings; returns the answer."""
        version = SettingsVersion.from_bytes(body)
        try:
            return self._apply(version)
        except (SettingError, ValueError) as exc:
            refused = str(exc)
        except Exception as exc:
            log.exception("the settings could not be applied")
            refused = f"{type(exc).__name__}: {exc}"
        log.error("settings not changed: %s", refused)
        return Answer(version.number, refused)

    def _apply(self, version: SettingsVersion) -> Answer:
        launch, loop = self._relaunch(version), self._worker.loop
        reloaded: Reloaded = self._worker.reloaded(launch.handlers, launch.worker_config())
        if loop is None:
            raise ValueError("the worker is not running")
        late = loop.overdue_under(reloaded)
        now_s = SystemClock().monotonic()
        overdue = tuple(_overdue(delivery, now_s) for delivery in late[:MOST_NAMED])
        if not version.dry_run:
            loop.reload(reloaded)
            set_log_level(launch.settings.app.log_level)
            ended = f"; {len(late)} running deliveries are overdue by them" if late else ""
            log.info("settings changed%s", ended)
        return Answer(version.number, "", len(late), overdue)


def _overdue(delivery: TrackedDelivery, now_s: float) -> Overdue:
    return Overdue(
        delivery.assignment.handler.rules.name,
        delivery.topic,
        delivery.partition,
        delivery.offset,
        delivery.attempt,
        round(now_s - delivery.started_s, 3),
    )
