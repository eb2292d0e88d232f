"""The injector: draws faults, starts them, and keeps the list of what was done when.

Kinds come in shuffled rounds, so that even a short run meets many of them. The seed decides over
the rounds; how long faults take, and which process or partition they hit, depends on the run.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, dataclass
from random import Random

from tests.soak.faults import CLOSE_TOPICS, KINDS, Kind, Scene
from tests.soak.plan import Plan


@dataclass(slots=True)
class Done:
    """One fault as it was: times are monotonic, `to_s` is 0 while it goes on."""

    kind: str
    family: str
    from_s: float
    to_s: float = 0.0
    what: str = ""
    failed: str = ""


class Injector:
    """Draws on a thread of its own between `start` and `stop`."""

    def __init__(self, plan: Plan, scene: Scene) -> None:
        self._plan = plan
        self._scene = scene
        self._chance = plan.chance("faults")
        drawn = set(plan.only or [kind.name for kind in KINDS]) - set(plan.without)
        if plan.parks == "transactional":
            # Brokers would refuse their own markers, and a transaction that can't be marked never
            # ends: that is Kafka broken, and not a fault of it.
            drawn -= CLOSE_TOPICS
        self._kinds = [kind for kind in KINDS if kind.name in drawn]
        self._stop = threading.Event()
        self._rooms = {kind.room: threading.Lock() for kind in KINDS}
        self._thread = threading.Thread(target=self._run, name="injector", daemon=True)
        self._at_work: list[threading.Thread] = []
        self.done: list[Done] = []

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """No further faults; those that go on end first."""
        self._stop.set()
        self._thread.join()
        for thread in self._at_work:
            thread.join()
        with (self._plan.folder / "faults.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(fault)) + "\n" for fault in self.done)

    def current(self) -> list[str]:
        """What goes on right now."""
        return [fault.kind for fault in self.done if not fault.to_s]

    def _run(self) -> None:
        queue: list[Kind] = []
        while not self._stop.wait(self._chance.uniform(*self._plan.pause_s)):
            if len(queue) < len(self._kinds):
                queue += self._chance.sample(self._kinds, len(self._kinds))
            # Two of a room would get into each other's way: the next that has room goes first.
            kind = next((k for k in queue if self._rooms[k.room].acquire(blocking=False)), None)
            if kind is None:
                continue
            queue.remove(kind)
            chance = Random(self._chance.random())
            worker = threading.Thread(target=self._do, args=(kind, chance), name=kind.name)
            self._at_work.append(worker)
            worker.start()

    def _do(self, kind: Kind, chance: Random) -> None:
        fault = Done(kind.name, kind.family, time.monotonic())
        self.done.append(fault)
        try:
            fault.what = kind.do(self._scene, chance)
        except Exception as exc:  # noqa: BLE001 -- told in the report: a fault that is not one
            fault.failed = f"{type(exc).__name__}: {exc}"
        finally:
            fault.to_s = time.monotonic()
            self._rooms[kind.room].release()
