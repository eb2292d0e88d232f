"""Server: a small HTTP server on its own thread, for pages made on request.

GET and HEAD read pages, and what one of the run's controls tells whoever has the run's token; POST
asks a control to do something. One connection serves one request, so a stopped server leaves
nothing behind. What a page raises is
logged and answered with 500; it never ends the server.
"""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ackfloor import ConfigError
from ackfloor.observe import CONTROL_BYTES, Control, ControlRequest
from ackfloor_monitoring.serving.tls import HANDSHAKE, ServerTls

log = logging.getLogger("ackfloor.monitoring")

#: Seconds a client may take to send its request.
REQUEST_TIMEOUT_S = 10.0
FIX = "set --listen host:port, for example --listen 127.0.0.1:9601 (port 0 takes any free one)"


@dataclass(frozen=True, slots=True)
class Request:
    """What a page may read; header names in lower case."""

    headers: Mapping[str, str]
    query: Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Response:
    """What a page answers."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_json(cls, tree: object, status: int = 200, **headers: str) -> Response:
        """A JSON answer."""
        body = json.dumps(tree, indent=2).encode() + b"\n"
        return cls(status, "application/json", body, tuple(headers.items()))

    def all_headers(self) -> tuple[tuple[str, str], ...]:
        """Every header that belongs to it."""
        return (
            ("Content-Type", self.content_type),
            ("Content-Length", str(len(self.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *self.headers,
        )


Page = Callable[[Request], Response]


def answer(pages: Mapping[str, Page], path: str, request: Request) -> Response:
    """A page's answer, or why there is none."""
    page = pages.get(path)
    if page is None:
        return Response.of_json({"error": f"no page {path}", "pages": sorted(pages)}, 404)
    try:
        return page(request)
    except Exception:
        log.exception("page %s failed", path)
        return Response.of_json({"error": f"page {path} failed; see the log"}, 500)


def not_allowed(method: str) -> Response:
    """What any other method is answered with."""
    return Response.of_json({"error": f"{method} is not allowed; use GET"}, 405, Allow="GET, HEAD")


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 host stands in brackets.

    Raises:
        ConfigError: it is something else.
    """
    host, colon, port = listen.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if bracketed else host
    if not colon or not name or (":" in name) != bracketed:
        raise ConfigError("listen", listen, "expected host:port ([host]:port for IPv6)", FIX)
    if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise ConfigError("listen", listen, "the port must be a number from 0 to 65535", FIX)
    return name, int(port)


class _Server(ThreadingHTTPServer):
    """Binds without a look-up of the host's own name; speaks TLS where it is told to."""

    def __init__(
        self,
        family: int,
        address: Any,
        pages: Mapping[str, Page],
        controls: Mapping[str, Control],
        tls: ServerTls | None,
    ) -> None:
        self.address_family = family
        self.pages = pages
        self.controls = controls
        self._tls = tls
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its thread: whoever is slow with TLS keeps nobody else waiting."""
        if self._tls is None:
            _Handler(request, client_address, self)
            return
        request.settimeout(REQUEST_TIMEOUT_S)
        if request.recv(1, socket.MSG_PEEK) != HANDSHAKE:
            _PlainHandler(request, client_address, self)
            return
        with self._tls.context().wrap_socket(request, server_side=True) as secure:
            _Handler(secure, client_address, self)
            # What was answered arrives, also where the client has more to say.
            with suppress(OSError):
                secure.shutdown(socket.SHUT_WR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log errors, except those of a client that went away."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            log.error("serving %s failed", client_address, exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Server
    timeout = REQUEST_TIMEOUT_S
    server_version = "ackfloor"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(self._read())

    def do_HEAD(self) -> None:
        self._answer(self._read())

    def do_POST(self) -> None:
        self._answer(self._asked())

    def _asked(self) -> Response:
        """A control's answer."""
        control = self.server.controls.get(urlsplit(self.path).path)
        if control is None:
            return not_allowed(self.command)
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdecimal()):
            return Response.of_json({"error": "say the length of the body"}, 411)
        if len(length) > 9 or int(length) > CONTROL_BYTES:
            return Response.of_json({"error": f"the body is over {CONTROL_BYTES} bytes"}, 413)
        return self._controlled(control, self.rfile.read(int(length)), "POST")

    def _read(self) -> Response:
        """A page, or what a control tells."""
        control = self.server.controls.get(urlsplit(self.path).path)
        return self._response() if control is None else self._controlled(control, b"", "GET")

    def _controlled(self, control: Control, body: bytes, method: str) -> Response:
        """What a control answers."""
        client, authorization = str(self.client_address[0]), self.headers.get("authorization", "")
        try:
            status, tree = control(ControlRequest(client, authorization, body, method))
        except Exception:
            log.exception("%s failed", self.path)
            return Response.of_json({"error": "it failed; see the log of the run"}, 500)
        return Response.of_json(tree, status, **({"Allow": "POST"} if status == 405 else {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self) -> None:
        self._answer(not_allowed(self.command))

    def _response(self) -> Response:
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        return answer(self.server.pages, url.path, Request(headers, parse_qs(url.query)))

    def _answer(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in response.all_headers():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Scrapes are not logged."""


class _PlainHandler(_Handler):
    """A request without TLS at an address that has it: nothing is done."""

    def _read(self) -> Response:
        error = "this address speaks TLS: write https:// in front of it"
        return Response.of_json({"error": error}, HTTPStatus.UPGRADE_REQUIRED, Upgrade="TLS/1.2")

    def _asked(self) -> Response:
        length = self.headers.get("content-length", "")
        if length.isascii() and length.isdecimal():
            # What was not read would take the answer with it when the connection is closed.
            self.rfile.read(min(int(length), CONTROL_BYTES))
        return self._read()

    def _refuse(self) -> None:
        self._answer(self._read())


class PageServer:
    """Serves pages until it is stopped."""

    def __init__(
        self, pages: Mapping[str, Page], controls: Mapping[str, Control] = MappingProxyType({})
    ) -> None:
        self._pages = pages
        self._controls = controls
        self._server: _Server | None = None
        self._thread: Thread | None = None

    def start(self, listen: str, certificate: Path | None = None, key: Path | None = None) -> str:
        """Serve on `host:port`; returns the address with the port in use.

        Args:
            certificate: for TLS; None for plain HTTP.
            key: of the certificate; None where that file has it, too.

        Raises:
            ConfigError: the address can't be bound, or the certificate can't be used.
        """
        host, port = parse_listen(listen)
        tls = None if certificate is None else ServerTls(certificate, key)
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._server = _Server(family, address, self._pages, self._controls, tls)
        except OSError as exc:
            why = f"can't listen there: {exc.strerror or exc}"
            raise ConfigError("listen", listen, why, FIX) from exc
        self._thread = Thread(
            target=self._server.serve_forever, args=(0.1,), name="ackfloor-metrics", daemon=True
        )
        self._thread.start()
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{self._server.server_address[1]}"

    def stop(self) -> None:
        """Stop serving and give the port back; nothing happens when not serving."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is not None and thread is not None:
            server.shutdown()
            server.server_close()
            thread.join()
