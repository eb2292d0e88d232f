"""Target: the address of a run: requests as anybody who reaches it may send them."""

from __future__ import annotations

import errno
import json
import logging
import socket
from functools import cache

from hypothesis import strategies as st

from ackfloor.live import breaker_orders as breakers
from ackfloor.live import breaker_requests as breaker_control
from ackfloor.live import lane_requests as lane_control
from ackfloor.live import pause_orders
from ackfloor.live import retry_requests as early_control
from ackfloor.live import run_control as control
from ackfloor.live.breaker_requests import BreakerControl
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.lane_requests import LaneRequests, carry_out_lane_order
from ackfloor.live.pause_orders import PauseAction, PauseControl
from ackfloor.live.requests import Change
from ackfloor.live.retry_requests import RetryRequests
from ackfloor.live.run_control import ConfigControl
from ackfloor.live.worker_orders import Answers, Tree
from ackfloor.settings.layers import set_layer
from ackfloor_monitoring.serving.http_server import PageServer, Request, Response
from tests.framework.core.worlds import World
from tests.fuzz.target import Target

TOKEN = b"s3cret-token"
#: Where it stands in an input, the token is put.
HERE = b"{token}"
STATUSES = {200, 400, 401, 404, 405, 411, 413, 414, 422, 431, 501, 505}
_PATIENCE_S = 120.0
_LOG = logging.getLogger("ackfloor.monitoring")


class _Address:
    """A run's address, with controls that do nothing but note that they were reached."""

    def __init__(self) -> None:
        self.reached = 0
        self._world = World()
        self.errors: list[str] = []
        self._handler = logging.Handler(logging.ERROR)
        self._handler.emit = lambda record: self.errors.append(record.getMessage())  # type: ignore[method-assign]
        _LOG.addHandler(self._handler)
        token = TOKEN.decode()
        self.server = PageServer(
            {"/livez": self._page},
            {
                control.PATH: ConfigControl(token, self._change, anywhere=False, tells=self._tell),
                early_control.PATH: RetryRequests(token, self._ask, anywhere=False),
                lane_control.PATH: LaneRequests(token, self._ask_lanes, anywhere=False),
                breaker_control.PATH: BreakerControl(token, self._force, anywhere=False),
                pause_orders.PATH: PauseControl(token, self._pause, anywhere=False),
            },
        )
        host, _, port = self.server.start("127.0.0.1:0").rpartition(":")
        self.place = (host, int(port))

    def close(self) -> None:
        """Give the port back."""
        self.server.stop()
        _LOG.removeHandler(self._handler)

    def _page(self, request: Request) -> Response:
        assert all(name == name.lower() for name in request.headers)
        return Response.of_json({"query": request.query})

    def _change(self, values: dict[str, object], *, dry_run: bool, wait_s: float) -> Change:
        self.reached += 1
        assert wait_s > 0
        set_layer(values)
        return Change((), (), {}, (), 0 if dry_run else 1, ())

    def _tell(self) -> dict[str, object]:
        self.reached += 1
        return {"settings": []}

    def _ask(self, order: Tree, wait_s: float) -> Answers:
        self.reached += 1
        assert order["action"] in {"count", "promote", "bury"}
        assert all(0 <= o < 2**63 for offsets in order["places"].values() for o in offsets)
        assert isinstance(order["topic"], str)
        assert wait_s > 0
        return Answers({}, ())

    def _ask_lanes(self, order: Tree, wait_s: float) -> Answers:
        self.reached += 1
        assert wait_s > 0
        json.dumps(order)
        answer = carry_out_lane_order(self._world.engine.lane_orders, order, self._world.now)
        return Answers({0: answer}, ())

    def _force(
        self, action: breakers.Action, handler: str, for_s: float | None, reason: str, wait_s: float
    ) -> Change:
        self.reached += 1
        assert action in breakers.Action
        assert isinstance(handler, str)
        assert for_s is None or for_s > 0
        assert len(reason) <= LONGEST_REASON
        assert wait_s > 0
        return Change((), (), {}, (), 0, ())

    def _pause(
        self, action: PauseAction, handler: str, for_s: float | None, reason: str, wait_s: float
    ) -> Change:
        self.reached += 1
        assert action in PauseAction
        assert isinstance(handler, str)
        assert for_s is None or for_s > 0
        assert len(reason) <= LONGEST_REASON
        assert wait_s > 0
        return Change((), (), {}, (), 0, ())

    def asked(self, request: bytes) -> bytes:
        """What it answers to a client that says this and no more."""
        with socket.create_connection(self.place, _PATIENCE_S) as client:
            found = b""
            try:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                while chunk := client.recv(65_536):
                    found += chunk
            except OSError as exc:
                # It did not read all of it; what comes after that it was gone is told of as well.
                if exc.errno not in {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN}:
                    raise
            return found


@cache
def _address() -> _Address:
    return _Address()


def close() -> None:
    """Give the address back; the next request makes another."""
    if _address.cache_info().currsize:
        _address().close()
        _address.cache_clear()


def check_requests(data: bytes) -> None:
    """An answer with a status that means it, or none; nothing is done without the token."""
    address = _address()
    before = address.reached
    answer = address.asked(data.replace(HERE, TOKEN))
    assert address.errors == [], address.errors.pop()
    if answer.startswith(b"HTTP/"):
        head, _, body = answer.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        assert status in STATUSES, status
        if b"application/json" in head and body:
            json.loads(body)
        assert status == 200 or address.reached == before or status == 422
    if HERE not in data and TOKEN not in data:
        assert address.reached == before
        assert TOKEN not in answer


_paths = st.sampled_from(
    [
        "/livez",
        "/config",
        "/retry",
        "/lanes",
        "/breaker",
        "/handlers",
        "/none",
        "/livez?a=1&b",
        "//",
        "*",
        "/%ff",
    ]
)
_bodies = st.sampled_from(
    [
        {"set": {"handlers.bill.consume_timeout": "5s"}, "dry_run": False},
        {"set": {"app.max_open": 5}},
        {"set": {"": None, "x": "\ud800"}},
        {"action": "promote", "topic": "t", "places": {"0": [17, 21]}},
        {"action": "open", "handler": "bill", "for_s": 1800, "reason": "the bank is away"},
        {"action": "close", "handler": "\ud800", "for_s": float("nan")},
        {"action": "pause", "handler": "bill", "for_s": 0.5, "reason": "\ud800"},
        {"action": ["count"], "topic": "t", "places": {"²": [1.5]}},
        {"action": "retry", "handler": "bill", "keys": ["a", "\ud800"], "places": ["t/0/1"]},
        {"action": "delay", "handler": "bill", "all": True, "delay_s": 1e308, "dry_run": 0},
        {"action": "dead_letter", "handler": "bill", "all": True, "followers": [0.5, None]},
        {"action": "discard", "handler": "\ud800", "keys_base64": ["AA==", "ü"], "reason": "\0"},
        [],
        None,
    ]
).map(json.dumps)


def _request(method: str, path: str, body: str, length: int | None, token: str) -> bytes:
    size = len(body) if length is None else length
    head = [f"{method} {path} HTTP/1.1", f"Content-Length: {size}", f"Authorization: {token}"]
    return ("\r\n".join(head) + "\r\n\r\n" + body).encode()


TARGETS = (
    Target(
        "requests",
        check_requests,
        st.builds(
            _request,
            st.sampled_from(["GET", "HEAD", "POST", "PUT", "get", "X" * 70]),
            _paths,
            _bodies | st.just("[" * 5_000),
            st.none() | st.integers(-1, 10**12),
            st.sampled_from(["Bearer {token}", "Bearer x", "", "Basic {token}", "Bearer \u00fc"]),
        ),
        [
            b"HTTP/0.9", b"HTTP/2.0", b"\r\n", b"\n", b"\0", b" ", b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", HERE, b"Bearer ",
            b"A: b\r\n" * 120, b"x" * 5_000, b"POST /config HTTP/1.1\r\n", b'"set"', b'"places"',
            b"9" * 5_000, b"\xff",
        ],
    ),
)  # fmt: skip
