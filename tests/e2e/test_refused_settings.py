"""Settings that only the broker can judge: a run that it refuses ends with 3 and names them.

Each was once a worker that was restarted for ever with exit code 1, or one that joined for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.testing import KafkaCluster
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

MakeStage = Callable[..., Stage]

PLAIN = """
app = App("GROUP")


@app.handler("TOPIC")
async def bill(delivery: Delivery) -> None:
    note(handled, delivery)
"""
#: A hundred seconds longer than the broker allows.
LONG = '"transaction.timeout.ms" = 1000000'


def refused(stage: Stage, settings: str) -> str:
    """What a run says that ends with 3 because of these settings."""
    stage.app(PLAIN)
    (stage.folder / "ackfloor.toml").write_text(settings)
    run = stage.run("--workers", "2")
    assert run.wait() == Exit.START
    lines = [line for line in run.lines if "kafka." in line and "ERROR" in line.upper()]
    assert lines, run.lines
    assert not any("restarting" in line for line in run.lines)
    return lines[0]


@pytest.mark.parametrize(
    ("settings", "named", "fix"),
    [
        (
            '[kafka.consumer]\n"group.protocol" = "consumer"\n"group.remote.assignor" = "fair"\n',
            "kafka.consumer.group.remote.assignor='fair'",
            "uniform or range",
        ),
        (
            '[kafka.consumer]\n"session.timeout.ms" = 500\n"heartbeat.interval.ms" = 100\n',
            "kafka.consumer.session.timeout.ms=500",
            "group.min.session.timeout.ms",
        ),
        (
            f'[app]\nparking = "transactional"\n[kafka.producer]\n{LONG}\n',
            "kafka.producer.transaction.timeout.ms=1000000",
            "transaction.max.timeout.ms",
        ),
    ],
)
def test_a_setting_that_the_broker_refuses_is_named(
    make_stage: MakeStage, settings: str, named: str, fix: str
) -> None:
    """With its value and the fix."""
    said = refused(make_stage("", partitions=1), settings)
    assert named in said
    assert fix in said


@pytest.fixture(scope="module")
def old_broker() -> Iterator[str]:
    """A broker without KIP-848."""
    config = {"group.coordinator.rebalance.protocols": "classic"}
    with KafkaCluster(config=config) as cluster:
        yield cluster.bootstrap_servers


def test_a_group_protocol_that_the_broker_does_not_have_is_named(
    tmp_path_factory: pytest.TempPathFactory, old_broker: str
) -> None:
    """As with brokers from before Kafka 4.0."""
    stage = Stage(tmp_path_factory.mktemp("stage"), old_broker, 1, 45)
    try:
        said = refused(stage, '[kafka.consumer]\n"group.protocol" = "consumer"\n')
        assert "kafka.consumer.group.protocol='consumer'" in said
        assert "classic" in said
    finally:
        stage.close()
