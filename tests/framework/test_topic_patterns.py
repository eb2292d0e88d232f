"""Topic patterns: what they may be, and what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ackfloor import App, RetryPolicy, Router
from ackfloor.declare.handler import Registry
from ackfloor.declare.registration import HandlerSpec
from ackfloor.declare.topic_patterns import Matches, match
from ackfloor.errors import ConfigError


async def bill(order: bytes) -> None:
    """Take an order."""


def specs(**taken: Sequence[str] | str) -> tuple[HandlerSpec, ...]:
    """Handlers by name, and what each takes."""
    registry = Registry()
    for name, topics in taken.items():
        given = (topics,) if isinstance(topics, str) else topics
        registry.handler(*given, name=name)(bill)
    return registry.handlers


def matched(
    handlers: tuple[HandlerSpec, ...], *existing: str, most: int = 100, **named: Any
) -> Matches:
    """What patterns stand for in the group `shop`."""
    return match(handlers, existing, "shop", most=most, **named)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("^orders-[", "not a regular expression of Python: unterminated character set at position"),
        ("^orders-(eu", "missing ), unterminated subpattern at position 8"),
        ("^orders-**", "multiple repeat at position 9"),
        ("^", "it matches no topic: the whole name has to match"),
    ],
)
def test_a_bad_pattern_is_refused_where_it_is_written(pattern: str, told: str) -> None:
    """With the position of the mistake, counted from the sign."""
    with pytest.raises(ConfigError) as refused:
        Registry().handler(pattern)(bill)
    assert f"handlers.bill.topics={pattern!r}: " in str(refused.value)
    assert told in str(refused.value)


def test_one_pattern_for_two_handlers_is_refused() -> None:
    """Whatever it matches would be of both; also through a router."""
    app, router = App("shop"), Router()
    app.handler("^orders-.*", name="first")(bill)
    router.handler("^orders-.*", name="second")(bill)
    with pytest.raises(ConfigError, match="handler 'first' handles it already"):
        app.include(router)
    with pytest.raises(ConfigError, match="named twice"):
        Registry().handler("^a-.*", "^a-.*")(bill)


def test_names_and_patterns_go_together() -> None:
    """In one handler, in any order."""
    [spec] = specs(bill=("^orders-.*", "refunds"))
    assert (spec.topics, spec.patterns) == (("refunds",), ("^orders-.*",))
    found = matched((spec,), "orders-eu", "refunds", "orders-us", "bills")
    assert found.applied((spec,))[0].topics == ("refunds", "orders-eu", "orders-us")
    assert found.left_out == {}


def test_the_whole_name_has_to_match() -> None:
    """As for Kafka's Java client and brokers."""
    handlers = specs(bill="^orders")
    assert matched(handlers, "orders", "orders-eu", "my-orders").all == {"orders"}


def test_topics_of_ours_and_of_kafka_never_match() -> None:
    """Those of other groups included, and names that no handler could take."""
    ours = [
        "orders--shop--retry-5s",
        "orders--shop--dlq",
        "orders--shop--dispositions",
        "orders--other--retry-1m",
        "orders--other--dlq",
    ]
    kafkas = ["__consumer_offsets", "__transaction_state", "__share_group_state"]
    found = matched(specs(bill="^.*"), *ours, *kafkas, "a--b", "-a", "orders")
    assert found.all == {"orders"}
    assert found.left_out == {}


def test_a_topic_that_is_named_is_not_given_to_a_pattern() -> None:
    """Neither to another handler's nor to the same one's, and whichever of them runs."""
    handlers = specs(bill="^orders-.*", europe="orders-eu")
    topics = ("orders-eu", "orders-us")
    assert matched(handlers, *topics).of("bill") == ("orders-us",)
    assert matched(handlers, *topics, read={"bill"}).of("bill") == ("orders-us",)


def test_what_two_patterns_match_is_read_by_neither() -> None:
    """Also where one of them does not run here: it would share the topic out with this one."""
    handlers = specs(bill="^orders-.*", europe="^.*-eu")
    topics = ("orders-eu", "orders-us", "bills-eu")
    for read in (None, {"bill"}):
        found = matched(handlers, *topics, read=read)
        assert found.of("bill") == ("orders-us",)
        with pytest.raises(ConfigError) as refused:
            found.check()
        assert str(refused.value) == (
            "handlers.bill.topics='^orders-.*': topic orders-eu is also matched by '^.*-eu' of "
            "handler 'europe', and a topic has one handler; narrow one of the patterns, or name "
            "the topic in the handler that is to have it"
        )
    assert matched(specs(bill=("^orders-.*", "^.*-eu")), *topics).of("bill") == (
        "orders-eu",
        "orders-us",
        "bills-eu",
    ), "both are of one handler"


def test_handlers_that_do_not_run_here_are_not_this_runs_business() -> None:
    """What two of them share does not keep a third one from its work."""
    handlers = specs(bill="^bills-.*", one="^orders-.*", two="^.*-eu")
    found = matched(handlers, "orders-eu", "bills-us", read={"bill"})
    assert (found.all, found.left_out) == ({"bills-us"}, {})


def test_more_topics_than_allowed_are_refused() -> None:
    """The error names the number, the setting, and what is beyond."""
    found = matched(specs(bill="^o-.*"), "o-1", "o-2", "o-3", most=2)
    with pytest.raises(ConfigError) as refused:
        found.check()
    for named in ("3 topics match", "may stand for 2 (app.max_pattern_topics)", "are o-3;"):
        assert named in str(refused.value)


def test_who_is_read_already_stays_when_there_are_too_many() -> None:
    """A new topic is left out, whatever its name: workers that start later choose the same."""
    existing = ("o-0", "o-1", "o-2", "o-1--shop--dlq", "o-2--shop--dlq")
    found = matched(specs(bill="^o-.*"), *existing, most=2)
    assert found.of("bill") == ("o-1", "o-2")
    assert list(found.left_out) == ["o-0"]


def test_a_topic_whose_own_topics_can_not_be_named_is_left_out() -> None:
    """It is one topic's fault, not the handler's."""
    long = "o-" + "x" * 240
    handlers = specs(bill="^o-.*")
    found = matched(handlers, "o-1", long)
    assert found.all == {"o-1"}
    assert "Kafka allows 249" in found.left_out[long].why


def test_topics_of_one_pattern_are_siblings() -> None:
    """Those of another pattern are not, also of the same handler."""
    handlers = specs(bill=("^o-.*", "^p-.*"))
    assert matched(handlers, "o-1", "o-2", "p-1").siblings() == {
        "o-1": {"o-1", "o-2"},
        "o-2": {"o-1", "o-2"},
        "p-1": {"p-1"},
    }


def test_broadcast_mode_takes_no_patterns() -> None:
    """It could not read a later topic from its start."""
    app = App("shop", mode="broadcast")
    with pytest.raises(ConfigError, match=r"in broadcast mode .* would be missed; name each topic"):
        app.handler("^orders-.*", retry=RetryPolicy())(bill)


def test_results_do_not_go_where_the_pattern_reads() -> None:
    """Each result would have another one, without end, as soon as that topic is there."""

    async def copy(order: bytes) -> bytes:
        return order

    with pytest.raises(ConfigError, match="it handles this topic"):
        App("shop").handler("^orders-.*", to="orders-copied")(copy)
    App("shop").handler("^orders-.*", to="copies")(copy)
