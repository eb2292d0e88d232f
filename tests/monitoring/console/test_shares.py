"""What is under way at once: bounded for everybody together, and for each person."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person, Role
from ackfloor_monitoring.console.access.shares import Busy, Shares
from ackfloor_monitoring.console.reads import searches as searches_
from ackfloor_monitoring.console.reads.searches import AT_ONCE, EACH_AT_ONCE, EACH_WAITING, Searches

ANN, BOB, EVE = (Person(name, Role.reader) for name in ("ann", "bob", "eve"))


def test_a_share_is_given_back_whatever_happens() -> None:
    """Who has none any more is forgotten: names are not kept."""
    shares = Shares("searches", "wait")

    def refused(person: Person) -> str:
        with pytest.raises(Refused) as found, shares.taken(person, 2, 1):
            pass
        return f"{found.value.status}: {found.value}"

    def fail() -> None:
        with shares.taken(ANN, 2, 1):
            raise LookupError

    with shares.taken(ANN, 2, 1):
        assert refused(ANN) == "429: ann has 1 searches at once: wait"
        with shares.taken(BOB, 2, 1):
            assert refused(EVE) == "503: too many searches at once: wait"
    with pytest.raises(LookupError):
        fail()
    assert not shares._of


def test_one_person_leaves_threads_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while nobody waits any more for what theirs do: a thread ends when its search does."""
    monkeypatch.setattr(searches_, "PATIENCE_S", 0.2)

    async def ask() -> None:
        searches, ends, begun = Searches(), threading.Event(), list[str]()

        def search(name: str) -> bool:
            begun.append(name)
            return ends.wait(60)

        many = [searches.answer(partial(search, "ann"), ANN) for _ in range(EACH_WAITING)]
        for late in await asyncio.gather(*many, return_exceptions=True):
            assert isinstance(late, Busy)
            assert late.status == 504
        monkeypatch.setattr(searches_, "PATIENCE_S", 60.0)
        assert EACH_AT_ONCE < AT_ONCE
        assert begun == ["ann"] * EACH_AT_ONCE
        hers = asyncio.create_task(searches.answer(lambda: "ann's", ANN))
        assert await searches.answer(lambda: "bob's", BOB) == "bob's"
        assert not hers.done()
        ends.set()
        assert await hers == "ann's"
        assert len(begun) == EACH_AT_ONCE, "what nobody waited for any more was begun"

    asyncio.run(ask())


def test_one_person_leaves_searches_to_others() -> None:
    """Whoever asks for very many is refused alone, until some are answered."""

    async def ask() -> None:
        searches, answers = Searches(), threading.Event()
        waiting = [
            asyncio.create_task(searches.answer(lambda: answers.wait(60), ANN))
            for _ in range(EACH_WAITING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Refused) as refused:
            await searches.answer(lambda: "ann's", ANN)
        assert refused.value.status == 429
        of_bob = asyncio.create_task(searches.answer(lambda: "bob's", BOB))
        answers.set()
        assert await of_bob == "bob's"
        assert all(await asyncio.gather(*waiting))
        assert await searches.answer(lambda: "ann's", ANN) == "ann's"

    asyncio.run(ask())
