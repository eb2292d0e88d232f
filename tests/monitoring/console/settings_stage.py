"""Runs whose settings can be read and changed at an address: all of a run but its processes."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from ackfloor.launch import Launch
from ackfloor.live.frames import Answer, Overdue, SettingsVersion
from ackfloor.live.run_control import PATH, ConfigControl
from ackfloor.live.run_settings import RunSettings
from ackfloor.runtime.supervision.channel import Kind
from ackfloor.settings.layers import Layer
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from tests.framework.live.test_run_settings import shop

TOKEN = "s3cret" * 8


class SettingsRun:
    """One, with two workers that take each version at once.

    Attributes:
        overdue: what a change would end in the first worker.
        refused: why the second worker takes no version; empty where it does.
    """

    def __init__(self, toml: Path, group: str = "billing") -> None:
        app = shop()

        def relaunch(file: Layer, above: Layer) -> Launch:
            return Launch.of(app, flags={"app.workers": 2}, file=file, above=above)

        self.settings = RunSettings(relaunch, toml, app.group)
        self.overdue: tuple[Overdue, ...] = ()
        self.refused = ""
        self.versions: list[SettingsVersion] = []
        self._answers = deque[tuple[int, bytes]]()
        self.metrics = RunMetrics(group, 2)
        control = ConfigControl(
            TOKEN, self.settings.change, anywhere=False, tells=self.settings.effective
        )
        self.metrics.control(PATH, control)
        self.listen = self.metrics.start("127.0.0.1:0")
        for worker in (0, 1):
            self.settings.started(worker, self._tell)
            self.settings.status(worker, "running")
        self._over = threading.Event()
        self._loop = threading.Thread(target=self._step)
        self._loop.start()

    def _tell(self, worker: int, kind: Kind, body: bytes) -> bool:
        if kind is Kind.SETTINGS:
            version = SettingsVersion.from_bytes(body)
            self.versions.append(version)
            overdue = () if worker else self.overdue
            refused = self.refused if worker else ""
            answer = Answer(version.number, refused, len(overdue), overdue)
            self._answers.append((worker, answer.to_bytes()))
        return True

    def _step(self) -> None:
        while not self._over.wait(0.002):
            self.settings.step(self._tell)
            while self._answers:
                worker, body = self._answers.popleft()
                self.settings.received(worker, Kind.SETTINGS_TAKEN, body)

    @property
    def changes(self) -> list[SettingsVersion]:
        """What the workers were told to change."""
        return [each for each in self.versions[2:] if not each.dry_run]

    def concurrency(self) -> int:
        """Of the handler `bill`."""
        return self.settings.launch.handlers[0].concurrency

    def close(self) -> None:
        """Give the port back."""
        self._over.set()
        self._loop.join()
        self.metrics.stop()
