"""Control: requests to the run's address that need its token.

    POST /config
    Authorization: Bearer <token>

    {"set": {"handlers.bill.consume_timeout": "5s"}, "dry_run": false}

`GET /config` tells the settings in force, each with its source, secrets as `***`.

The token is compared in constant time. Unless `app.control` says otherwise, only this machine may
ask.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ackfloor.core.values.setting_error import SettingError
from ackfloor.live.requests import Change

if TYPE_CHECKING:
    from ackfloor.control import ControlRequest

PATH = "/config"
#: Seconds that running workers have to take a change.
WAIT_S = 5.0
#: Settings in one request.
MOST = 100

SCHEME = "Bearer "


class BadRequest(ValueError):
    """The body is not a valid request to this path."""


Does = TypeVar("Does", bound=Callable[..., Any])


class TokenControl(ABC, Generic[Does]):
    """Answers requests to one path; implements `ackfloor.control.Control`.

    Args:
        token: a request has to carry it.
        does: carries out what is posted.
        anywhere: whether other machines may ask, too.
        tells: the body of the answer to GET; None where there is nothing to read.
    """

    def __init__(
        self,
        token: str,
        does: Does,
        *,
        anywhere: bool,
        tells: Callable[[], object] | None = None,
    ) -> None:
        self._token = token.encode()
        self._does = does
        self._anywhere = anywhere
        self._tells = tells

    @abstractmethod
    def answer(self, tree: Any) -> object:
        """Carry out what the body asks for; returns the response's body.

        Raises:
            BadRequest: the body is not a valid request.
            SettingError: the request is refused.
            TimeoutError: the run is not ready for it.
        """

    def __call__(self, request: ControlRequest) -> tuple[int, object]:
        """The HTTP status and the body of the response."""
        if not self._anywhere and not _is_loopback(request.client):
            error = 'only from this machine; app.control = "remote" lets others ask'
            return 403, {"error": error}
        given = request.authorization.encode("utf-8", "replace")
        if not hmac.compare_digest(given, SCHEME.encode() + self._token):
            return 401, {"error": "not the token of this run; its log says which file has it"}
        return self._shown() if request.method == "GET" else self._carried_out(request.body)

    def _shown(self) -> tuple[int, object]:
        if self._tells is None:
            return 405, {"error": "there is nothing to read here; use POST"}
        return 200, self._tells()

    def _carried_out(self, body: bytes) -> tuple[int, object]:
        try:
            tree = json.loads(body)
        except (ValueError, RecursionError):
            return 400, {"error": "the body is no JSON"}
        try:
            return 200, self.answer(tree)
        except BadRequest as exc:
            return 400, {"error": str(exc)}
        except SettingError as exc:
            return 422, {"error": str(exc)}
        except TimeoutError as exc:
            return 503, {"error": str(exc)}


class ConfigControl(TokenControl[Callable[..., Change]]):
    """Answers `POST /config` by `RunSettings.change`, and `GET /config` by its `effective`."""

    def answer(self, tree: Any) -> object:
        """Change settings, or with `dry_run` only answer what the change would do."""
        values, dry_run = _read(tree)
        change = self._does(values, dry_run=dry_run, wait_s=WAIT_S)
        return {
            "dry_run": dry_run,
            "group": change.group,
            "changed": [asdict(each) for each in change.changed],
            "workers": change.workers(),
            "ends": change.ends,
            "overdue": [each._asdict() for each in change.overdue],
        }


def _is_loopback(client: str) -> bool:
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _read(tree: Any) -> tuple[Mapping[str, Any], bool]:
    """Check the body and take it apart."""
    values = tree.get("set") if isinstance(tree, dict) else None
    if not isinstance(values, dict) or not values or len(values) > MOST:
        raise BadRequest('the body is {"set": {name: value}, "dry_run": false}')
    dry_run = tree.get("dry_run", False)
    if not isinstance(dry_run, bool) or tree.keys() - {"set", "dry_run"}:
        raise BadRequest('beside "set" there is "dry_run", true or false')
    wrong = [name for name, value in values.items() if isinstance(value, list | dict | None)]
    if wrong:
        raise BadRequest(f'{wrong[0]}: write the value as text, such as "30s"')
    return values, dry_run
