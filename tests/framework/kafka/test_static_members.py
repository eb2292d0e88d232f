"""Static membership: each worker's name; and what a group's refusals of names or settings mean."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from ackfloor import App
from ackfloor.errors import (
    AckfloorError,
    ConfigError,
    InstanceFenced,
    InstanceHeld,
    SourceFailed,
)
from ackfloor.kafka.client.client_errors import (
    FATAL,
    advice,
    ended_for_good,
    refused_setting,
)
from ackfloor.kafka.client.client_options import KafkaOptions, consumer_config
from ackfloor.launch import Launch
from ackfloor.runtime.supervision.exit_codes import Exit


def launch(**options: object) -> Launch:
    """A launch of an app with one handler."""
    app = App(group="billing", **options)  # type: ignore[arg-type]

    @app.handler("orders")
    async def bill(order: bytes) -> None: ...

    return Launch.of(app, flags={})


def test_a_member_has_a_name_only_where_one_is_given() -> None:
    """In either protocol."""
    assert "group.instance.id" not in consumer_config(KafkaOptions(), "g")
    for protocol in ("classic", "consumer"):
        options = KafkaOptions(consumer={"group.protocol": protocol})
        assert consumer_config(options, "g", "a-b-0")["group.instance.id"] == "a-b-0"


def test_a_name_is_made_of_prefix_host_and_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the characters that Kafka takes, the same in every life of the worker."""
    monkeypatch.setattr("ackfloor.launch.gethostname", lambda: "node 7/ä")
    named = launch(static_membership=True, instance_id_prefix="eu.1")
    assert named.instance_id("worker-0") == "eu.1-node-7---worker-0"
    assert launch().instance_id("worker-1") == "ackfloor-node-7---worker-1"


@pytest.mark.parametrize("prefix", ["", "a b", "ä", "x" * 101])
def test_a_prefix_that_kafka_would_refuse_is_refused(prefix: str) -> None:
    """Before anything is started."""
    with pytest.raises(ConfigError) as refused:
        launch(instance_id_prefix=prefix)
    assert refused.value.field == "app.instance_id_prefix"
    assert "1 to 100 letters" in refused.value.fix


def test_broadcast_mode_has_no_members() -> None:
    """The setting would promise what is not there."""
    with pytest.raises(ConfigError) as refused:
        launch(mode="broadcast", static_membership=True)
    assert refused.value.field == "app.static_membership"


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [
        (KafkaError.FENCED_INSTANCE_ID, InstanceFenced, Exit.FENCED),
        (KafkaError.UNRELEASED_INSTANCE_ID, InstanceHeld, Exit.HELD_UP),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, SourceFailed, Exit.FAILURE),
        (KafkaError.GROUP_MAX_SIZE_REACHED, SourceFailed, Exit.FAILURE),
        (KafkaError.UNSUPPORTED_ASSIGNOR, ConfigError, Exit.START),
        (KafkaError.UNSUPPORTED_VERSION, ConfigError, Exit.START),
        (KafkaError.UNKNOWN, SourceFailed, Exit.FAILURE),
    ],
)
def test_the_client_calls_everything_fatal_and_its_text_says_what_it_was(
    code: int, kind: type[AckfloorError], exit_code: Exit
) -> None:
    """Worded as librdkafka does: its own code in front, the broker's text twice."""
    text = KafkaError(code).str()
    config = {
        "group.instance.id": "a-b-0",
        "group.protocol": "consumer",
        "group.remote.assignor": "fair",
    }
    failed = ended_for_good(KafkaError(FATAL, f"Fatal error: {text}: {text}"), config)
    assert type(failed) is kind
    assert failed.exit_code == exit_code
    assert ("'a-b-0'" in str(failed)) == (kind in {InstanceFenced, InstanceHeld})
    if kind is SourceFailed:
        assert str(failed).endswith(advice(KafkaError(code)))


def test_only_what_does_not_pass_by_itself_has_advice() -> None:
    """A strategy that differs from the group's needs somebody; an election does not."""
    assert "partition.assignment.strategy" in advice(
        KafkaError(KafkaError.INCONSISTENT_GROUP_PROTOCOL)
    )
    assert "READ" in advice(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert "app.workers" in advice(KafkaError(KafkaError.GROUP_MAX_SIZE_REACHED))
    assert advice(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)) == ""


@pytest.mark.parametrize(
    ("code", "config", "field", "value"),
    [
        (
            KafkaError.UNSUPPORTED_ASSIGNOR,
            {"group.protocol": "consumer", "group.remote.assignor": "fair"},
            "kafka.consumer.group.remote.assignor",
            "fair",
        ),
        (
            KafkaError.INVALID_SESSION_TIMEOUT,
            {"session.timeout.ms": 1000},
            "kafka.consumer.session.timeout.ms",
            1000,
        ),
        # The client's default may be outside of the broker's bounds.
        (KafkaError.INVALID_SESSION_TIMEOUT, {}, "kafka.consumer.session.timeout.ms", 45_000),
        (
            KafkaError.UNSUPPORTED_VERSION,
            {"group.protocol": "consumer"},
            "kafka.consumer.group.protocol",
            "consumer",
        ),
        (
            KafkaError._UNSUPPORTED_FEATURE,
            {"group.protocol": "Consumer"},
            "kafka.consumer.group.protocol",
            "Consumer",
        ),
        (
            KafkaError.INVALID_TRANSACTION_TIMEOUT,
            {"transaction.timeout.ms": 10**7},
            "kafka.producer.transaction.timeout.ms",
            10**7,
        ),
    ],
)
def test_a_setting_that_only_the_broker_can_judge_is_named_with_its_fix(
    code: int, config: dict[str, object], field: str, value: object
) -> None:
    """Like one that is refused before anything is started."""
    refused = refused_setting(KafkaError(code), config)
    assert refused is not None
    assert (refused.field, refused.value) == (field, value)
    assert refused.exit_code == Exit.START
    assert "leave it out" in refused.fix or "unless" in refused.fix


@pytest.mark.parametrize(
    ("code", "config"),
    [
        (KafkaError.UNSUPPORTED_ASSIGNOR, {"group.protocol": "consumer"}),
        (KafkaError.UNSUPPORTED_VERSION, {}),
        (KafkaError.UNSUPPORTED_VERSION, {"group.protocol": "classic"}),
        (KafkaError.NOT_LEADER_FOR_PARTITION, {"session.timeout.ms": 1000}),
    ],
)
def test_no_setting_is_blamed_for_another_error(code: int, config: dict[str, object]) -> None:
    """One that was not set can't be refused, and an election refuses none."""
    assert refused_setting(KafkaError(code), config) is None
    assert refused_setting(None, config) is None
