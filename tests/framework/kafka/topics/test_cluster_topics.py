"""Topics of ours: planned by rule, created once, never changed, and found again when left over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ackfloor import App, To
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.state.worker_state import Route
from ackfloor.declare.handler import HandlerSpec, Router
from ackfloor.errors import ConfigError, KafkaUnreachable, TopicsMissing
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.topics.cluster_topics import Cluster, check_complete, routes_of
from ackfloor.kafka.topics.topic_requirements import Action, TopicFacts, TopicPlan, plan_topics
from ackfloor.launch import Launch
from ackfloor.runtime.loop.worker_assembly import Topology
from ackfloor.settings import Settings, sections_of
from tests.framework.kafka.wire import fresh, make_topic, options
from tests.structure.sources import REPOSITORY

SOURCE = TopicFacts(6, 3, {"max.message.bytes": "2000000"})


def spec(topic: str = "orders", **given: Any) -> HandlerSpec:
    """A handler of one topic."""
    router = Router()

    async def bill(value: bytes) -> None:
        pass

    router.handler(topic, **given)(bill)
    return router.handlers[0]


def plans(existing: dict[str, TopicFacts], **given: Any) -> dict[str, TopicPlan]:
    """The plan of one handler of group g, by topic."""
    made = plan_topics(
        [spec(**given)], "g", existing, replication_factor=None, dlq_retention_s=86_400.0
    )
    return {plan.topic: plan for plan in made}


def test_a_fresh_group_needs_every_tier_and_a_dlq() -> None:
    """The default policy makes five tiers, with the source's partitions and replicas."""
    made = plans({"orders": SOURCE})
    assert list(made) == [
        "orders--g--retry-1s",
        "orders--g--retry-5s",
        "orders--g--retry-25s",
        "orders--g--retry-125s",
        "orders--g--retry-10m",
        "orders--g--dlq",
    ]
    for plan in made.values():
        assert (plan.action, plan.partitions, plan.replication_factor) == (Action.CREATE, 6, 3)
        assert plan.config["cleanup.policy"] == "delete"
        assert plan.config["max.message.bytes"] == str(2_000_000 + 65_536)
        assert plan.config["min.insync.replicas"] == "2"


def test_a_handler_that_retries_in_place_needs_a_dlq_alone() -> None:
    """Tiers of an earlier life are left over, and drained."""
    made = plans({"orders": SOURCE, "orders--g--retry-5s": SOURCE}, ordering="key")
    assert {name: plan.action for name, plan in made.items()} == {
        "orders--g--dlq": Action.CREATE,
        "orders--g--retry-5s": Action.LEFTOVER,
    }
    routes = routes_of(made.values(), [spec(ordering="key")])
    assert routes["orders--g--retry-5s"] == Route("bill", "orders", 5.0)


def test_all_tiers_of_a_handler_that_quarantines_are_read_with_its_sources() -> None:
    """Also one of an earlier policy, and one that holds its records for a moment only."""
    own = {"ordering": "key", "on_failure": "quarantine", "retry": RetryPolicy.fixed("100ms", 3)}
    made = plans({"orders": SOURCE, "orders--g--retry-200ms": SOURCE}, **own)
    topology = Topology(routes_of(made.values(), [spec(**own)]), {})
    expected = dict.fromkeys(("orders--g--retry-100ms", "orders--g--retry-200ms"), "orders")
    assert topology.low_priority_topics() == topology.quarantined_topics() == expected
    made = plans({"orders": SOURCE}, retry=RetryPolicy.fixed("100ms", 3))
    topology = Topology(routes_of(made.values(), [spec()]), {})
    assert topology.low_priority_topics() == topology.quarantined_topics() == {}


def test_retention_outlasts_the_schedule_twice() -> None:
    """A record that waits must not expire before its wait is over."""
    policy = RetryPolicy.fixed("1d", max_redeliveries=20, jitter=0)
    made = plans({"orders": SOURCE}, retry=policy)
    assert int(made["orders--g--retry-1d"].config["retention.ms"]) == 2 * 20 * 86_400_000
    assert int(made["orders--g--dlq"].config["retention.ms"]) == 86_400_000


def test_one_replica_needs_one_in_sync() -> None:
    """min.insync.replicas is max(1, replicas - 1)."""
    made = plans({"orders": replace(SOURCE, replication_factor=1)})
    assert made["orders--g--dlq"].config["min.insync.replicas"] == "1"


def test_a_weaker_topic_is_named_and_left_alone() -> None:
    """Each way in which an existing topic falls short is a note with its consequence."""
    weak = TopicFacts(
        2, 1, {"cleanup.policy": "compact", "retention.ms": "1000", "max.message.bytes": "100"}
    )
    plan = plans({"orders": SOURCE, "orders--g--retry-1s": weak})["orders--g--retry-1s"]
    assert plan.action is Action.DRIFT
    assert plan.partitions == 2
    text = " ".join(plan.notes)
    assert "2 partitions" in text
    assert "cleanup.policy=compact" in text
    assert "retention.ms keeps 1s" in text
    assert "max.message.bytes=100" in text


@pytest.mark.parametrize(
    ("config", "replicas", "note"),
    [
        ({"retention.bytes": "1000"}, 3, "retention.bytes=1000 can remove waiting records"),
        ({"min.insync.replicas": "1"}, 3, "a confirmed park can be lost"),
        ({"min.insync.replicas": "2"}, 1, "nothing can be parked"),
    ],
)
def test_a_topic_that_could_lose_or_refuse_parks_is_named(
    config: dict[str, str], replicas: int, note: str
) -> None:
    """Size limits and in-sync replicas decide whether a confirmed park is one."""
    found = TopicFacts(6, replicas, {"max.message.bytes": "9000000", **config})
    [told] = plans({"orders": SOURCE, "orders--g--dlq": found})["orders--g--dlq"].notes
    assert note in told


def test_settings_that_can_not_be_read_are_not_called_weak() -> None:
    """Without the right to describe configurations only partitions can be compared."""
    made = plans({"orders": SOURCE, "orders--g--dlq": TopicFacts(6, 3, {})})
    assert (made["orders--g--dlq"].action, made["orders--g--dlq"].notes) == (Action.OK, ())


def test_a_sufficient_topic_is_ok() -> None:
    """Unlimited retention and room are as good as planned."""
    good = TopicFacts(6, 3, {"retention.ms": "-1", "max.message.bytes": "9000000"})
    plan = plans({"orders": SOURCE, "orders--g--retry-1s": good})["orders--g--retry-1s"]
    assert (plan.action, plan.notes) == (Action.OK, ())


def test_a_tier_that_left_the_policy_is_still_consumed() -> None:
    """Leftover tiers are planned as such and routed, other groups' tiers are not."""
    found = {
        "orders": SOURCE,
        "orders--g--retry-7m": SOURCE,
        "orders--other--retry-9m": SOURCE,
        "orders--g--dispositions": SOURCE,
    }
    made = plans(found)
    assert made["orders--g--retry-7m"].action is Action.LEFTOVER
    assert "orders--other--retry-9m" not in made
    routes = routes_of(made.values(), [spec()])
    assert routes["orders--g--retry-7m"] == Route("bill", "orders", 420.0)
    assert routes["orders"] == Route("bill", "orders")
    assert "orders--g--dlq" not in routes


def test_a_missing_source_is_refused() -> None:
    """Source topics are never created."""
    with pytest.raises(TopicsMissing, match=r"'orders'.*never created") as refused:
        plans({})
    page = (REPOSITORY / "docs/guide/troubleshooting.md").read_text()
    assert f"error: {refused.value}\n" in page


def test_all_missing_sources_are_named_at_once() -> None:
    """Who creates one and starts again would learn of the next only then."""
    specs = [spec(), spec("refunds"), spec("invoices")]
    with pytest.raises(TopicsMissing) as refused:
        plan_topics(
            specs, "g", {"refunds": SOURCE}, replication_factor=None, dlq_retention_s=86_400.0
        )
    told = str(refused.value)
    assert told.startswith("handlers.bill.topics='orders': the topic does not exist")
    assert "nor does 'invoices' of handler bill" in told
    assert "refunds" not in told


def test_a_missing_topic_of_results_is_refused() -> None:
    """Beside the sources that are missing; a handler without it would dead-letter everything."""

    def bill(value: bytes) -> bytes:
        return value

    router = Router()
    router.handler("orders", to="invoices")(bill)
    router.handler("returns", to=To("refunds"), name="refund")(bill)

    def asked(*existing: str) -> None:
        facts = dict.fromkeys(existing, SOURCE)
        plan_topics(router.handlers, "g", facts, replication_factor=None, dlq_retention_s=86_400.0)

    with pytest.raises(TopicsMissing) as refused:
        asked("orders", "returns", "refunds")
    assert str(refused.value) == (
        "handlers.bill.to='invoices': the topic does not exist (or this user may not see it), and "
        "topics of results are never created; create it (on a local Kafka `ackfloor broker topic "
        "invoices` does), or correct the name"
    )
    with pytest.raises(TopicsMissing) as refused:
        asked("orders", "refunds")
    told = str(refused.value)
    assert told.startswith("handlers.bill.to='invoices': the topic does not exist")
    assert "nor does 'returns' of handler refund" in told
    assert "source topics and topics of results are never created" in told
    assert told.endswith(
        "create them (on a local Kafka `ackfloor broker topic` does), or correct the names"
    )
    asked("orders", "returns", "refunds", "invoices")


def test_a_missing_topic_of_several_handlers_is_named_once() -> None:
    """With all that publish to it: each of them needs it."""

    def bill(value: bytes) -> bytes:
        return value

    router = Router()
    for name in ("bill", "refund", "ship"):
        router.handler(f"{name}s", to="invoices", name=name)(bill)
    router.handler("parcels", to="labels", name="pack")(bill)
    router.handler("letters", to="labels", name="stamp")(bill)
    sources = ("bills", "refunds", "ships", "parcels", "letters")

    def told(*existing: str) -> str:
        facts = dict.fromkeys([*sources, *existing], SOURCE)
        with pytest.raises(TopicsMissing) as refused:
            plan_topics(
                router.handlers, "g", facts, replication_factor=None, dlq_retention_s=86_400.0
            )
        return str(refused.value)

    assert told("labels") == (
        "handlers.bill.to='invoices': the topic, also of handlers refund and ship, does not exist "
        "(or this user may not see it), and topics of results are never created; create it (on a "
        "local Kafka `ackfloor broker topic invoices` does), or correct the name"
    )
    assert told() == (
        "handlers.bill.to='invoices': the topic, also of handlers refund and ship, does not exist "
        "(or this user may not see it), nor does 'labels' of handlers pack and stamp, and topics "
        "of results are never created; create them (on a local Kafka `ackfloor broker topic` "
        "does), or correct the names"
    )


def test_missing_topics_are_refused_where_creation_is_off() -> None:
    """The refusal names the topics and the command that makes them."""
    made = plans({"orders": SOURCE})
    with pytest.raises(TopicsMissing, match=r"orders--g--dlq.*topics apply"):
        check_complete(made.values())
    check_complete(replace(plan, action=Action.OK) for plan in made.values())


def test_nobody_answers() -> None:
    """A broker that is away is an error only where a time was given; it names servers and fix."""
    cluster = Cluster(KafkaOptions(admin={"bootstrap.servers": "127.0.0.1:1"}))
    with pytest.raises(KafkaUnreachable, match=r"127\.0\.0\.1:1.*ACKFLOOR_BOOTSTRAP_SERVERS"):
        cluster.wait(0.1)


@pytest.mark.kafka
def test_topics_are_created_once(bootstrap_servers: str) -> None:
    """What is missing is created as planned; the second plan finds everything in order."""
    source = make_topic(bootstrap_servers, 3)
    group = fresh("g")
    cluster = Cluster(options(bootstrap_servers))
    cluster.wait(60)
    handler = spec(source, retry=RetryPolicy.fixed("5s"))

    def plan() -> tuple[TopicPlan, ...]:
        return cluster.plan([handler], group, replication_factor=None, dlq_retention_s=86_400.0)

    assert sorted(cluster.create(plan())) == [
        f"{source}--{group}--dlq",
        f"{source}--{group}--retry-5s",
    ]
    again = plan()
    assert [p.action for p in again] == [Action.OK, Action.OK]
    assert [p.partitions for p in again] == [3, 3]
    assert cluster.create(again) == []
    assert cluster.partition_counts([source, "no-such-topic"]) == {source: 3}


@pytest.mark.kafka
def test_two_creators_do_not_trip_each_other(bootstrap_servers: str) -> None:
    """A topic that appeared between plan and creation is as good as created."""
    source, group = make_topic(bootstrap_servers), fresh("g")
    cluster = Cluster(options(bootstrap_servers))
    handler = spec(source, retry=RetryPolicy.fixed("5s"))
    made = cluster.plan([handler], group, replication_factor=None, dlq_retention_s=86_400.0)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(made[0].topic, 1, 1)])[made[0].topic].result(60)
    assert cluster.create(made) == [made[1].topic]


@pytest.mark.kafka
def test_a_worker_asks_again_for_topics_that_its_broker_does_not_know_yet(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after their creation a broker may say that they are missing; that ends no run."""
    topic, real, missing = make_topic(bootstrap_servers), Cluster.plan, [1]
    app = App("late", kafka={"bootstrap_servers": bootstrap_servers})

    @app.handler(topic)
    async def handle(_value: bytes) -> None: ...

    settings = Settings.from_code(sections_of(app.group, app.options))
    launch = Launch(app, settings, app.handlers)
    launch.prepare_topics()

    def plan(self: Cluster, *given: Any, **named: Any) -> Any:
        if missing:
            missing.pop()
            raise ConfigError("handlers.handle.topics", topic, "the topic does not exist", "")
        return real(self, *given, **named)

    monkeypatch.setattr(Cluster, "plan", plan)
    topology = launch.topology()
    assert topic in topology.routes
    assert topology.sources == {topic: 1}
    assert topic not in topology.partitions
    missing.append(1)
    with pytest.raises(ConfigError, match="does not exist"):
        launch.topology(lambda: True)
