"""`/config`: who may ask, and what is said to whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ackfloor.control import ControlRequest
from ackfloor.errors import ConfigError
from ackfloor.live.frames import Overdue
from ackfloor.live.requests import Change
from ackfloor.live.run_control import ConfigControl
from ackfloor.settings.live_settings import Changed

TOKEN = "t" * 43
GOOD = b'{"set": {"handlers.bill.concurrency": 3}}'
CHANGE = Change(
    (Changed("handlers.bill.concurrency", "4", "3", "config set"),),
    (0, 2),
    {1: "older code"},
    (3,),
    7,
    (Overdue("bill", "orders", 1, 42, 1, 12.5),),
    "billing",
)


class Run:
    """A run that does what it is asked, or raises."""

    def __init__(self, *, anywhere: bool = False) -> None:
        self.asked: list[dict[str, Any]] = []
        self.raises: Exception | None = None
        tells = lambda: {"group": "billing"}  # noqa: E731 -- what a run says is tested with it
        self.control = ConfigControl(TOKEN, self.change, anywhere=anywhere, tells=tells)

    def change(self, values: Any, *, dry_run: bool, wait_s: float) -> Change:
        self.asked.append({**values, "dry_run": dry_run})
        if self.raises:
            raise self.raises
        return CHANGE

    def ask(
        self,
        body: bytes = GOOD,
        token: str = f"Bearer {TOKEN}",
        client: str = "127.0.0.1",
        method: str = "POST",
    ) -> tuple[int, Any]:
        return self.control(ControlRequest(client, token, body, method))


def test_a_change_is_made_and_told() -> None:
    """What changed, in which workers, and what it ended; as JSON can hold it."""
    run = Run()
    status, told = run.ask(b'{"set": {"handlers.bill.concurrency": "3"}, "dry_run": true}')
    assert status == 200
    assert json.loads(json.dumps(told)) == {
        "dry_run": True,
        "group": "billing",
        "changed": [
            {
                "name": "handlers.bill.concurrency", "before": "4", "after": "3",
                "source": "config set",
            }
        ],
        "workers": {"applied": [0, 2], "refused": {"1": "older code"}, "silent": [3]},
        "ends": 7,
        "overdue": [
            {
                "handler": "bill", "topic": "orders", "partition": 1, "offset": 42,
                "attempt": 1, "running_s": 12.5,
            }
        ],
    }  # fmt: skip
    assert run.ask()[0] == 200
    assert run.asked == [
        {"handlers.bill.concurrency": "3", "dry_run": True},
        {"handlers.bill.concurrency": 3, "dry_run": False},
    ]


@pytest.mark.parametrize(
    "token",
    ["", "Bearer", "Bearer ", TOKEN, f"bearer {TOKEN}", f"Bearer {TOKEN}x", f"Basic {TOKEN}",
     "Bearer \u00e9\udcff", f"Bearer {TOKEN[:-1]}"],
)  # fmt: skip
def test_without_the_token_nothing_is_looked_at(token: str) -> None:
    """401, whatever the body."""
    run = Run()
    for body in (GOOD, b"\xff"):
        status, told = run.ask(body, token)
        assert status == 401
        assert isinstance(told, dict)
        assert told["error"].startswith("not the token of this run; ")
    assert run.asked == []


def test_only_this_machine_may_ask_unless_said() -> None:
    """Its addresses in either family, also as IPv6 writes an IPv4 one."""
    run, open_to_all = Run(), Run(anywhere=True)
    for client in ("127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"):
        assert run.ask(client=client)[0] == 200
    run.asked.clear()
    for client in ("10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "0.0.0.0", "", "localhost"):
        status, told = run.ask(client=client)
        assert status == 403
        assert "app.control" in told["error"]
        assert open_to_all.ask(client=client)[0] == 200
        assert open_to_all.ask(client=client, token="Bearer x")[0] == 401
    assert run.asked == []


def test_who_may_change_them_may_read_them() -> None:
    """And nobody else: neither without the token nor from another machine."""
    run, open_to_all = Run(), Run(anywhere=True)
    assert run.ask(b"", method="GET") == (200, {"group": "billing"})
    assert run.ask(b"", "", method="GET")[0] == 401
    assert run.ask(b"", client="10.0.0.1", method="GET")[0] == 403
    assert open_to_all.ask(b"", client="10.0.0.1", method="GET")[0] == 200
    only_acts = ConfigControl(TOKEN, run.change, anywhere=False)
    status, told = only_acts(ControlRequest("127.0.0.1", f"Bearer {TOKEN}", b"", "GET"))
    assert (status, told) == (405, {"error": "there is nothing to read here; use POST"})
    assert run.asked == []


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"[]", b"3", b"null", b"{}", b'{"set": []}', b'{"set": {}}',
     b'{"set": {"a": null}}', b'{"set": {"a": [1]}}', b'{"set": {"a": {"b": 1}}}',
     b'{"set": {"a": 1}, "dry_run": 1}', b'{"set": {"a": 1}, "dry-run": true}',
     b"[" * 20_000, json.dumps({"set": {str(n): 1 for n in range(101)}}).encode()],
)  # fmt: skip
def test_what_is_no_request_is_400(body: bytes) -> None:
    """In words; nothing is changed."""
    run = Run()
    status, told = run.ask(body)
    assert status == 400
    assert told["error"]
    assert run.asked == []


def test_a_refusal_is_told_as_it_is() -> None:
    """422 with the setting, why and the fix; 503 from a run that is not ready for it."""
    run = Run()
    run.raises = ConfigError("app.workers", 3, "can't change while the run runs", "restart it")
    assert run.ask() == (
        422,
        {"error": "app.workers=3: can't change while the run runs; restart it"},
    )
    run.raises = TimeoutError("the run is still starting")
    assert run.ask() == (503, {"error": "the run is still starting"})
