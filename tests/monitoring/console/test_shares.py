"""What is under way at once: bounded for everybody together, and for each person."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person, Role
from ackfloor_monitoring.console.access.shares import Shares
from ackfloor_monitoring.console.reads.searches import EACH_WAITING, Searches

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
