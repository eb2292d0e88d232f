"""Records that wait in a retry topic of a real broker, and a run that says it has them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from ackfloor.core.records.envelope import Reason, write_headers
from ackfloor.live.retry_requests import PATH, RetryRequests
from ackfloor.live.run_control import PATH as CONFIG_PATH
from ackfloor.live.worker_orders import Answers, Tree
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from tests.compatibility.cases import FOLLOWER
from tests.redrive_stage import Stage

TOKEN = "s3cret" * 8
LONG_AGO_MS = 1_700_000_000_000


class WaitingStage(Stage):
    """In partition 0 of the first retry topic: three records due for long, three in a day.

    The last two are of another cause. In partition 1 one that waits behind another of its key.
    """

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        later_ms = time.time_ns() // 1_000_000 + 86_400_000
        for n in range(6):
            self.park(
                n,
                b"k%d" % n,
                not_before_ms=LONG_AGO_MS + n * 1_000 if n < 3 else later_ms - n * 1_000,
                error_type="shop.Boom" if n < 4 else "shop.Other",
            )
        behind = FOLLOWER._replace(
            origin_topic=self.source, origin_partition=1, origin_offset=9, group=self.group
        )
        self._send(b"k1", write_headers(behind, []), 1)

    def park(self, origin: int, key: bytes, **changes: Any) -> None:
        """Write a record to the first retry topic."""
        parked = self.died._replace(origin_offset=origin, attempt=2, reason=Reason.ERROR, **changes)
        self._send(key, write_headers(parked, [("own", b"1")]), 0)

    def _send(self, key: bytes, headers: Any, partition: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        producer.produce(self.tier, b'{"card": 1}', key, headers=headers, partition=partition)
        assert producer.flush(60) == 0


class WaitingRun:
    """A run of one worker that has some records of partition 0 in memory, all at first."""

    def __init__(self, group: str) -> None:
        self.has = set(range(6))
        self.asked: list[Mapping[str, Any]] = []
        self.metrics = RunMetrics(group, 1)
        for path in (PATH, CONFIG_PATH):
            self.metrics.control(path, RetryRequests(TOKEN, self.take, anywhere=False))
        self.listen = self.metrics.start("127.0.0.1:0")

    def take(self, order: Tree, _wait_s: float) -> Answers:
        """What its worker answers."""
        self.asked.append(order)
        found = self.has & set(order["places"].get("0", ()))
        if order["action"] != "count":
            self.has -= found
        return Answers({0: {"count": len(found)}}, ())


@contextmanager
def run_of(stage: Stage, folder: Path) -> Iterator[WaitingRun]:
    """A run of the stage's group, with its token in a file of the folder."""
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    run = WaitingRun(stage.group)
    yield run
    run.metrics.stop()
