"""A run at its address: read what it says, and post what it is to do.

An address is that of `ackfloor run --listen`. Most reading needs no token; a run tells its settings
only to who has its own, and does nothing that is posted without it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ackfloor.errors import AckfloorError
from ackfloor.live.run_control import PATH, SCHEME
from ackfloor.operations.run_tls import SYSTEM, Trust, is_loopback
from ackfloor.runtime.supervision.exit_codes import Exit

if TYPE_CHECKING:
    import http.client

LAST_PORT: Final = 65_535
#: The ports of URLs without one.
_PORTS: Final = {"http": 80, "https": 443}
#: Hosts and paths: no space, no control character, no user, query or fragment.
_PLAIN: Final = re.compile(r"[^\x00-\x20\x7f-\U0010ffff@?#\\]+")
#: What to do about a worker that nobody can ask to do something.
_NO_CONTROLS: Final = (
    "takes no requests: it is a worker inside a web service (app.running()), or a run with "
    'app.control = "off"; change its settings file or environment and start it again'
)
#: How a run that speaks TLS answers who does not.
PLAIN_TO_TLS: Final = HTTPStatus.UPGRADE_REQUIRED
#: The action of a request about waiting records that only counts them.
COUNT: Final = "count"
#: Seconds for a run to answer with its state, which it has in memory.
STATE_S: Final = 5.0
#: Seconds for a run to carry out a request: it waits for its workers.
POST_S: Final = 20.0
#: Bytes of an answer, and how many times those seconds all of it may take: what goes on without an
#: end is no run's, such as the events of another service at a wrong address.
MOST_BYTES: Final = 64 * 1024 * 1024
LONGEST: Final = 4
_PART: Final = 64 * 1024


#: Path of a control -> the command that shows what its orders have come to.
SHOWN_BY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/breaker": "breaker show",
        "/config": "config show --running",
        "/handlers": "handlers ls",
        "/lanes": "lanes ls",
        "/retry": "retry ls",
    }
)


class ControlFailed(AckfloorError):
    """The run did not do what was asked, or has not said that it did."""


class NotKnown(ControlFailed):
    """The run was asked to do something, and has not answered: it may have done it."""


class _NoAnswer(Exception):
    """A request was sent, and nothing came back."""


class NoAddress(ControlFailed):
    """A value is not the address of a run."""

    exit_code = Exit.USAGE


class Address(NamedTuple):
    """Where the pages of a run are.

    Attributes:
        path: in front of theirs, where a web service has mounted them; without a slash at its end.
        secure: whether they are asked over HTTPS.
        name: whose certificate it has to be; "" for the host's.
    """

    host: str
    port: int
    path: str = ""
    secure: bool = False
    name: str = ""

    def connection(self, timeout_s: float, trust: Trust = SYSTEM) -> http.client.HTTPConnection:
        """A connection that is made with the first request.

        Raises:
            ConfigError: whom to trust can't be read.
        """
        import http.client

        from ackfloor.operations.run_connection import NamedConnection

        if self.secure:
            return NamedConnection(
                self.host, self.port, self.name or self.host, timeout_s, trust.context()
            )
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)


def address_of(listen: str) -> Address:
    """The address of a run: `host:port`, `host:port/path`, or a URL; raises NoAddress for others.

    A URL needs no port. `https://10.0.0.5:9600#NAME` is the run at an address whose certificate is
    for a name.
    """
    url, of_name, name = listen.partition("#")
    scheme, of_url, rest = url.rpartition("://")
    authority, _, path = rest.partition("/")
    host, colon, port = authority.rpartition(":")
    if scheme in _PORTS and (not colon or authority.endswith("]")):
        host, port = authority, str(_PORTS[scheme])
    host = host.strip("[]")
    number = int(port) if port.isascii() and port.isdecimal() else LAST_PORT + 1
    known = scheme in _PORTS if of_url else True
    if of_name:
        known &= scheme == "https" and bool(name) and "/" not in name
    if not known or not host or number > LAST_PORT or not _PLAIN.fullmatch(host + path + name):
        raise NoAddress(
            f"--listen={listen!r}: not an address; write host:port, such as "
            '"127.0.0.1:9600", with the path of the pages where a web service has them: '
            '"127.0.0.1:8000/ackfloor" or "https://shop.example/ackfloor"'
        )
    # A run that listens on all addresses is asked at the loopback address.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return Address(host, number, f"/{path}".rstrip("/"), scheme == "https", name)


def ask_state(listen: str, trust: Trust = SYSTEM) -> Any:
    """Read `/state` of a run.

    Args:
        listen: its address.

    Raises:
        ControlFailed: there is no answer, or it is not a run's.
        ConfigError: whom to trust can't be read.
    """
    _, tree = _asked(listen, "GET", "/state", STATE_S, trust)
    if not isinstance(tree, dict) or not isinstance(tree.get("workers"), dict):
        raise ControlFailed(f"{listen} is no run of ackfloor: it has no /state")
    return tree


def read_readiness(listen: str, trust: Trust = SYSTEM) -> Mapping[str, Any]:
    """Read `/readyz` of a run: whether it is ready, why not, and what people should know.

    Args:
        listen: its address.

    Raises:
        ControlFailed: there is no answer, or it is not a run's.
        ConfigError: whom to trust can't be read.
    """
    _, tree = _asked(listen, "GET", "/readyz", STATE_S, trust)
    if not isinstance(tree, dict) or "ready" not in tree:
        raise ControlFailed(f"{listen} is no run of ackfloor: it has no /readyz")
    return tree


def ask(listen: str, token: str, path: str, trust: Trust = SYSTEM) -> Any:
    """Ask a run for what it tells whoever has its token; returns its answer.

    Args:
        path: of the control.

    Raises:
        ControlFailed: there is no answer, the request is refused, or the token could be read on
            the way.
        ConfigError: whom to trust can't be read.
    """
    _refuse_readable(listen, trust)
    headers = {"Authorization": SCHEME + token}
    response, answer = _asked(listen, "GET", path, STATE_S, trust, None, headers)
    if response.status == HTTPStatus.NOT_FOUND:
        raise ControlFailed(f"{listen} {_NO_CONTROLS}; or it is of an older release")
    return _granted(listen, response, answer)


def post(listen: str, token: str, path: str, tree: object, trust: Trust = SYSTEM) -> Any:
    """Post a control request to a run; returns its answer.

    Args:
        path: of the control.

    Raises:
        NotKnown: an order was sent, and there is no answer: it may have been carried out.
        ControlFailed: there is no run, the request is refused, or the token could be read on
            the way.
        ConfigError: whom to trust can't be read.
    """
    _refuse_readable(listen, trust)
    headers = {"Authorization": SCHEME + token, "Content-Type": "application/json"}
    body = json.dumps(tree).encode()
    try:
        answer = _answer(listen, "POST", path, POST_S, trust, body, headers)
    except _NoAnswer as exc:
        if not _changes(tree):
            raise _silent(listen, exc) from None
        raise NotKnown(
            f"the run at {listen} was asked, and has not answered ({exc}): whether it was done is "
            f"not known; look at `ackfloor {SHOWN_BY.get(path, 'status')}` before you ask again"
        ) from None
    return _granted(listen, *answer)


def _changes(tree: object) -> bool:
    """Whether a request is an order; others only ask what one would do."""
    asks = isinstance(tree, dict) and (tree.get("dry_run") or tree.get("action") == COUNT)
    return not asks


def _refuse_readable(listen: str, trust: Trust) -> None:
    """Refuse to send a token where others could read it; raises ControlFailed."""
    address = address_of(listen)
    if not (address.secure or trust.plain_token or is_loopback(address.host)):
        raise ControlFailed(
            f"{listen}: without TLS its token could be read on the way; set app.tls_certificate "
            "where it runs and write https://, or allow it with app.plain_token = true"
        )


def _granted(listen: str, response: http.client.HTTPResponse, answer: object) -> Any:
    """A control's answer; raises ControlFailed where it is a refusal."""
    if response.status == HTTPStatus.OK and isinstance(answer, dict):
        return answer
    why = answer.get("error", "") if isinstance(answer, dict) else ""
    if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
        raise ControlFailed(f"{listen} {_NO_CONTROLS}")
    raise ControlFailed(f"{listen} refused ({response.status}): {why or response.reason}")


def refuse_without_controls(listen: str, trust: Trust = SYSTEM) -> None:
    """Say of a run that takes no requests that it needs no token either; raises ControlFailed."""
    try:
        response, _ = _asked(listen, "POST", PATH, STATE_S, trust, b"")
    except ControlFailed:  # nobody is there: the missing token says so
        return
    if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
        raise ControlFailed(f"{listen} {_NO_CONTROLS}")


def _asked(
    listen: str,
    method: str,
    path: str,
    timeout_s: float,
    trust: Trust,
    body: bytes | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[http.client.HTTPResponse, object]:
    """The response of a run and its JSON body; None if the body is no JSON.

    Raises:
        ControlFailed: there is no answer, or TLS is spoken there and not here, or here alone.
        ConfigError: whom to trust can't be read.
    """
    try:
        return _answer(listen, method, path, timeout_s, trust, body, headers)
    except _NoAnswer as exc:
        raise _silent(listen, exc) from None


def _silent(listen: str, exc: Exception) -> ControlFailed:
    return ControlFailed(
        f"no run answers at {listen}: {exc}; is it running, and is this its --listen?"
    )


def _answer(
    listen: str,
    method: str,
    path: str,
    timeout_s: float,
    trust: Trust,
    body: bytes | None,
    headers: Mapping[str, str],
) -> tuple[http.client.HTTPResponse, object]:
    """As `_asked`, which tells no request that did not arrive from one that did.

    Raises:
        _NoAnswer: it was sent.
        ControlFailed: it was not, or TLS is spoken there and not here, or here alone.
        ConfigError: whom to trust can't be read.
    """
    import http.client
    import ssl

    from ackfloor.operations.run_connection import fault_text

    address = address_of(listen)
    with closing(address.connection(timeout_s, trust)) as connection:
        try:
            connection.request(method, address.path + path, body, headers)
        except ssl.SSLError as exc:
            raise ControlFailed(f"the run at {listen} can't be asked: {fault_text(exc)}") from None
        except (OSError, http.client.HTTPException) as exc:
            raise _silent(listen, exc) from None
        try:
            response = connection.getresponse()
            # Read in parts it does not close what it read from.
            with response:
                body = _body(response, time.monotonic() + LONGEST * timeout_s)
        except (OSError, http.client.HTTPException) as exc:
            raise _NoAnswer(str(exc) or type(exc).__name__) from None
    if response.status == PLAIN_TO_TLS and not address.secure:
        raise ControlFailed(f"the run at {listen} speaks TLS: write https:// in front of it")
    try:
        return response, json.loads(body)
    except ValueError:
        return response, None


def _body(response: http.client.HTTPResponse, until_s: float) -> bytes:
    """All of an answer; raises _NoAnswer, OSError and HTTPException where it has no end."""
    import http.client

    body = bytearray()
    while part := response.read1(_PART):
        body += part
        if len(body) > MOST_BYTES:
            raise _NoAnswer(f"its answer has more than {MOST_BYTES:,} bytes")
        if time.monotonic() > until_s:
            raise _NoAnswer("its answer does not end")
    if response.length:
        raise http.client.IncompleteRead(bytes(body), response.length)
    return bytes(body)


def workers_of(state: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The numbers and reports of the workers that have reported."""
    for number, worker in state.get("workers", {}).items():
        if worker is not None:
            yield int(number), worker


def age_s(state: Mapping[str, Any], worker: Mapping[str, Any]) -> float:
    """How old a worker's part of a state is, in seconds: snapshots are made every few seconds."""
    since_ms: int = state["now_ms"] - worker["taken_ms"]
    return max(0.0, since_ms / 1000)


def unreported(state: Mapping[str, Any]) -> Iterator[str]:
    """A line for each worker without a report."""
    for number, worker in state["workers"].items():
        if worker is None:
            yield f"worker {number} is starting"
    missing = state["workers_expected"] - len(state["workers"])
    if missing > 0:
        yield f"workers without a report: {missing}"
