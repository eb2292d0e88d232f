"""pyrallel-consumer: its async engine, 1,000 in flight.

What its process engine has handled, nobody outside is told: it takes no part in the CPU case.
"""

from __future__ import annotations

import asyncio

import uvloop
from pyrallel_consumer.config import KafkaConfig
from pyrallel_consumer.consumer import PyrallelConsumer
from pyrallel_consumer.dto import ExecutionMode, OrderingMode, WorkItem

from benchmarks.peers.work import COROUTINES, Work


def configured(work: Work) -> KafkaConfig:
    """Its settings for a case; what is not named is as by default."""
    config = KafkaConfig(BOOTSTRAP_SERVERS=work.servers, CONSUMER_GROUP=work.group)
    consumer = config.parallel_consumer
    consumer.ordering_mode = (
        OrderingMode.KEY_HASH if work.order == "key" else OrderingMode.UNORDERED
    )
    consumer.execution.mode = ExecutionMode.ASYNC
    consumer.execution.max_in_flight = COROUTINES
    return config


async def consume(work: Work) -> None:
    """Run it until killed."""
    handle = work.async_handler()

    async def worker(item: WorkItem) -> None:
        await handle(item.payload)

    consumer = PyrallelConsumer(configured(work), worker, work.topic)
    await consumer.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(consume(Work()))
