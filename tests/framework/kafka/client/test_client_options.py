"""Client properties: what is ours is kept, what would break a promise is refused."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ackfloor.errors import ConfigError
from ackfloor.kafka.client.client_options import (
    KafkaOptions,
    admin_config,
    check_drain,
    consumer_config,
    incremental,
    make_client,
    producer_config,
    reader_config,
    transactional_config,
)
from ackfloor.kafka.consume.source import KafkaSource

TLS = {
    "bootstrap.servers": "b:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "u",
    "sasl.password": "p",
    "ssl.ca.location": "/ca.pem",
}


def test_security_reaches_every_client() -> None:
    """SASL and TLS properties are the same for consumer, producer and admin."""
    options = KafkaOptions(TLS, TLS, TLS)
    for config in (consumer_config(options, "g"), producer_config(options), admin_config(options)):
        assert TLS.items() <= config.items()


def test_guarantees_have_their_properties() -> None:
    """Nobody commits for us, nothing resets, parks need all replicas."""
    consumer = consumer_config(KafkaOptions(), "g")
    assert consumer["group.id"] == "g"
    assert consumer["enable.auto.commit"] is False
    assert consumer["enable.auto.offset.store"] is False
    assert consumer["auto.offset.reset"] == "error"
    assert consumer["allow.auto.create.topics"] is False
    assert consumer["isolation.level"] == "read_committed"
    producer = producer_config(KafkaOptions())
    assert (producer["acks"], producer["enable.idempotence"]) == ("all", True)
    assert producer["message.max.bytes"] > 50_000_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.auto.commit", True),
        ("enable.auto.commit", "true"),
        ("enable.auto.offset.store", True),
        ("auto.offset.reset", "latest"),
        ("allow.auto.create.topics", "true"),
        ("isolation.level", "read_uncommitted"),
        ("enable.partition.eof", True),
        ("group.id", "other"),
        ("on_commit", print),
        ("group.instance.id", "worker-1"),
        ("default.topic.config", {"auto.offset.reset": "latest"}),
        ("auto.commit.enable", "true"),
        ("partition.assignment.strategy", "range,cooperative-sticky"),
        ("partition.assignment.strategy", "sticky"),
    ],
)
def test_dangerous_consumer_properties_are_refused(name: str, value: Any) -> None:
    """The refusal names property, value and fix."""
    with pytest.raises(ConfigError) as refused:
        consumer_config(KafkaOptions(consumer={name: value}), "g")
    assert refused.value.field == f"kafka.consumer.{name}"
    assert refused.value.value == value
    assert refused.value.fix


@pytest.mark.parametrize(
    ("strategy", "why"),
    [("range,cooperative-sticky", "can't be mixed"), ("rnge", "no such strategy")],
)
def test_a_strategy_is_one_of_three(strategy: str, why: str) -> None:
    """Two of them and a misspelt one are told apart."""
    with pytest.raises(ConfigError, match=why) as refused:
        consumer_config(KafkaOptions(consumer={"partition.assignment.strategy": strategy}), "g")
    assert refused.value.fix == "set one of cooperative-sticky, range, roundrobin"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "1"),
        ("acks", 0),
        ("request.required.acks", "1"),
        ("enable.idempotence", False),
        ("transactional.id", "t"),
        ("delivery.report.only.error", True),
        ("on_delivery", print),
    ],
)
def test_dangerous_producer_properties_are_refused(name: str, value: Any) -> None:
    """A park that is not confirmed by all replicas is not a park."""
    with pytest.raises(ConfigError) as refused:
        producer_config(KafkaOptions(producer={name: value}))
    assert refused.value.field == f"kafka.producer.{name}"


@pytest.mark.parametrize(
    ("role", "given"),
    [
        ("consumer", {"enable.auto.commit": False, "auto.offset.reset": "error"}),
        ("consumer", {"fetch.min.bytes": 10, "queued.max.messages.kbytes": 1024}),
        ("producer", {"acks": -1, "enable.idempotence": "true", "linger.ms": 50}),
        ("producer", {"acks": "all"}),
    ],
)
def test_harmless_properties_pass(role: str, given: dict[str, Any]) -> None:
    """Any other property is passed on, ours may be repeated with their own value."""
    if role == "consumer":
        made = consumer_config(KafkaOptions(consumer=given), "g")
    else:
        made = producer_config(KafkaOptions(producer=given))
    assert {name: made[name] for name in given if name not in ("acks", "enable.idempotence")} == {
        name: value for name, value in given.items() if name not in ("acks", "enable.idempotence")
    }


def test_one_property_under_two_names_is_refused() -> None:
    """An alias and its name can't both be set."""
    given = {"delivery.timeout.ms": 1, "message.timeout.ms": 2}
    with pytest.raises(ConfigError, match="set it once"):
        producer_config(KafkaOptions(producer=given))


@pytest.mark.parametrize(
    "name", ["session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"]
)
def test_the_new_protocol_refuses_what_its_broker_decides(name: str) -> None:
    """KIP-848 takes session, heartbeat and assignor out of the client's hands."""
    given = {"group.protocol": "consumer", name: "1"}
    with pytest.raises(ConfigError, match=r"group\.protocol=classic"):
        consumer_config(KafkaOptions(consumer=given), "g")
    made = consumer_config(KafkaOptions(consumer={"group.protocol": "consumer"}), "g")
    assert "partition.assignment.strategy" not in made


@pytest.mark.parametrize(
    ("given", "by_one"),
    [
        ({}, True),
        ({"group.protocol": "consumer"}, True),
        ({"partition.assignment.strategy": "range"}, False),
        ({"partition.assignment.strategy": "roundrobin"}, False),
    ],
)
def test_the_strategy_decides_how_partitions_come(given: dict[str, str], by_one: bool) -> None:
    """One by one under the cooperative and the broker's protocol, all at once otherwise."""
    assert incremental(consumer_config(KafkaOptions(consumer=given), "g")) is by_one


def test_a_drain_stays_within_a_third_of_the_poll_interval() -> None:
    """A rebalance callback that drains longer would get the worker expelled."""
    options = KafkaOptions(consumer={"max.poll.interval.ms": 30_000})
    KafkaSource(options, "g", drain_s=10)
    with pytest.raises(ConfigError, match=r"max\.poll\.interval\.ms=30000.*36000") as refused:
        KafkaSource(options, "g", drain_s=12)
    assert refused.value.field == "app.drain_timeout"
    assert KafkaSource(KafkaOptions(), "g", drain_s=100).poll_limit_s() == 300.0


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("fetch.min.byte", "1", "1"),
        ("fetch.min.bytes", "many", "many"),
        ("ssl.key.pem", "-----BEGIN", "***"),
    ],
)
def test_what_librdkafka_refuses_is_named(name: str, value: str, shown: str) -> None:
    """A misspelt property or an impossible value is a ConfigError, and shows no secret."""
    given = {"security.protocol": "ssl", name: value}
    with pytest.raises(ConfigError) as refused:
        make_client(Consumer, "consumer", consumer_config(KafkaOptions(consumer=given), "g"))
    assert (refused.value.field, refused.value.value) == (f"kafka.consumer.{name}", shown)
    assert "BEGIN" not in str(refused.value)


def test_a_login_without_a_mechanism_names_the_setting() -> None:
    """Not what librdkafka would have to be compiled with."""
    config = {"security.protocol": "sasl_ssl", "sasl.username": "u", "sasl.password": "p"}
    with pytest.raises(ConfigError, match=r"^kafka\.sasl_mechanism='': not set: .*SCRAM-SHA-512"):
        make_client(Producer, "producer", config)


@pytest.mark.parametrize("value", ["5m", "", "1.5", None, True])
def test_a_number_that_is_calculated_with_is_named_when_it_is_none(value: object) -> None:
    """A time with a unit, as our own settings have it, is refused and not a traceback."""
    with pytest.raises(ConfigError, match=r"kafka\.consumer\.max\.poll\.interval\.ms="):
        check_drain({"max.poll.interval.ms": value}, 10.0)
    for name in ("delivery.timeout.ms", "transaction.timeout.ms"):
        with pytest.raises(ConfigError, match=rf"kafka\.producer\.{name}="):
            transactional_config(KafkaOptions(producer={name: value}), "id")


def test_options_do_not_show_their_secrets() -> None:
    """Whoever logs the options by accident logs no password."""
    assert "sasl" not in repr(KafkaOptions(TLS, TLS, TLS))


def test_a_client_that_has_read_enough_ahead_rests_for_milliseconds() -> None:
    """By its own default it is a second, in which a quick worker runs dry; who says so, has it."""
    config = consumer_config(KafkaOptions(), "g")
    assert 1 <= config["fetch.queue.backoff.ms"] <= 50
    assert reader_config(config)["fetch.queue.backoff.ms"] == config["fetch.queue.backoff.ms"]
    own = KafkaOptions(consumer={"fetch.queue.backoff.ms": 1_000})
    assert consumer_config(own, "g")["fetch.queue.backoff.ms"] == 1_000


def test_the_reader_of_retry_topics_joins_no_group_and_reads_less_ahead() -> None:
    """Its member's name would expel the member; what somebody has set holds for both."""
    member = consumer_config(KafkaOptions(consumer={"bootstrap.servers": "x:1"}), "g", "one")
    reader = reader_config(member)
    assert member["group.instance.id"] == "one"
    assert "group.instance.id" not in reader
    assert reader["queued.max.messages.kbytes"] * 4 == member["queued.max.messages.kbytes"]
    assert reader["fetch.wait.max.ms"] > member["fetch.wait.max.ms"]
    assert reader["reconnect.backoff.max.ms"] == 1_000
    given = {
        "queued.max.messages.kbytes": "0x100",
        "fetch.queue.backoff.ms": 500,
        "fetch.wait.max.ms": 50,
    }
    reader = reader_config(consumer_config(KafkaOptions(consumer=given), "g"))
    assert given.items() <= reader.items()
    # The client refuses a longest wait that is shorter than the first one.
    slow = KafkaOptions(consumer={"reconnect.backoff.ms": 2_000})
    make_client(Consumer, "consumer", reader_config(consumer_config(slow, "g"))).close()
