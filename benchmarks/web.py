"""What a worker inside a web service costs its requests: `python -m benchmarks.web`.

uvicorn serves one small page from a process of its own. This process asks for it at a steady rate,
and counts from the moment a request was due: one that waits for another one has waited. Records
come at a steady rate from a third process. The cases take turns.

    python -m benchmarks.web --records 200 --requests 200 --seconds 20 --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

from confluent_kafka import Producer
from pydantic import BaseModel

from ackfloor import App
from ackfloor.testing import KafkaCluster
from benchmarks.topic import make

#: What runs in the process of the web service beside it.
CASES = ("nothing", "worker, nothing to do", "async handler", "def handler")
CONNECTIONS = 32
#: What an async handler waits for, and a `def` handler sleeps: a call of a database.
CALL_S = 0.002
REQUEST = b"GET /ping HTTP/1.1\r\nHost: bench\r\n\r\n"


class Order(BaseModel):
    """A record's value."""

    id: int
    customer: str
    cents: int


def serve(case: str, servers: str, topic: str, port: int) -> None:
    """Be the web service."""
    import uvicorn
    from fastapi import FastAPI

    app = App(f"web-{os.getpid()}", start="latest", kafka={"bootstrap_servers": servers})

    if case == "def handler":

        @app.handler(topic)
        def slow(order: Order) -> None:
            time.sleep(CALL_S)

    else:

        @app.handler(topic)
        async def handle(order: Order) -> None:
            await asyncio.sleep(CALL_S)

    @asynccontextmanager
    async def lifespan(web: FastAPI) -> AsyncIterator[None]:
        if case == "nothing":
            yield
            return
        async with app.running():
            yield

    web = FastAPI(lifespan=lifespan)

    @web.get("/ping")
    async def ping() -> dict[str, int]:
        return {"pong": 1}

    uvicorn.run(web, port=port, log_level="warning", access_log=False)


def produce(servers: str, topic: str, rate: int) -> None:
    """Write records at a steady rate, until this process is ended."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    started_s, number = time.monotonic(), 0
    while True:
        number += 1
        value = Order(id=number, customer="c" * 100, cents=500).model_dump_json().encode()
        producer.produce(topic, value, key=str(number).encode())
        producer.poll(0)
        time.sleep(max(0.0, started_s + number / rate - time.monotonic()))


async def latencies_s(port: int, rate: int, seconds: float) -> list[float]:
    """How long each request took from when it was due."""
    found: list[float] = []
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port))

    async def ask(due_s: float) -> None:
        connection = await free.get()
        reader, writer = connection
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
        found.append(time.monotonic() - due_s)
        free.put_nowait(connection)

    started_s = time.monotonic()
    async with asyncio.TaskGroup() as asked:
        for number in range(int(rate * seconds)):
            due_s = started_s + number / rate
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            asked.create_task(ask(due_s))
    return found


def measured(case: str, servers: str, topic: str, given: argparse.Namespace) -> list[float]:
    """One round of one case."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = [sys.executable, "-m", "benchmarks.web"]
    server = subprocess.Popen([*here, "serve", case, servers, topic, str(port)])
    busy = case.endswith("handler")
    rate = str(given.records)
    records = subprocess.Popen([*here, "produce", servers, topic, rate]) if busy else None
    try:
        _wait_served(port, server)
        # The worker gets its partitions, and everything runs warm.
        asyncio.run(latencies_s(port, given.requests, 6.0))
        return asyncio.run(latencies_s(port, given.requests, given.seconds))
    finally:
        for process in filter(None, (records, server)):
            process.terminate()
            process.wait()


def _wait_served(port: int, server: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + 60.0
    while time.monotonic() < until_s and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the web service did not start")


def main() -> None:
    """Measure every case in turn, and print a table."""
    if sys.argv[1:2] == ["serve"]:
        return serve(*sys.argv[2:5], int(sys.argv[5]))
    if sys.argv[1:2] == ["produce"]:
        return produce(*sys.argv[2:4], int(sys.argv[4]))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web")
    parser.add_argument("--records", type=int, default=200, help="a second")
    parser.add_argument("--requests", type=int, default=200, help="a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rounds: dict[str, list[list[float]]] = {case: [] for case in CASES}
    with KafkaCluster() as cluster:
        topic = "bench-web"
        make(cluster.bootstrap_servers, topic, 4)
        for _ in range(given.rounds):
            for case in CASES:
                rounds[case].append(measured(case, cluster.bootstrap_servers, topic, given))
    print("| beside the requests | p50 ms | p99 ms | p99.9 ms | p99 of the rounds |")
    print("|---|---|---|---|---|")
    for case, found in rounds.items():
        each = [_percentiles(times) for times in found]
        told = [f"{median(column):.1f}" for column in zip(*each, strict=True)]
        print(f"| {case} | {' | '.join(told)} | {', '.join(f'{p99:.1f}' for _, p99, _ in each)} |")
    return None


def _percentiles(times: list[float]) -> tuple[float, float, float]:
    ordered = sorted(times)
    p50, p99, p999 = (ordered[int(len(ordered) * share)] * 1_000 for share in (0.5, 0.99, 0.999))
    return p50, p99, p999


if __name__ == "__main__":
    main()
