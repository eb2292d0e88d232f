"""What a client of runs says where nobody answers: whether something may have been done."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from ackfloor.live import (
    breaker_requests,
    lane_requests,
    pause_orders,
    retry_requests,
    run_control,
)
from ackfloor.operations import ControlFailed, run_client
from ackfloor.operations.run_client import SHOWN_BY, NotKnown, ask_state, post

TOKEN = "s3cret" * 8
Serve = Callable[[bool], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts runs that take each request whole, and hang up or say nothing then."""
    over, servers = threading.Event(), list[http.server.ThreadingHTTPServer]()

    def serve(hangs_up: bool) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                """Read it, and no more."""
                self.rfile.read(int(self.headers["Content-Length"]))
                if not hangs_up:
                    over.wait(60)

            def do_GET(self) -> None:
                """Likewise."""

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever).start()
        return f"127.0.0.1:{servers[-1].server_address[1]}"

    yield serve
    over.set()
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("hangs_up", [True, False])
def test_an_order_that_is_not_answered_may_have_been_carried_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, hangs_up: bool
) -> None:
    """It is not told as not done; what shows it is named."""
    monkeypatch.setattr(run_client, "POST_S", 60.0 if hangs_up else 0.2)
    listen = serve(hangs_up)
    with pytest.raises(NotKnown) as failed:
        post(listen, TOKEN, "/lanes", {"action": "retry", "dry_run": False})
    said = str(failed.value)
    assert said.startswith(f"the run at {listen} was asked, and has not answered (")
    assert said.endswith(
        "whether it was done is not known; look at `ackfloor lanes ls` before you ask again"
    )


@pytest.mark.parametrize("tree", [{"action": "retry", "dry_run": True}, {"action": "count"}])
def test_a_question_that_is_not_answered_has_done_nothing(serve: Serve, tree: object) -> None:
    """What only asks what an order would do."""
    with pytest.raises(ControlFailed, match="no run answers at") as failed:
        post(serve(True), TOKEN, "/retry", tree)
    assert not isinstance(failed.value, NotKnown)
    with pytest.raises(ControlFailed, match="no run answers at") as failed:
        ask_state(serve(True))
    assert not isinstance(failed.value, NotKnown)


@pytest.mark.parametrize(
    ("most_bytes", "pause_s", "says"),
    [(1_000, 0.0, "has more than 1,000 bytes"), (10**9, 0.05, "its answer does not end")],
)
def test_an_answer_without_an_end_is_none(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int, pause_s: float, says: str
) -> None:
    """Another service is at the address: whoever asks keeps neither memory nor a thread for it."""
    over = threading.Event()

    class Endless(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Go on and on."""
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not over.wait(pause_s):
                    self.wfile.write(b"data: more\n\n")

        def do_POST(self) -> None:
            """Likewise."""
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    monkeypatch.setattr(run_client, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(run_client, "STATE_S", 0.2)
    monkeypatch.setattr(run_client, "POST_S", 0.2)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever).start()
    listen = f"127.0.0.1:{server.server_address[1]}"
    try:
        with pytest.raises(ControlFailed, match=says):
            ask_state(listen)
        with pytest.raises(NotKnown, match=says):
            post(listen, TOKEN, "/lanes", {"action": "retry"})
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def test_an_answer_that_ends_in_the_middle_is_none() -> None:
    """An order may have been carried out all the same."""

    class Broken(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Say that more comes, and hang up."""
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    threading.Thread(target=server.serve_forever).start()
    try:
        with pytest.raises(NotKnown, match="IncompleteRead"):
            post(f"127.0.0.1:{server.server_address[1]}", TOKEN, "/lanes", {"action": "retry"})
    finally:
        server.shutdown()
        server.server_close()


def test_an_order_that_reaches_nobody_is_not_carried_out() -> None:
    """And is told so."""
    with closing(socket.socket()) as deaf:
        # Bound, so that nobody else takes the port, and not listening.
        deaf.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(ControlFailed, match="no run answers at") as failed:
            post(nobody, TOKEN, "/lanes", {"action": "retry"})
    assert not isinstance(failed.value, NotKnown)


def test_each_control_has_a_command_that_shows_it() -> None:
    """None is missing."""
    controls = (breaker_requests, lane_requests, pause_orders, retry_requests, run_control)
    assert {each.PATH for each in controls} == SHOWN_BY.keys()
    assert retry_requests.Action.COUNT == run_client.COUNT
