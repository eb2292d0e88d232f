"""A worker of ours that publishes one output for each record.

`python -m benchmarks.outputs.publishing_worker VARIANT PART SERVERS SOURCE TARGET RECORDS`: it
tells when it has settled a tenth of the records and all of them. What is settled is written: an
output that is published at least once is confirmed when its handler returns, and one that is
committed with its record is committed. In the part "failing" a part of the records fails once.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.runtime.loop.garbage_collection import look_less_often
from benchmarks.peers.work import WARM_UP, rest, tell
from benchmarks.worker import settled_of, worker_of

#: Slots of a worker that is to make as many as it can; with few, who waits for confirmations waits
#: most of the time.
SLOTS = 1_000
#: One record of so many fails once, where records fail.
FAILS = 20


def app_of(variant: str, part: str, servers: str, source: str, target: str) -> App:
    """The app, with nothing in its handler but the output."""
    fails = FAILS if part == "failing" else 0
    app = App(
        group=f"outputs-{time.time_ns()}",
        kafka={"bootstrap_servers": servers},
        log_level="error",
        parking="at_least_once" if variant == "at least once" else "transactional",
    )
    options: dict[str, Any] = {
        "name": "bench",
        "concurrency": SLOTS,
        "retry": RetryPolicy.fixed("1s", 3),
        "breaker": None,
    }

    def fail(delivery: Delivery) -> None:
        if fails and delivery.attempt == 1 and delivery.offset % fails == 0:
            raise ValueError("once")

    if variant == "exactly once":

        @app.handler(source, output="exactly_once", **options)
        async def hold(value: bytes, delivery: Delivery) -> None:
            delivery.publish(target, value)
            fail(delivery)

    else:

        @app.handler(source, **options)
        async def write(value: bytes, delivery: Delivery) -> None:
            await app.publish(target, value)
            fail(delivery)

    return app


def main() -> None:
    """Work until killed."""
    variant, part, servers, source, target, records = sys.argv[1:]
    worker = worker_of(app_of(variant, part, servers, source, target))
    look_less_often()
    loop = worker.start()
    warm_up, began = int(records) // WARM_UP, False
    while True:
        loop.turn()
        settled = settled_of(worker, source)
        if settled >= warm_up and not began:
            began = True
            tell("began", records=settled)
        if settled >= int(records):
            tell("ended", records=settled)
            rest()


if __name__ == "__main__":
    main()
