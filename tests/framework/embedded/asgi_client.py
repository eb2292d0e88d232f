"""A client of an ASGI app, without a server."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest

from ackfloor import App


async def asked(
    app: App, path: str, method: str = "GET", mounted_at: str = "", kind: str = "http"
) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of what an app's pages answer."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        pytest.fail("nothing is to be received")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "root_path": mounted_at,
        "query_string": b"",
        "headers": [(b"accept", b"*/*")],
    }
    await app.asgi()(scope, receive, send)
    start, body = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], headers, body["body"].decode()
