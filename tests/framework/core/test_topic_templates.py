"""Templates: other names for our topics, and when they are refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from ackfloor.core.parking.topic_names import ParsedTopic, TopicTemplates, check_names
from ackfloor.core.values.setting_error import SettingError

DOTTED = TopicTemplates(
    "{topic}.{group}.retry.{delay}", "{topic}.{group}.dlq", "{topic}.{group}.done"
)


def test_other_templates_make_and_take_apart_other_names() -> None:
    """The pattern is built from the template."""
    assert DOTTED.tier_topic("orders", "billing", 5) == "orders.billing.retry.5s"
    assert DOTTED.parse("orders.billing.retry.5s") == ParsedTopic("orders", "billing", "retry", 5)
    assert DOTTED.parse("orders.billing.dlq") == ParsedTopic("orders", "billing", "dlq")
    assert DOTTED.parse("orders.billing.done") == ParsedTopic("orders", "billing", "dispositions")
    assert DOTTED.parse("orders--billing--dlq") is None
    assert pickle.loads(pickle.dumps(DOTTED)) == DOTTED
    assert TopicTemplates() != DOTTED
    check_names(["orders"], "billing", [5.0], DOTTED)


@pytest.mark.parametrize(
    ("templates", "topics", "group", "message"),
    [
        (DOTTED, ["orders"], "eu.billing", "orders.eu.billing.dlq can be read in two ways"),
        (
            TopicTemplates(dlq="{topic}!{group}"),
            ["orders"],
            "billing",
            "orders!billing would not be a topic name",
        ),
        (
            TopicTemplates(dlq="x--{topic}--{group}", dispositions="{topic}--{group}--x"),
            ["x"],
            "x",
            "x--x--x can be read in two ways",
        ),
        (TopicTemplates(), ["orders"], "a--b", "orders--a--b--dlq can be read in two ways"),
        (
            TopicTemplates(dlq="{topic}-{group}"),
            ["a", "a-g"],
            "g",
            "a-g would be two topics",
        ),
        (
            TopicTemplates(dlq="{topic}.{group}"),
            ["a", "a_g"],
            "g",
            "Kafka can't tell a_g from a.g",
        ),
    ],
)
def test_templates_whose_names_are_mistaken_are_refused_with_the_topics_they_meet(
    templates: TopicTemplates, topics: list[str], group: str, message: str
) -> None:
    """A template without `--` is safe with some names only."""
    with pytest.raises(SettingError) as refused:
        check_names(topics, group, [1.0], templates)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"tier": "{topic}--{group}"},
            (
                "topics.tier_template='{topic}--{group}': names made from it can't be taken apart "
                "again; use each of {topic}, {group}, {delay} exactly once"
            ),
        ),
        ({"dlq": "{topic}--dlq"}, "topics.dlq_template='{topic}--dlq'"),
        ({"dlq": "{topic}{topic}{group}"}, "use each of {topic}, {group} exactly once"),
        ({"dispositions": "{topic}{group}{delay}"}, "topics.dispositions_template="),
        ({"dlq": "{topic!r}{group}"}, "topics.dlq_template="),
        ({"dlq": "{topic:>9}{group}"}, "topics.dlq_template="),
        ({"dlq": "{topic}{group"}, "topics.dlq_template="),
        ({"dlq": "dlq"}, "topics.dlq_template='dlq'"),
    ],
)
def test_a_template_that_loses_a_part_is_refused(arguments: dict[str, Any], message: str) -> None:
    """Each placeholder is there once, plainly."""
    with pytest.raises(SettingError) as refused:
        TopicTemplates(**arguments)

    assert message in str(refused.value)
