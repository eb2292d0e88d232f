"""A watch on a real broker and a real Spark: what it counts, what it finds, and what it knows."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ackfloor_monitoring.metrics.watch_metrics import WatchMetrics
from ackfloor_monitoring.serving.http_server import PageServer
from ackfloor_monitoring.spark.watch.detection import Rules
from ackfloor_monitoring.spark.watch.stream import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.monitoring.spark.scene import Scene

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark")]

RULES = Rules(look_back_s=3_600, window_s=300, minimum=10)


@dataclass
class Served:
    """What is served of a watch."""

    address: str

    def values(self, name: str, **labels: str) -> list[float]:
        """The samples of a metric with these labels."""
        with urlopen(f"http://{self.address}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"ackfloor_spark_{name}" and labels.items() <= sample.labels.items()
        ]


@contextmanager
def watching(spark: SparkSession, scene: Scene) -> Iterator[Served]:
    """A watch on a thread, served; it is stopped at the end, and must end in order."""
    metrics = WatchMetrics(time.time)
    server = PageServer({"/metrics": metrics.page()})
    work = Watch(spark, scene.plan(once=False, every_s=0.2), RULES, metrics, scene.told.append)
    try:
        with ThreadPoolExecutor(1) as threads:
            scene.run = threads.submit(work.run)
            try:
                yield Served(server.start("127.0.0.1:0"))
            finally:
                work.stop()
            scene.run.result(120)
    finally:
        server.stop()


def fail(scene: Scene, ending: str, fingerprint: str, ago_s: list[float]) -> None:
    """Failures of handler `bill`, each so long ago."""
    for number, ago in enumerate(ago_s):
        headers = {
            "handler": "bill", "attempt": "1", "reason": "error", "error.type": "shop.Boom",
            "error.fingerprint": fingerprint, "failed_at": str(int((time.time() - ago) * 1000)),
        }  # fmt: skip
        scene.producer.produce(
            scene.topic(ending), b"v", b"k", number % 2,
            headers=[(f"ackfloor.{name}", value.encode()) for name, value in headers.items()],
        )  # fmt: skip
    assert scene.producer.flush(60) == 0


def test_what_was_there_is_known_and_what_comes_is_judged(
    spark: SparkSession, scene: Scene
) -> None:
    """Two waves: the first is history, of the second one fingerprint is new and a surge. The
    metrics count both and say that nothing is left behind. After a restart it is known."""
    scene.create("retry-5s", "dlq")
    fail(scene, "retry-5s", "old", [60.0 * minutes for minutes in range(30, 55)])
    fail(scene, "dlq", "old", [1_500.0] * 5)
    with watching(spark, scene) as served:
        scene.until(lambda: sum(served.values("failures_total")) == 30)
        assert served.values("new_fingerprints_total") == [0]
        fail(scene, "dlq", "now", [0.0] * 15)
        fail(scene, "retry-5s", "old", [0.0])
        scene.until(lambda: sum(served.values("failures_total")) == 46)
        scene.until(lambda: served.values("records_total") == [46])
        scene.until(lambda: served.values("surging_fingerprints") == [1])
        named = {"group": scene.group, "handler": "bill"}
        assert served.values("failures_total", **named, stage="dlq", reason="error") == [20]
        assert served.values("failures_total", **named, stage="retry", reason="error") == [26]
        assert served.values("new_fingerprints_total", **named) == [1]
        assert served.values("surges_total", **named) == [1]
        # Told after what they tell of, and two looks may have a batch between them.
        scene.until(lambda: served.values("lag_offsets", topic=scene.topic("dlq")) == [0])
        scene.until(
            lambda: served.values("batch_duration_seconds_count") == served.values("batches_total")
        )
        assert served.values("errors_total") == []
    new, surge = (line for line in scene.told if "fingerprint=" in line)
    named_so = rf"group={scene.group} handler=bill fingerprint=now error=shop.Boom sample="
    sample = rf"{scene.topic('dlq')}/[01]/\d+$"
    assert re.fullmatch(rf"NEW FINGERPRINT, none in 1h: {named_so}{sample}", new)
    assert re.fullmatch(rf"SURGE, 1\d failures in 5m, 0.0 are usual: {named_so}{sample}", surge)

    with watching(spark, scene) as served:
        fail(scene, "dlq", "now", [0.0])
        scene.until(lambda: sum(served.values("failures_total")) == 1)
        assert served.values("new_fingerprints_total") == [0]
