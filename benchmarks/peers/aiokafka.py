"""aiokafka: `async for` over the consumer, auto-commit, on uvloop. One record at a time."""

from __future__ import annotations

import uvloop
from aiokafka import AIOKafkaConsumer

from benchmarks.peers.work import Work


async def consume(work: Work) -> None:
    """The loop of its documentation, with a coroutine called for each record."""
    handle = work.async_handler()
    consumer = AIOKafkaConsumer(
        work.topic,
        bootstrap_servers=work.servers,
        group_id=work.group,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    async for message in consumer:
        await handle(message.value)


if __name__ == "__main__":
    uvloop.run(consume(Work()))
