"""What the doctor says of topics, from facts alone."""

from __future__ import annotations

from dataclasses import replace

from ackfloor.core.values.doctor_result import CheckResult
from ackfloor.declare.handler import Router
from ackfloor.kafka.inspection.topic_checks import check_topics
from ackfloor.kafka.topics.topic_requirements import TopicFacts
from tests.framework.kafka.topics.test_cluster_topics import plans, spec

SOURCE = TopicFacts(6, 3, {"max.message.bytes": "2000000"})


def told(
    existing: dict[str, TopicFacts], *, create_topics: bool = True, brokers: int = 3
) -> dict[str, CheckResult]:
    """The findings for one handler that retries in place, by topic."""
    found = check_topics(
        [spec(ordering="key")],
        "g",
        existing,
        brokers=brokers,
        replication_factor=None,
        dlq_retention_s=86_400.0,
        create_topics=create_topics,
    )
    return {each.check.removeprefix("topic "): each for each in found}


def test_without_its_source_nothing_more_is_said_of_a_handler() -> None:
    """What it needs depends on it."""
    (only,) = told({}).values()
    assert only.state == "fail"
    assert "handler bill reads it" in only.detail
    assert only.fix == (
        "create it (on a local Kafka `ackfloor broker topic orders` does), or correct the name"
    )


def test_a_topic_of_results_is_there_or_not() -> None:
    """Nothing more is said of what the handler needs where it is missing."""
    router = Router()

    def bill(value: bytes) -> bytes:
        return value

    router.handler("orders", to="invoices")(bill)

    def found(existing: dict[str, TopicFacts]) -> list[CheckResult]:
        checks = check_topics(
            router.handlers, "g", existing, brokers=3, replication_factor=None,
            dlq_retention_s=86_400.0, create_topics=True,
        )  # fmt: skip
        return list(checks)

    missing = found({"orders": SOURCE})
    assert [(each.check, each.state) for each in missing[1:]] == [("results to invoices", "fail")]
    assert "`ackfloor broker topic invoices`" in missing[1].fix
    there = found({"orders": SOURCE, "invoices": TopicFacts(2, 1)})
    assert there[1] == CheckResult("results to invoices", "ok", "from handler bill, partitions: 2")
    assert len(there) > 2


def test_a_topic_of_results_of_several_handlers_is_told_once() -> None:
    """With all that publish to it, at the first of them."""
    router = Router()

    def bill(value: bytes) -> bytes:
        return value

    for name in ("bill", "refund", "ship"):
        router.handler(f"{name}s", to="invoices", name=name)(bill)

    def found(**more: TopicFacts) -> list[str]:
        existing = {**dict.fromkeys(("bills", "refunds", "ships"), SOURCE), **more}
        checks = check_topics(
            router.handlers, "g", existing, brokers=3, replication_factor=None,
            dlq_retention_s=86_400.0, create_topics=True,
        )  # fmt: skip
        return [each.detail for each in checks if each.check == "results to invoices"]

    (missing,) = found()
    assert missing.startswith("handlers bill, refund and ship publish to it; it does not exist")
    (there,) = found(invoices=TopicFacts(2, 1))
    assert there == "from handlers bill, refund and ship, partitions: 2"


def test_what_is_missing_is_created_or_is_a_failure() -> None:
    """By the setting."""
    assert told({"orders": SOURCE})["orders--g--dlq"].state == "ok"
    refused = told({"orders": SOURCE}, create_topics=False)["orders--g--dlq"]
    assert (refused.state, refused.fix) == ("fail", "ackfloor topics apply MODULE:APP")


def test_what_is_there_is_held_against_the_plan() -> None:
    """As planned, weaker, unusable, unreadable, and left over from an earlier policy."""
    config = plans({"orders": SOURCE}, ordering="key")["orders--g--dlq"].config
    planned = TopicFacts(6, 3, config)
    assert told({"orders": SOURCE, "orders--g--dlq": planned})["orders--g--dlq"] == CheckResult(
        "topic orders--g--dlq", "ok", "partitions: 6, replicas: 3, as planned"
    )
    for changed, state in (
        (replace(planned, partitions=2), "warn"),
        (replace(planned, config={**config, "min.insync.replicas": "4"}), "fail"),
        (replace(planned, config={}), "ok"),
    ):
        found = told({"orders": SOURCE, "orders--g--dlq": changed})["orders--g--dlq"]
        assert found.state == state, found
    unreadable = told({"orders": SOURCE, "orders--g--dlq": TopicFacts(6, 3)})["orders--g--dlq"]
    assert "can't be read" in unreadable.detail
    left = told({"orders": SOURCE, "orders--g--retry-5s": SOURCE})["orders--g--retry-5s"]
    assert "no longer in the policy" in left.detail


def test_a_single_replica_is_worth_a_word_where_there_could_be_more() -> None:
    """On a cluster of one broker there is nothing to do about it."""
    alone = replace(SOURCE, replication_factor=1)
    assert told({"orders": alone})["orders"].state == "warn"
    assert told({"orders": alone}, brokers=1)["orders"].state == "ok"
