"""Static membership: each worker's name, and what the client's errors about names mean."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from ackfloor import App
from ackfloor.errors import ConfigError, InstanceFenced, InstanceHeld, SourceFailed
from ackfloor.kafka.client.client_errors import FATAL, advice, ended_for_good
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
        (KafkaError.UNSUPPORTED_ASSIGNOR, SourceFailed, Exit.FAILURE),
    ],
)
def test_the_client_calls_everything_fatal_and_its_text_says_what_it_was(
    code: int, kind: type[SourceFailed], exit_code: Exit
) -> None:
    """Worded as librdkafka does: its own code in front, the broker's text twice."""
    text = KafkaError(code).str()
    failed = ended_for_good(KafkaError(FATAL, f"Fatal error: {text}: {text}"), "a-b-0")
    assert type(failed) is kind
    assert failed.exit_code == exit_code
    assert ("'a-b-0'" in str(failed)) == (kind is not SourceFailed)
    unknown = code == KafkaError.UNSUPPORTED_ASSIGNOR
    assert ("set kafka.consumer.group.remote.assignor" in str(failed)) == unknown


def test_only_what_does_not_pass_by_itself_has_advice() -> None:
    """A strategy that differs from the group's needs somebody; an election does not."""
    assert "partition.assignment.strategy" in advice(
        KafkaError(KafkaError.INCONSISTENT_GROUP_PROTOCOL)
    )
    assert advice(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)) == ""
