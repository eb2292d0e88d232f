"""The lookout: what is seen is told, what is not known is not, and it ends when it is told to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Queue

import pytest

from ackfloor.core.progress import Progress
from ackfloor.errors import AckfloorError, KafkaUnreachable
from ackfloor.runtime import lookout
from ackfloor.runtime.lookout import Look, Lookout

PATIENCE_S = 120.0
SEEN = (Progress("billing", "orders", 0, "source", start=0, end=10, floor=3),)
Told = Queue[Sequence[Progress] | None]


@contextmanager
def looked(look: Look, every_s: float = 0.001) -> Iterator[tuple[Told, threading.Event]]:
    """What is told meanwhile, and whether what is looked with was closed."""
    told: Told = Queue()
    closed = threading.Event()

    @contextmanager
    def looking() -> Iterator[Look]:
        try:
            yield look
        finally:
            closed.set()

    lookout = Lookout(looking, told.put, every_s)
    lookout.start()
    try:
        yield told, closed
    finally:
        lookout.stop()


def test_it_looks_again_and_again_and_closes_what_it_looked_with() -> None:
    """Each look is told."""
    with looked(lambda: SEEN) as (told, closed):
        assert [told.get(timeout=PATIENCE_S) for _ in range(3)] == [SEEN] * 3
    assert closed.wait(PATIENCE_S)


def test_a_run_that_ends_before_the_first_look_opens_nothing() -> None:
    """The first look comes after one wait."""
    with looked(lambda: SEEN, every_s=3600.0) as (told, closed):
        pass
    assert told.empty()
    assert not closed.is_set()


@pytest.mark.parametrize("error", [KafkaUnreachable("away"), AckfloorError("no"), KeyError("bug")])
def test_what_fails_is_not_known_and_said_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is; the next look that succeeds is told, and a failure after it said anew."""
    answers: list[Callable[[], Sequence[Progress]]] = []

    def fail() -> Sequence[Progress]:
        raise error

    def look() -> Sequence[Progress]:
        return answers.pop(0)() if answers else SEEN

    answers[:] = [fail, fail, fail, lambda: SEEN, fail, lambda: SEEN]
    with caplog.at_level(logging.WARNING, "ackfloor.run"), looked(look) as (told, _):
        seen = [told.get(timeout=PATIENCE_S) for _ in range(6)]
    assert seen == [None, None, None, SEEN, None, SEEN]
    said = [record.message for record in caplog.records if "are not known" in record.message]
    assert len(said) == 2


def test_a_look_that_does_not_come_back_does_not_hold_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is left behind: a broker that is silent must not keep a run alive."""
    monkeypatch.setattr(lookout, "END_S", 0.01)
    entered, release = threading.Event(), threading.Event()

    def look() -> Sequence[Progress]:
        entered.set()
        release.wait()
        return SEEN

    with looked(look) as (told, closed):
        assert entered.wait(PATIENCE_S)
    assert told.empty()
    release.set()
    assert closed.wait(PATIENCE_S)
