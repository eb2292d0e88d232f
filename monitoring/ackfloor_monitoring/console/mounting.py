"""Mounting: the console as a part of a web app of one's own, or on a server of one's own.

A web app that mounts another one does not run its lifespan. So what the console does beside its
answers (it follows dead-letter topics, and asks runs and brokers) happens in a block of its own,
`running`, which the lifespan of the outer app enters; a server that has the console alone enters it
by the lifespan of the console.

Who is on the outer app's address is not the console's to know, so it lets nobody in by itself: it
has a token file, or it asks the outer app who somebody is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ackfloor import SettingError
from ackfloor_monitoring.console.access.gate import Gate, Who
from ackfloor_monitoring.console.mounted_arguments import (
    ConsoleCluster,
    checked_clusters,
    checked_files,
    checked_indexing,
    gate_of,
)
from ackfloor_monitoring.console.opened_clusters import followed, opened_clusters
from ackfloor_monitoring.console.rendering import rendered
from ackfloor_monitoring.console.web import web_app, with_headers

#: Seconds that a page waits for news in one answer: a server that ends waits for it.
EVENTS_S: Final = 10.0


class ConsoleApp:
    """An ASGI app with the pages of the console; made by `console_app`."""

    def __init__(
        self,
        clusters: tuple[ConsoleCluster, ...],
        gate: Gate,
        run_token_files: Mapping[str, Path | str],
        index_folder: Path | str | None,
        index_rows: int,
    ) -> None:
        self._shown = checked_clusters(clusters)
        self._gate = gate
        self._token_files = checked_files(run_token_files)
        self._indexing = checked_indexing(index_folder, index_rows)
        self._entered = False
        self._app: ASGIApp | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """What the console does beside its answers; outside of it each request is answered by 503.

        Raises:
            ConfigError: the settings or the folder of the index are refused.
            RuntimeError: it is entered already.
        """
        if self._entered:
            raise RuntimeError("this console is running already: enter `running()` once")
        self._entered = True
        ending, opened = asyncio.Event(), ExitStack()
        try:
            clusters = opened.enter_context(
                opened_clusters(self._shown, self._indexing, self._token_files)
            )
            opened.enter_context(followed(clusters))
            web = web_app(clusters, self._gate, ending, EVENTS_S)
            async with web.router.lifespan_context(web):
                # That its host is reached over TLS alone is for the outer app to say.
                self._app = with_headers(web, over_tls=False)
                try:
                    yield
                finally:
                    self._app = None
                    ending.set()
        finally:
            await asyncio.to_thread(opened.close)
            self._entered = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; or run, where a server has the console alone."""
        if scope["type"] == "lifespan":
            await Starlette(lifespan=lambda _app: self.running())(scope, receive, send)
        elif self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            why = "the console is not running: the app that it is a part of enters its `running()`"
            answer = rendered(Request(scope), "refused.html", 503, why=why)
            await with_headers(answer, over_tls=False)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})


def console_app(
    *clusters: ConsoleCluster,
    public_url: str,
    token_file: Path | str | None = None,
    who: Who | None = None,
    run_token_files: Mapping[str, Path | str] = MappingProxyType({}),
    index_folder: Path | str | None = None,
    index_rows: int = 2_000_000,
) -> ConsoleApp:
    """The console as an ASGI app, to be mounted in a web app, or served by an ASGI server.

        console = console_app(
            ConsoleCluster("ackfloor.toml", runs=["127.0.0.1:9600"]),
            public_url="https://ops.example", token_file="console-tokens.toml",
        )
        app.mount("/ops/kafka", console)

    The lifespan of that app enters `console.running()`. Serve it with one process: sessions, and
    orders that wait for being confirmed, are in its memory.

    Args:
        clusters: what is shown; one at least.
        public_url: the scheme and host that browsers use, without a path. Beyond this machine it
            has to be https.
        token_file: who may log in, and as what, as `ackfloor console --add-token` writes it.
        who: says who sends a request, as `Person`; None for nobody, who does not come in. Either
            this or `token_file` is needed.
        run_token_files: address of a run -> the file with its token, where that is not the run's
            own.
        index_folder: of the index of dead letters; None for `console` in the user's state folder.
        index_rows: so many dead letters are indexed; the oldest go first.

    Raises:
        SettingError: an argument, a settings file or the token file is refused.
    """
    if not clusters:
        raise SettingError("clusters", (), "there is nothing to show", "pass a ConsoleCluster")
    gate = gate_of(public_url, token_file, who)
    return ConsoleApp(clusters, gate, run_token_files, index_folder, index_rows)
