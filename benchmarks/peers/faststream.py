"""FastStream on confluent-kafka: one subscriber, on uvloop, its log off.

A coroutine of bytes needs no conversion, so type application is off where the case is not about it.
`max_workers` only where there is something to wait for: with a no-op, one worker is the fastest.
It goes with acknowledgement before the handler runs, and with nothing else.
"""

from __future__ import annotations

import uvloop
from faststream import FastStream
from faststream.confluent import KafkaBroker, KafkaMessage

from benchmarks.peers.order import Order
from benchmarks.peers.work import COROUTINES, Work


async def undecoded(message: KafkaMessage) -> bytes:
    """The body as it came; the default tries JSON first."""
    return message.body


def main() -> None:
    """Run the app until killed."""
    work = Work()
    typed = work.body == "json"
    broker = KafkaBroker(work.servers, logger=None, apply_types=typed)
    subscriber = broker.subscriber(
        work.topic,
        group_id=work.group,
        auto_offset_reset="earliest",
        no_reply=True,
        decoder=None if typed else undecoded,
        max_workers=COROUTINES if work.body in {"io", "mixed"} else None,
    )
    handle = work.async_handler()

    async def decoded(order: Order) -> None:
        work.done()

    async def raw(value: bytes) -> None:
        await handle(value)

    subscriber(decoded if typed else raw)
    uvloop.run(FastStream(broker, logger=None).run())


if __name__ == "__main__":
    main()
