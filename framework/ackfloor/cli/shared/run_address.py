"""The address of a run: reads its state there, and posts control requests."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer

from ackfloor.cli.shared.parameters import SettingsSource
from ackfloor.core.values.durations import parse_duration
from ackfloor.core.values.setting_error import SettingError
from ackfloor.errors import AckfloorError, ConfigError
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.run_control import PATH, SCHEME
from ackfloor.live.token import FIELD, read_token, token_path
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.settings.app_sections import section_name

LAST_PORT = 65_535
#: The ports of URLs without one.
_PORTS = {"http": 80, "https": 443}
#: Hosts and paths: no space, no control character, no user, query or fragment.
_PLAIN = re.compile(r"[^\x00-\x20\x7f-\U0010ffff@?#\\]+")
#: What to do about a worker that nobody can ask to do something.
_NO_CONTROLS = (
    "takes no requests: it is a worker inside a web service (app.running()), or a run with "
    'app.control = "off"; change its settings file or environment and start it again'
)
#: Seconds for a run to answer with its state, which it has in memory.
STATE_S = 5.0
#: Seconds for a run to carry out a request: it waits for its workers.
POST_S = 20.0

ListenOption = Annotated[
    str | None,
    typer.Option(
        envvar="ACKFLOOR_RUN_LISTEN",
        help="The run's address, the same as that of `ackfloor run --listen`; of a worker inside "
        "a web service HOST:PORT/PATH or a URL, with the path of its pages.",
        show_default="127.0.0.1:9600",
    ),
]
ListensOption = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        envvar="ACKFLOOR_RUN_LISTEN",
        help="The address of a run of the group, as `ackfloor run --listen` has it; of a worker "
        "inside a web service HOST:PORT/PATH or a URL, with the path of its pages; repeatable (in "
        "the variable: separated by spaces).",
        show_default="127.0.0.1:9600",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        help="The file with the run's token, whose path the run logs.",
        show_default="the run's own",
    ),
]


class ControlFailed(AckfloorError):
    """The run did not do what was asked."""


class NoToken(ControlFailed):
    """The file of `--token-file` can't be read, or holds no token."""

    exit_code = Exit.USAGE


class NoAddress(ControlFailed):
    """The value of `--listen` is not an address."""

    exit_code = Exit.USAGE


class Address(NamedTuple):
    """Where the pages of a run are.

    Attributes:
        path: in front of theirs, where a web service has mounted them; without a slash at its end.
        secure: whether they are asked over HTTPS.
    """

    host: str
    port: int
    path: str = ""
    secure: bool = False

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """A connection that is made with the first request."""
        if self.secure:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)


def address_of(listen: str) -> Address:
    """The address of a run: `host:port`, `host:port/path`, or a URL; raises NoAddress for others.

    A URL needs no port.
    """
    scheme, of_url, rest = listen.rpartition("://")
    authority, _, path = rest.partition("/")
    host, colon, port = authority.rpartition(":")
    if scheme in _PORTS and (not colon or authority.endswith("]")):
        host, port = authority, str(_PORTS[scheme])
    host = host.strip("[]")
    number = int(port) if port.isascii() and port.isdecimal() else LAST_PORT + 1
    known = scheme in _PORTS if of_url else True
    if not known or not host or number > LAST_PORT or not _PLAIN.fullmatch(host + path):
        raise NoAddress(
            f"--listen={listen!r}: not an address; write host:port, such as "
            '"127.0.0.1:9600", with the path of the pages where a web service has them: '
            '"127.0.0.1:8000/ackfloor" or "https://shop.example/ackfloor"'
        )
    # A run that listens on all addresses is asked at the loopback address.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return Address(host, number, f"/{path}".rstrip("/"), scheme == "https")


class OtherGroup(ControlFailed):
    """The run at the address is not one of the group that was named."""


def read_state(listen: str | None, source: SettingsSource | None) -> Any:
    """Read `/state` of a run.

    Args:
        listen: its address; None for the one in the settings.
        source: where the settings are; it may name the group that the run must have.

    Raises:
        ControlFailed: there is no answer, it is not a run's, or that of another group.
    """
    source = source or SettingsSource()
    listen = listen or source.load().app.listen
    _, tree = _asked(listen, "GET", "/state", STATE_S)
    if not isinstance(tree, dict) or not isinstance(tree.get("workers"), dict):
        raise ControlFailed(f"{listen} is no run of ackfloor: it has no /state")
    if source.group is not None and tree.get("group", source.group) != source.group:
        raise OtherGroup(
            f"the run at {listen} is of group {tree['group']!r}, not {source.group!r}: name the "
            f"address of its run with --listen, or as listen in [{section_name(source.group)}.app]"
        )
    return tree


def read_readiness(listen: str) -> Mapping[str, Any]:
    """Read `/readyz` of a run: whether it is ready, why not, and what people should know.

    Args:
        listen: its address.

    Raises:
        ControlFailed: there is no answer, or it is not a run's.
    """
    _, tree = _asked(listen, "GET", "/readyz", STATE_S)
    if not isinstance(tree, dict) or "ready" not in tree:
        raise ControlFailed(f"{listen} is no run of ackfloor: it has no /readyz")
    return tree


def state_if_any(listen: str | None, source: SettingsSource | None) -> Mapping[str, Any]:
    """The run's state, empty if no run of the group answers; with `--listen` a run must answer."""
    try:
        state: Mapping[str, Any] = read_state(listen, source)
    except OtherGroup:
        return {}
    except ControlFailed:
        if listen is not None:
            raise
        return {}
    return state


def runs_of(listen: list[str] | None, source: SettingsSource | None) -> list[str]:
    """The addresses of the runs to ask: as given, each once, or the settings' own."""
    given = list(dict.fromkeys(listen or ()))
    return given or [(source or SettingsSource()).load().app.listen]


def credentials(
    listen: str | None, token_file: Path | None, source: SettingsSource | None
) -> tuple[str, str]:
    """The address and the token of a run: as given, else from the settings.

    Raises:
        ControlFailed: the address is invalid, the token can't be read, or a group was named and
            no run of it answers.
    """
    source = source or SettingsSource()
    if listen is not None:
        address_of(listen)
    named = FIELD if token_file is None else "--token-file"
    if listen is None or token_file is None:
        app = source.load().app
        listen = listen or app.listen
        token_file = token_file or token_path(listen, app.control_token_file)
    if source.group is not None:
        # The address may be a default that a run of another app has.
        read_state(listen, source)
    try:
        return listen, read_token(token_file, named)
    except ConfigError as exc:
        if named == FIELD:
            _refuse_without_controls(listen)
        failed = ControlFailed if named == FIELD else NoToken
        raise failed(str(exc)) from None


def _refuse_without_controls(listen: str) -> None:
    """Say of a run that takes no requests that it needs no token either; raises ControlFailed."""
    try:
        response, _ = _asked(listen, "POST", PATH, STATE_S, b"")
    except ControlFailed:  # nobody is there: the missing token says so
        return
    if response.status == http.client.METHOD_NOT_ALLOWED:
        raise ControlFailed(f"{listen} {_NO_CONTROLS}")


def post(listen: str, token: str, path: str, tree: object) -> Any:
    """Post a control request to a run; returns its answer.

    Args:
        path: of the control.

    Raises:
        ControlFailed: there is no answer, or the request is refused.
    """
    headers = {"Authorization": SCHEME + token, "Content-Type": "application/json"}
    body = json.dumps(tree).encode()
    response, answer = _asked(listen, "POST", path, POST_S, body, headers)
    if response.status == http.client.OK and isinstance(answer, dict):
        return answer
    why = answer.get("error", "") if isinstance(answer, dict) else ""
    if response.status == http.client.METHOD_NOT_ALLOWED:
        raise ControlFailed(f"{listen} {_NO_CONTROLS}")
    raise ControlFailed(f"{listen} refused ({response.status}): {why or response.reason}")


def order_terms(for_: str | None, reason: str | None) -> dict[str, Any]:
    """The part of an order about a handler that comes from `--for` and `--reason`.

    Raises:
        SettingError: one of them has an invalid value.
    """
    terms: dict[str, Any] = {"reason": checked_reason("--reason", reason)}
    if for_ is not None:
        terms["for_s"] = parse_duration(for_, field="--for")
        if not terms["for_s"]:
            raise SettingError("--for", for_, "no time at all", 'write a duration such as "30m"')
    return terms


def checked_reason(option: str, reason: str | None) -> str:
    """An operator's reason, empty where there is none; raises SettingError for one too long."""
    if len(reason or "") > LONGEST_REASON:
        shown, most = f"{(reason or '')[:20]}...", f"at most {LONGEST_REASON} characters"
        raise SettingError(option, shown, "too long to be shown", f"write {most}")
    return reason or ""


def _asked(
    listen: str,
    method: str,
    path: str,
    timeout_s: float,
    body: bytes | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[http.client.HTTPResponse, object]:
    """The response of a run and its JSON body; None if the body is no JSON.

    Raises:
        ControlFailed: there is no answer.
    """
    address = address_of(listen)
    with closing(address.connection(timeout_s)) as connection:
        try:
            connection.request(method, address.path + path, body, headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as exc:
            why = f"no run answers at {listen}: {exc}; is it running, and is this its --listen?"
            raise ControlFailed(why) from None
    try:
        return response, json.loads(body)
    except ValueError:
        return response, None


def exit_unless_all_applied(workers: Mapping[str, Any]) -> None:
    """Print which workers refused a change or have not answered yet.

    Raises:
        typer.Exit: there are such workers.
    """
    for worker, why in workers["refused"].items():
        typer.secho(f"worker {worker} did not take it: {why}", fg="red", err=True)
    if workers["silent"]:
        silent = ", ".join(map(str, workers["silent"]))
        typer.secho(f"no answer yet from worker {silent}; see /readyz", fg="yellow", err=True)
    if workers["refused"] or workers["silent"]:
        raise typer.Exit(Exit.PARTIAL)


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
