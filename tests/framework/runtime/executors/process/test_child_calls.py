"""Who takes a record in a handler's process: the handler, or the worker that asks it back."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from ackfloor.errors import Retry
from ackfloor.runtime.calls.invoke import Invocation
from ackfloor.runtime.executors.process.child_calls import Child
from ackfloor.runtime.executors.process.pipe import PipeEnd
from ackfloor.runtime.executors.process.shared_progress import SharedProgress, new_area
from ackfloor.runtime.executors.process.wire_format import SentRecord
from tests.framework.runtime.live import within

#: How long a thread that has taken a record waits for another to do something.
LONG_ENOUGH_S = 0.2


class Interrupted(deque[Any]):
    """Records of which some thread but the handler's takes one, and is then without a core."""

    scene: Scene

    def popleft(self) -> Any:
        taken = super().popleft()
        if threading.current_thread() is not self.scene.main:
            self.scene.gate.set()
            self.scene.more.wait(LONG_ENOUGH_S)
        return taken


class Scene:
    """A process's threads in this one, and the worker's end of its pipe.

    Attributes:
        gate: opens the handler, which waits in the first record.
        more: another record was begun.
        handled: offsets.
        fails: the first record does.
    """

    def __init__(self) -> None:
        self.gate, self.more = threading.Event(), threading.Event()
        self.handled: list[int] = []
        self.messages: list[dict[str, Any]] = []
        self.fails = False
        ours, self._theirs = socket.socketpair()
        area = new_area()
        self.progress = SharedProgress(area)
        self.pipe = PipeEnd(ours)
        self.child = Child(self._theirs, SharedProgress(area), self._invocation(), None)
        os.close(area)
        self.child._opened = self._opened  # type: ignore[method-assign]
        self.main = threading.Thread(target=self.child.work)
        self.reader = threading.Thread(target=self.child.read)

    def _invocation(self) -> Invocation:
        def handle(delivery: Any) -> None:
            self.handled.append(delivery.offset)
            if delivery.offset == 0:
                assert self.gate.wait(60)
                if self.fails:
                    raise Retry
            else:
                self.more.set()

        return Invocation("bill", handle, False)

    def _opened(self, item: list[Any]) -> Interrupted:
        opened = Interrupted(SentRecord(*one) for one in item)
        opened.scene = self
        return opened

    def begin(self, *items: list[int]) -> None:
        """Send records, and wait until the handler is at the first."""
        sent = [
            [(n, "orders", "id", 0, n, b"k", b"v", (), (1, 0), None, None) for n in item]
            for item in items
        ]
        self.main.start()
        self.reader.start()
        self.pipe.send(pickle.dumps(("work", (None, None, 30), -1, sent)))
        within(lambda: self.progress.begun_until == 1)

    def hear(self) -> None:
        """Take what was said, as the worker does: first how far the process is."""
        ended = self.progress.ended_until
        self.messages += self.pipe.take()
        returned = {n for message in self.messages for n in message.get("returned", ())}
        unhandled = set(range(ended)) - returned - set(self.handled)
        assert not unhandled, "these count as ended, and nobody has handled them"

    def returned(self) -> list[int]:
        """What was given back."""
        return sorted(n for message in self.messages for n in message.get("returned", ()))

    def received(self, word: str) -> bool:
        """Whether there was such a word."""
        self.hear()
        return any(word in message for message in self.messages)

    def end(self) -> None:
        """End both threads."""
        self.gate.set()
        self.pipe.send(pickle.dumps(("end",)))
        self.main.join(60)
        self.pipe.close()
        self.reader.join(60)
        self._theirs.close()
        self.progress.close()
        self.child.progress.close()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A process that does not end this one when its worker is gone."""
    monkeypatch.setattr("ackfloor.runtime.executors.process.child_calls.os._exit", lambda _: None)
    scene = Scene()
    yield scene
    scene.end()


@pytest.mark.parametrize("items", [([0, 1, 2, 3],), ([0], [1], [2], [3])], ids=["lane", "loose"])
def test_what_is_asked_back_is_not_skipped(scene: Scene, items: tuple[list[int], ...]) -> None:
    """Nothing behind it is begun before the worker has heard of it: that would take it for done."""
    scene.begin(*items)
    scene.pipe.send(pickle.dumps(("recall",)))
    within(lambda: scene.received("returned"))
    scene.gate.set()
    within(lambda: scene.progress.ended_until > 0)
    scene.hear()
    assert sorted(scene.handled + scene.returned()) == [0, 1, 2, 3]
    assert max(scene.handled) < min(scene.returned())


def test_a_record_that_fails_is_told_after_what_was_asked_back(scene: Scene) -> None:
    """All of its lane has come back when the worker hears of it."""
    scene.fails = True
    scene.begin([0, 1, 2, 3])
    scene.pipe.send(pickle.dumps(("recall",)))
    within(lambda: scene.received("ended"))
    at = next(n for n, message in enumerate(scene.messages) if "ended" in message)
    before = [n for message in scene.messages[: at + 1] for n in message.get("returned", ())]
    assert sorted(before) == [1, 2, 3]
    assert scene.handled == [0]


def test_a_process_that_is_to_be_replaced_gives_back_what_it_has_not_begun(scene: Scene) -> None:
    """Whoever finds that out, while its handler goes on."""
    scene.begin([0, 1, 2, 3])
    scene.child.leave("has lost its lifespan")
    within(lambda: scene.received("spent"))
    assert max(scene.handled) < min(scene.returned())
