"""NewMatches: a topic that a pattern matches is found while a worker runs, and ends it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from ackfloor.declare.topic_patterns import LeftOut, Matches
from ackfloor.errors import KafkaUnreachable, SourceFailed, TopicAppeared
from ackfloor.kafka.consume.new_matches import NewMatches
from tests.framework.kafka.wire import until

KNOWN = Matches({("bill", "^o-.*"): ("o-1",)})
MORE = Matches({("bill", "^o-.*"): ("o-1", "o-2")})
WHY = LeftOut("bill", "^o-.*", "topic o-2 is also matched by ...", "narrow one of the patterns")
LEFT_OUT = Matches(KNOWN.topics, {"o-2": WHY})


@pytest.fixture
def watch() -> Iterator[Callable[..., NewMatches]]:
    """Makes watches that are given one answer after the other, and the last one until the next."""
    made: list[NewMatches] = []

    def make(
        *answers: Matches | Exception,
        known: Matches = KNOWN,
        left: list[Matches | Exception] | None = None,
    ) -> NewMatches:
        left = [] if left is None else left
        left.extend(answers)

        def find() -> Matches:
            found = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(found, Exception):
                raise found
            return found

        made.append(NewMatches(find, known, 0.002))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_a_new_topic_ends_the_worker(watch: Callable[..., NewMatches]) -> None:
    """To be replaced, which its exit code says; before that nothing happens."""
    new = watch(KNOWN, KNOWN, MORE)
    with pytest.raises(TopicAppeared, match="a pattern matches o-2, new to this worker") as ended:
        until(new.check)
    assert ended.value.exit_code == 75
    assert new.looks >= 2


def test_what_matches_and_is_not_read_is_a_fault_until_it_is_gone(
    watch: Callable[..., NewMatches], caplog: pytest.LogCaptureFixture
) -> None:
    """Logged once however often it is seen; the worker goes on."""
    with caplog.at_level(logging.WARNING, "ackfloor.kafka"):
        answers = list[Matches | Exception]()
        new = watch(KNOWN, LEFT_OUT, left=answers)
        until(lambda: new.troubles)
        trouble, looks = new.troubles["o-2"], new.looks
        until(lambda: new.looks > looks + 2)
        answers.append(KNOWN)
        until(lambda: not new.troubles)
    assert trouble.text == "topic o-2 is also matched by ...; narrow one of the patterns"
    assert caplog.messages == [trouble.text]
    new.check()


def test_what_was_left_out_at_the_start_is_a_fault_at_once() -> None:
    """Before the first look."""
    assert set(NewMatches(lambda: LEFT_OUT, LEFT_OUT, 3600.0).troubles) == {"o-2"}


def test_a_topic_that_was_left_out_is_found_once_it_can_be_read(
    watch: Callable[..., NewMatches],
) -> None:
    """Its own topics were made by hand, or a pattern was narrowed elsewhere."""
    new = watch(LEFT_OUT, MORE, known=LEFT_OUT)
    with pytest.raises(TopicAppeared, match="o-2"):
        until(new.check)


def test_a_deleted_topic_ends_nothing(watch: Callable[..., NewMatches]) -> None:
    """The group takes its partitions away; the others go on."""
    new = watch(Matches({("bill", "^o-.*"): ()}))
    until(lambda: new.looks > 2)
    new.check()


def test_it_looks_again_once_a_broker_answers(watch: Callable[..., NewMatches]) -> None:
    """A broker that is away is the consumer's to report."""
    new = watch(KafkaUnreachable("away"), KafkaUnreachable("away"), MORE)
    with pytest.raises(TopicAppeared):
        until(new.check)


def test_a_look_that_fails_for_good_ends_the_worker(watch: Callable[..., NewMatches]) -> None:
    """Else new topics would never be found, and nobody would know."""
    new = watch(RuntimeError("broken"))
    with pytest.raises(SourceFailed, match="can't be looked for: RuntimeError: broken"):
        until(new.check)
