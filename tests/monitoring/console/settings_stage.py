"""Runs whose settings can be read and changed at an address: all of a run but its processes."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ackfloor.launch import Launch
from ackfloor.live.frames import Answer, Overdue, SettingsVersion
from ackfloor.live.run_control import PATH, ConfigControl
from ackfloor.live.run_settings import RunSettings
from ackfloor.runtime.supervision.channel import Kind
from ackfloor.settings.layers import Layer
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from tests.framework.live.test_run_settings import shop
from tests.monitoring.console.kept_notes import Notes, kept_notes
from tests.monitoring.console.served_console import Console, console_of

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


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Notes:
    """Kept here, and not in Kafka."""
    for name in [name for name in os.environ if name.startswith("ACKFLOOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return kept_notes(monkeypatch)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SettingsRun, ...]]:
    """Three of one group; the file of the last one says something else."""
    monkeypatch.setenv("ACKFLOOR_KAFKA__PROPERTIES__SSL_KEY_PEM", "hush-hush")
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    made = []
    for number, concurrency in enumerate((8, 8, 4)):
        toml = tmp_path / f"{number}.toml"
        toml.write_text(f"[handlers.bill]\nconcurrency = {concurrency}\n")
        made.append(SettingsRun(toml))
    yield tuple(made)
    for each in made:
        each.close()


def console(
    runs: tuple[SettingsRun, ...], role: Role = Role.admin
) -> AbstractContextManager[Console]:
    """A console of these runs, of which it has the tokens."""
    listen = [run.listen for run in runs]
    return console_of(*listen, role=role, token_files=dict.fromkeys(listen, Path("token")))
