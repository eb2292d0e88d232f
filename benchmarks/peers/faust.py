"""faust-streaming: one agent over the stream, raw values, on uvloop.

Where there is something to wait for, the agent's `concurrency` is raised; faust then commits what
the slowest of them has done.
"""

from __future__ import annotations

import sys
import tempfile

import faust
import uvloop
from faust.types import StreamT

from benchmarks.peers.work import COROUTINES, Work


def main() -> None:
    """Run a worker until killed."""
    uvloop.install()
    work = Work()
    handle = work.async_handler()
    app = faust.App(
        work.group,
        broker=f"kafka://{work.servers}",
        value_serializer="raw",
        datadir=tempfile.mkdtemp(),
        web_enabled=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
    )
    slots = COROUTINES if work.body in {"io", "mixed"} else 1

    @app.agent(app.topic(work.topic, value_type=bytes), concurrency=slots)
    async def consume(stream: StreamT[bytes]) -> None:
        async for value in stream:
            await handle(value)

    sys.argv = [sys.argv[0], "worker", "--without-web", "-l", "error"]
    app.main()


if __name__ == "__main__":
    main()
