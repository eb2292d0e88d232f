"""Dead letters that are open, and the oldest of them, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackfloor.core.acks.progress import Progress
from ackfloor.kafka.inspection.group_progress import looking_at
from ackfloor.redrive import select
from tests.framework.kafka.wire import options, until
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka


@pytest.fixture
def stage(bootstrap_servers: str) -> Stage:
    """A group with topics of its own."""
    return Stage(bootstrap_servers)


@pytest.fixture
def look(stage: Stage) -> Iterator[Callable[[], list[Progress]]]:
    """Looks at the partitions of its dead-letter topic, as a run does."""
    with looking_at(options(stage.servers), stage.group) as looking:
        yield lambda: [each for each in looking() if each.kind == "dlq"]


def written_ms(stage: Stage) -> dict[tuple[int, int], int]:
    """When each letter was written, by its place."""
    return {
        (message.partition() or 0, message.offset() or 0): message.timestamp()[1]
        for message in stage.read(stage.dlq)
    }


def test_the_oldest_open_letter_is_told_until_nothing_is_open(
    stage: Stage, look: Callable[[], list[Progress]]
) -> None:
    """In any order, over markers of transactions, and again when there are new letters."""
    # An end that a broker does not tell yet is not known, and no error.
    until(lambda: [(each.open, each.oldest_ms) for each in look()] == [(0, None), (0, None)])
    # Twice, so that there is a marker in the middle.
    stage.bury_in_transaction(3)
    stage.bury_in_transaction(3)
    times = written_ms(stage)
    places = sorted(times)

    def shows(open_: int | None, oldest_ms: int | None) -> None:
        """A look that takes too long tells of no letter, and the next one does."""

        def shown() -> bool:
            seen = next(each for each in look() if each.partition == 1)
            return open_ in {None, seen.open} and seen.oldest_ms == oldest_ms

        until(shown)

    shows(None, times[places[0]])
    # What is disposed of in the middle does not hide what is before it.
    assert stage.job().run(select([places[1]])).sent == 1
    shows(None, times[places[0]])
    assert stage.job().run(select([places[0]])).sent == 1
    shows(None, times[places[2]])
    # Over the marker and to the last.
    assert stage.job().run(select(places[2:5])).sent == 3
    shows(2, times[places[5]])
    assert stage.job().run(select(places[5:])).sent == 1
    shows(0, None)
    stage.bury_in_transaction(1)
    newest = written_ms(stage)
    shows(None, newest[max(newest)])


def test_what_lies_behind_many_that_are_disposed_of_is_found(
    stage: Stage, look: Callable[[], list[Progress]]
) -> None:
    """They are jumped over, from a marker on."""
    stage.bury_in_transaction(1)
    stage.bury([(None, b"%d" % n, []) for n in range(5_000)], partition=1)
    times = written_ms(stage)
    places = sorted(times)
    assert stage.job().run(select(places[:-1])).sent == 5_000
    until(lambda: [(s.open, s.oldest_ms) for s in look() if s.open] == [(1, times[places[-1]])])
