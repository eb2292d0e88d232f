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
from tests.framework.kafka.wire import until

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


def test_two_people_leave_a_thread_to_a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last free one is for somebody who has none, however many wait before them."""
    monkeypatch.setattr(searches_, "PATIENCE_S", 120.0)

    async def ask() -> None:
        searches, ends, begun = Searches(), threading.Event(), list[str]()

        def search(name: str) -> str:
            begun.append(name)
            assert ends.wait(60)
            return name

        def of(person: Person) -> asyncio.Task[str]:
            return asyncio.create_task(searches.answer(partial(search, person.name), person))

        many = [of(each) for _ in range(EACH_WAITING) for each in (ANN, BOB)]
        await asyncio.to_thread(until, lambda: len(begun) == AT_ONCE - 1)
        assert await searches.answer(lambda: "eve's", EVE) == "eve's"
        assert len(begun) == AT_ONCE - 1, "the last one was taken by somebody who had one"
        hers, dan = of(EVE), Person("dan", Role.reader)
        await asyncio.to_thread(until, lambda: len(begun) == AT_ONCE)
        # Without a free one, whoever has none comes next.
        more = asyncio.create_task(searches.answer(lambda: "dan's", dan))
        await asyncio.sleep(0)
        assert not more.done()
        gone = of(dan)
        await asyncio.sleep(0)
        gone.cancel()
        ends.set()
        assert (await hers, await more) == ("eve", "dan's")
        assert sorted(await asyncio.gather(*many)) == sorted(["ann", "bob"] * EACH_WAITING)
        with pytest.raises(asyncio.CancelledError):
            await gone
        await asyncio.to_thread(until, lambda: not searches._taken)
        assert searches._turns == {}

    asyncio.run(ask())


@pytest.mark.parametrize("is_late", [True, False])
def test_a_turn_that_nobody_waits_for_goes_to_the_next(*, is_late: bool) -> None:
    """Given up before it came, or just then."""

    async def ask() -> None:
        searches = Searches()
        for each in (ANN, BOB, EVE, Person("dan", Role.reader)):
            await searches._turn(each.name)
        gives_up = asyncio.create_task(searches._turn("fay"))
        waits = asyncio.create_task(searches._turn("gus"))
        await asyncio.sleep(0)
        if is_late:
            searches._give_back("ann")
        gives_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gives_up
        if not is_late:
            searches._give_back("ann")
        await waits
        assert searches._taken == {"bob": 1, "eve": 1, "dan": 1, "gus": 1}

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
