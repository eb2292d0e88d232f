"""Control: what is posted to the run's address, and who may.

    POST /config
    Authorization: Bearer <token>

    {"set": {"handlers.bill.consume_timeout": "5s"}, "dry_run": false}

The token is compared in constant time. Without a word from the operator (`app.control`) only this
machine may ask at all.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ackfloor.control import ControlRequest
from ackfloor.core.errors import SettingError
from ackfloor.live.requests import Change

PATH = "/config"
#: Seconds that running workers have to take a change.
WAIT_S = 5.0
#: Settings in one request.
MOST = 100

SCHEME = "Bearer "


class ConfigControl:
    """Answers `POST /config`; implements `ackfloor.control.Control`.

    Args:
        token: who knows it may.
        change: `RunSettings.change`.
        anywhere: not only from this machine.
    """

    def __init__(self, token: str, change: Callable[..., Change], *, anywhere: bool) -> None:
        self._token = token.encode()
        self._change = change
        self._anywhere = anywhere

    def __call__(self, request: ControlRequest) -> tuple[int, object]:
        """A status of HTTP, and what to say."""
        if (refusal := refused(request, self._token, anywhere=self._anywhere)) is not None:
            return refusal
        try:
            values, dry_run = _read(request.body)
        except ValueError as exc:
            return 400, {"error": str(exc)}
        try:
            change = self._change(values, dry_run=dry_run, wait_s=WAIT_S)
        except SettingError as exc:
            return 422, {"error": str(exc)}
        except TimeoutError as exc:
            return 503, {"error": str(exc)}
        return 200, _tree(change, dry_run)


def refused(request: ControlRequest, token: bytes, *, anywhere: bool) -> tuple[int, object] | None:
    """What to answer somebody who may not ask; None where they may."""
    if not anywhere and not _is_loopback(request.client):
        error = 'only from this machine; app.control = "remote" lets others ask'
        return 403, {"error": error}
    given = request.authorization.encode("utf-8", "replace")
    if not hmac.compare_digest(given, SCHEME.encode() + token):
        return 401, {"error": "not the token of this run; its log says which file has it"}
    return None


def _is_loopback(client: str) -> bool:
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _read(body: bytes) -> tuple[Mapping[str, Any], bool]:
    """What a request asks for; raises ValueError."""
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the body is no JSON") from None
    values = tree.get("set") if isinstance(tree, dict) else None
    if not isinstance(values, dict) or not values or len(values) > MOST:
        raise ValueError('the body is {"set": {name: value}, "dry_run": false}')
    dry_run = tree.get("dry_run", False)
    if not isinstance(dry_run, bool) or tree.keys() - {"set", "dry_run"}:
        raise ValueError('beside "set" there is "dry_run", true or false')
    wrong = [name for name, value in values.items() if isinstance(value, list | dict | None)]
    if wrong:
        raise ValueError(f'{wrong[0]}: write the value as text, such as "30s"')
    return values, dry_run


def _tree(change: Change, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "changed": [asdict(each) for each in change.changed],
        "workers": {
            "applied": list(change.applied),
            "refused": {str(worker): why for worker, why in change.refused.items()},
            "silent": list(change.silent),
        },
        "ends": change.ends,
        "overdue": [each._asdict() for each in change.overdue],
    }
