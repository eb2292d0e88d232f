"""Topic names: made, taken apart again, and refused where they could not be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ackfloor.core.parking.topic_names import (
    LONGEST_NAME,
    ParsedTopic,
    check_group,
    check_names,
    check_source_topic,
    dispositions_topic,
    dlq_topic,
    parse_topic,
    tier_topic,
)
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.values.setting_error import SettingError


def accepted(name: str, check: Any) -> bool:
    """Whether a name passes its check."""
    try:
        check(name)
    except SettingError:
        return False
    return True


legal = st.text("ab-._9Z", min_size=1, max_size=12)
sources = legal.filter(lambda name: accepted(name, check_source_topic))
groups = legal.filter(lambda name: accepted(name, check_group))
delays = st.integers(1, 365 * 86_400_000).map(lambda ms: ms / 1000)


def test_our_names_carry_topic_group_and_delay() -> None:
    """The delay in its largest exact unit."""
    assert tier_topic("orders", "billing", 5) == "orders--billing--retry-5s"
    assert tier_topic("orders", "billing", 1.5) == "orders--billing--retry-1500ms"
    assert tier_topic("orders", "billing", 90) == "orders--billing--retry-90s"
    assert tier_topic("orders", "billing", 600) == "orders--billing--retry-10m"
    assert dlq_topic("orders", "billing") == "orders--billing--dlq"
    assert dispositions_topic("orders", "billing") == "orders--billing--dispositions"


def test_a_tier_without_an_exact_delay_has_no_name() -> None:
    """A fraction of a millisecond is refused, not rounded into another tier's name."""
    with pytest.raises(SettingError, match="whole, positive number of milliseconds"):
        tier_topic("orders", "billing", 0.0004)


@given(sources, groups, delays)
@example("retry-5s", "dlq", 5.0)
@example("a-b", "dispositions", 86_400.0)
@example("a", "retry-5s", 0.001)
def test_every_accepted_name_splits_in_one_way(topic: str, group: str, delay_s: float) -> None:
    """What was put together comes apart as the same parts."""
    tier = parse_topic(tier_topic(topic, group, delay_s))

    assert tier is not None
    assert (tier.topic, tier.group, tier.kind) == (topic, group, "retry")
    assert tier.delay_s == pytest.approx(delay_s, abs=1e-6)
    assert parse_topic(dlq_topic(topic, group)) == ParsedTopic(topic, group, "dlq")
    assert parse_topic(dispositions_topic(topic, group)) == ParsedTopic(
        topic, group, "dispositions"
    )


@given(sources, groups, sources, groups, delays, delays)
def test_two_groups_or_topics_never_share_a_topic(
    topic: str, group: str, other: str, other_group: str, delay_s: float, other_delay_s: float
) -> None:
    """Different parts make different names."""
    assume((topic, group) != (other, other_group))

    ours = {tier_topic(topic, group, delay_s), dlq_topic(topic, group)}
    theirs = {tier_topic(other, other_group, other_delay_s), dlq_topic(other, other_group)}
    assert not ours & theirs


@given(sources, groups)
def test_none_of_our_topics_is_accepted_as_a_source(topic: str, group: str) -> None:
    """A user's pattern or list never matches what we made."""
    made = (tier_topic(topic, group, 5), dlq_topic(topic, group), dispositions_topic(topic, group))

    assert not any(accepted(name, check_source_topic) for name in made)
    assert parse_topic(topic) is None


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "",
        "orders--billing",
        "orders--billing--retry",
        "orders--billing--retry-",
        "orders--billing--retry-5",
        "orders--billing--retry-0s",
        "orders--billing--retry-05s",
        "orders--billing--retry-60s",
        "orders--billing--retry-1000ms",
        "orders--billing--retry-9999d",
        "orders--billing--retry-99999999999999999999d",
        "orders--billing--retry-1.5s",
        "orders--billing--retry-\u0665s",
        "orders--billing--DLQ",
        "orders--billing--dlq\n",
        "orders--bil--ling--dlq",
        "orders---billing--dlq",
        "orders-billing--dlq",
        "--billing--dlq",
        "orders----dlq",
        "or ders--billing--dlq",
    ],
)
def test_what_we_would_not_write_is_not_ours(name: str) -> None:
    """Near misses are somebody else's topics, and never raise."""
    assert parse_topic(name) is None


@given(st.text(max_size=40) | st.from_regex(r"[a-z-]{0,9}--[a-z-]{0,9}--(retry-\d*[a-z]*|dlq)"))
def test_parsing_any_name_gives_its_parts_or_nothing(name: str) -> None:
    """A name that parses is exactly the one its parts make."""
    parsed = parse_topic(name)
    if parsed is None:
        return
    made = {
        "retry": lambda: tier_topic(parsed.topic, parsed.group, parsed.delay_s or 0),
        "dlq": lambda: dlq_topic(parsed.topic, parsed.group),
        "dispositions": lambda: dispositions_topic(parsed.topic, parsed.group),
    }
    assert made[parsed.kind]() == name
    assert accepted(parsed.topic, check_source_topic)
    assert accepted(parsed.group, check_group)


@pytest.mark.parametrize("name", ["orders", "a", "_x", ".x.", "a-b_c.D9", "x" * LONGEST_NAME])
def test_ordinary_names_are_accepted(name: str) -> None:
    """Whatever Kafka takes, with single dashes inside."""
    check_group(name)
    check_source_topic(name)


@pytest.mark.parametrize(
    ("name", "why", "fix"),
    [
        ("", "empty", "give a name"),
        (".", "Kafka allows letters, digits", "rename it"),
        ("..", "Kafka allows letters, digits", "rename it"),
        ("or ders", "Kafka allows letters, digits", "rename it"),
        ("bestellüng", "Kafka allows letters, digits", "rename it"),
        ("a/b", "Kafka allows letters, digits", "rename it"),
        ("orders\n", "Kafka allows letters, digits", "rename it"),
        ("a--b", "'--' separates the parts", "single dashes"),
        ("-a", "'--' separates the parts", "single dashes"),
        ("a-", "'--' separates the parts", "single dashes"),
        ("x" * 250, "over 249 characters", "shorten it"),
    ],
)
def test_a_name_that_can_t_be_part_of_ours_is_refused(name: str, why: str, fix: str) -> None:
    """For topics and groups alike: field, value and fix in one line."""
    for field, check in (("topic", check_source_topic), ("group", check_group)):
        with pytest.raises(SettingError) as refused:
            check(name)
        assert refused.value.field == field
        assert why in refused.value.why
        assert fix in refused.value.fix
        assert "\n" not in str(refused.value)


def test_the_names_of_a_whole_group_are_checked_together() -> None:
    """Repeating a source is no collision with itself."""
    check_names(["orders", "orders", "payments"], "billing", RetryPolicy().tiers())
    check_names([], "billing", [])


@pytest.mark.parametrize(
    ("topics", "group", "message"),
    [
        (
            ["x" * 240],
            "billing",
            "would have 254 characters, Kafka allows 249; shorten it or the group",
        ),
        (
            ["a.b", "a_b"],
            "billing",
            "topic='a_b': Kafka can't tell a_b from a.b ('.' and '_' collide); rename it",
        ),
    ],
)
def test_names_that_are_too_long_or_collide_are_refused(
    topics: list[str], group: str, message: str
) -> None:
    """The refusal names the source topic, the made name and the fix."""
    with pytest.raises(SettingError) as refused:
        check_names(topics, group, [1.0])

    assert message in str(refused.value)


def test_the_longest_name_that_fits_is_accepted() -> None:
    """249 characters of the longest name made, and not one more."""
    spare = LONGEST_NAME - len(dispositions_topic("", "g"))

    check_names(["x" * spare], "g", [1.0])
    with pytest.raises(SettingError, match="would have 250 characters"):
        check_names(["x" * (spare + 1)], "g", [1.0])


@given(st.lists(sources, max_size=3), groups, st.lists(delays, max_size=2))
def test_accepted_sets_of_names_have_no_two_that_kafka_confuses(
    topics: list[str], group: str, tiers: list[float]
) -> None:
    """Folded as Kafka's metrics fold them, all names of the set are different."""
    assume(accepted("", lambda _: check_names(topics, group, tiers)))

    made = set(topics)
    for topic in topics:
        made |= {tier_topic(topic, group, delay_s) for delay_s in tiers}
        made |= {dlq_topic(topic, group), dispositions_topic(topic, group)}
    assert len({name.replace(".", "_") for name in made}) == len(made)
    assert all(len(name) <= LONGEST_NAME for name in made)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=5))
def test_any_policy_s_tiers_have_names_that_read_back(delays_ms: list[int]) -> None:
    """Tier delays and tier names are one and the same, to the bit."""
    policy = RetryPolicy(
        max_redeliveries=None, delays=[timedelta(milliseconds=ms) for ms in delays_ms]
    )
    parsed = [parse_topic(tier_topic("orders", "g", delay_s)) for delay_s in policy.tiers()]

    assert tuple(topic.delay_s for topic in parsed if topic) == policy.tiers()
