"""Pages: the pages of a run's address as an ASGI app, for the web service that a worker runs in.

They are made on a thread: a page of metrics takes milliseconds, and other requests wait for the
event loop meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from ackfloor.control import PageAnswer, PageRequest
from ackfloor.embedded.running import Running

if TYPE_CHECKING:
    from ackfloor.app import App

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Pages:
    """An ASGI app; see `App.asgi`.

    Args:
        app: whose worker is shown.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer one request.

        Raises:
            RuntimeError: it is no HTTP request; a server takes that for "no lifespan".
        """
        if scope["type"] != "http":
            raise RuntimeError(f"these pages answer HTTP requests, and no {scope['type']}")
        request = _request(scope)
        answer = await asyncio.to_thread(self._answer, request)
        headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = b"" if request.method == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})

    def _answer(self, request: PageRequest) -> PageAnswer:
        running = self._app.embedded
        if not isinstance(running, Running):
            return _error("no worker runs in this process: app.running() is not entered")
        answer = running.page(request)
        if answer is None:
            return _error("no monitoring plugin that has pages is installed")
        return answer


def _request(scope: Scope) -> PageRequest:
    path, mounted_at = scope["path"], scope.get("root_path", "")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return PageRequest(
        scope["method"],
        # Where the app is mounted: some frameworks leave that in the path, others take it away.
        path.removeprefix(mounted_at) or "/",
        scope.get("query_string", b"").decode("latin-1"),
        headers,
    )


def _error(why: str) -> PageAnswer:
    body = json.dumps({"error": why}).encode() + b"\n"
    headers = (
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
    )
    return PageAnswer(503, headers, body)
