"""Topics that break under a run: each is named with its cause and records until it is mended."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.e2e.stage import Stage, page, ready
from tests.framework.cli.command import Running, ackfloor
from tests.framework.kafka.wire import until

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

MakeStage = Callable[..., Stage]

#: Records that begin with "dead" are dead letters at once; others fail once and wait.
APP = """
from ackfloor import DeadLetter

app = App("GROUP")


@app.handler("TOPIC", concurrency=16, retry=RetryPolicy.fixed("DELAY", 2, jitter=0), breaker=None)
async def bill(delivery: Delivery, value: bytes) -> None:
    if value.startswith(b"dead"):
        raise DeadLetter("hopeless")
    if delivery.attempt == 1:
        raise ValueError("once")
    note(handled, delivery)
"""


class Broken:
    """A run whose topics a test breaks and mends, and what the run says of it."""

    def __init__(self, make_stage: MakeStage, delay: str, **given: str) -> None:
        self.stage = make_stage(APP.replace("DELAY", delay), partitions=1)
        self.tier = f"{self.stage.topic}--{self.stage.group}--retry-{delay}"
        self.dlq = f"{self.stage.topic}--{self.stage.group}--dlq"
        self.admin = AdminClient({"bootstrap.servers": self.stage.servers})
        self.run: Running = self.stage.run(**given)
        self.run.until(ready(self.run), "ready")

    def delete(self, topic: str) -> None:
        """Delete a topic; the broker tells of it no more when this returns."""
        self.admin.delete_topics([topic])[topic].result(60)
        until(lambda: topic not in self.stage.topics())

    def limit(self, topic: str, size: int) -> None:
        """How large a batch of a topic may be."""
        entry = ConfigEntry(
            "max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(60)

    def apply(self) -> None:
        """Do what the fault says."""
        given = {"ACKFLOOR_BOOTSTRAP_SERVERS": self.stage.servers}
        done = ackfloor("topics", "apply", "stage_app:app", "--yes", cwd=self.stage.folder, **given)
        assert done.returncode == 0, done.stderr

    def faults(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The faults in force: (subject, cause) -> all of it."""
        workers = page(self.run, "/state")[1]["workers"].values()
        told = [fault for worker in workers if "faults" in worker for fault in worker["faults"]]
        return {(fault["subject"], fault["cause"]): fault for fault in told}

    def waits(self, topic: str, cause: str) -> int:
        """How many records wait for a fault, -1 where there is none."""
        fault = self.faults().get((topic, cause))
        return -1 if fault is None else int(fault["records"])

    def metric(self, name: str, **labels: str) -> float:
        """One sample, -1 where there is none."""
        address = self.run.logged("metrics and health on ").rpartition(" ")[2]
        with urllib.request.urlopen(f"{address}/metrics", timeout=60) as response:
            text = response.read().decode()
        for line in text.splitlines():
            found = re.fullmatch(rf"ackfloor_{name}\{{(.*)\}} (\S+)", line)
            if found and all(f'{key}="{value}"' in found[1] for key, value in labels.items()):
                return float(found[2])
        return -1.0

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait, and say for how long: on a quiet machine the promises are 2 s and 12 s."""
        began_s = time.monotonic()
        self.run.until(condition, what)
        print(f"{what}: {time.monotonic() - began_s:.1f} s")  # noqa: T201 -- shown with -s


@pytest.mark.parametrize("parking", ["at_least_once", "transactional"])
def test_two_broken_topics_are_both_named_until_each_is_mended(
    make_stage: MakeStage, parking: str
) -> None:
    """One deleted and one made too small: what waits for each, what to do, and when it is over."""
    broken = Broken(make_stage, "1s", ACKFLOOR_APP__PARKING=parking)
    stage, tier, dlq = broken.stage, broken.tier, broken.dlq
    broken.limit(tier, 200)
    broken.delete(dlq)
    stage.produce(30, b"dead")
    stage.produce(25, b"x" * 2_000)

    def both() -> bool:
        return broken.waits(dlq, "missing") == 30 and broken.waits(tier, "too_large") == 25

    broken.until(both, "both are named")
    assert broken.metric("parking_messages", topic=stage.topic) == 55
    assert broken.metric("faults_in_force") == 2
    assert broken.metric("fault_messages", subject=dlq, cause="missing") == 30
    told = {r["message"] for r in page(broken.run, "/readyz")[1]["reasons"]}
    assert any(dlq in text and "`ackfloor topics apply`" in text for text in told)
    assert any(f"raise max.message.bytes of topic {tier}" in text for text in told)
    broken.run.logged(f"{dlq}: ")
    broken.limit(tier, 1_000_000)
    broken.until(lambda: broken.waits(tier, "too_large") < 0, "the tier is mended")
    assert broken.waits(dlq, "missing") == 30
    broken.apply()
    broken.until(ready(broken.run), "the dead letters are mended")
    broken.until(lambda: stage.records() == 25, "all are handled")
    broken.until(lambda: stage.end_of(dlq) >= 30, "all dead letters are written")


def test_a_dead_letter_topic_that_is_deleted_is_named_before_it_is_needed(
    make_stage: MakeStage,
) -> None:
    """Nothing is due for it; made again, it is no fault any more."""
    broken = Broken(make_stage, "1s")
    broken.delete(broken.dlq)
    broken.until(lambda: broken.waits(broken.dlq, "missing") == 0, "it is named")
    broken.apply()
    broken.until(ready(broken.run), "it is there again")


def test_a_deleted_retry_topic_is_named_with_what_it_held(make_stage: MakeStage) -> None:
    """What had been read is handled, at the latest when the run ends; the rest is counted."""
    broken = Broken(make_stage, "10m", ACKFLOOR_APP__TIER_BUFFER="10")
    stage, tier = broken.stage, broken.tier

    def of_tier(name: str) -> Any:
        partitions = page(broken.run, "/state")[1]["workers"]["0"]["partitions"]
        return next((p[name] for p in partitions if p["topic"] == tier), None)

    stage.produce(20)
    # How many it reads before the buffer is full depends on how the parks arrive.
    broken.until(lambda: of_tier("paused"), "it reads no more")
    read = of_tier("open_count")
    assert 10 <= read <= 20
    stage.produce(40)
    broken.until(lambda: of_tier("high_watermark") == 60, "the end is known")
    broken.delete(tier)
    line = broken.run.logged(f"{tier}: the retry topic was deleted")
    assert f"{60 - read} records in it are lost; {read} had been read" in line

    def named() -> bool:
        fault = broken.faults().get((tier, "missing"), {})
        return f"{60 - read} records in it are lost" in fault.get("message", "")

    broken.until(named, "the fault")
    broken.until(
        lambda: broken.metric("lost_to_deletion_total", topic=tier) == 60 - read, "the count"
    )
    assert stage.records() == 0
    broken.apply()
    # The worker starts afresh, and hands out first what nobody else has.
    broken.until(lambda: stage.records() == read, "what had been read is handled")
    broken.until(ready(broken.run), "it is ready again")
