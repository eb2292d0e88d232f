"""A web app that has the console below a path, served on a port of this machine."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from ackfloor_monitoring.console import ConsoleApp, ConsoleCluster
from ackfloor_monitoring.console.serving import Place
from tests.framework.kafka.wire import until
from tests.monitoring.console.served_console import NOWHERE, Console

PREFIX = "/ops/kafka"


def cluster(*runs: str) -> ConsoleCluster:
    """One with these runs, whose brokers do not answer; its settings are in the current folder."""
    file = Path("ackfloor.toml")
    file.write_text(f'[kafka]\nbootstrap_servers = "{NOWHERE}"\n')
    return ConsoleCluster(file, runs)


def outer_app(console: ConsoleApp, *, enters: bool = True) -> Starlette:
    """An app of somebody else, which may have forgotten what the console does beside answers."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with console.running():
            yield

    async def home(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("the outer app")

    routes = [Route("/", home), Mount(PREFIX, console)]
    return Starlette(routes=routes, lifespan=lifespan if enters else None)


@contextmanager
def served(app: ASGIApp, root_path: str = "") -> Iterator[Console]:
    """Serve an app, with the settings that uvicorn has unless somebody says otherwise."""
    bound = Place("127.0.0.1", 0).bound()
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", root_path=root_path))
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        until(lambda: server.started)
        yield Console(bound.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(60)
        bound.close()
        assert not thread.is_alive()
