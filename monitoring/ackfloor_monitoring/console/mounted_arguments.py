"""Arguments of `console_app`: each is checked when the app is made, not when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from pathlib import Path
from urllib.parse import SplitResult

from ackfloor import ConfigError, SettingError
from ackfloor.cli.shared.parameters import Brokers
from ackfloor.operations.run_client import NoAddress
from ackfloor.operations.run_tls import Trust, is_loopback
from ackfloor_monitoring.console.access.gate import Gate, Who
from ackfloor_monitoring.console.access.hosts import own_names, public_url
from ackfloor_monitoring.console.index.index_place import own_folder
from ackfloor_monitoring.console.opened_clusters import Indexing
from ackfloor_monitoring.console.reads.prometheus import Prometheus, place_of
from ackfloor_monitoring.console.reads.runs.run_names import checked
from ackfloor_monitoring.console.reads.spark_report import report_at
from ackfloor_monitoring.console.shown_clusters import (
    ONLY,
    SameCluster,
    ShownCluster,
    refuse_odd_name,
    refuse_the_same,
)

#: So few dead letters are no index.
FEWEST_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class ConsoleCluster:
    """A Kafka cluster that a console shows.

    Attributes:
        settings: its settings file; None for the environment and `ackfloor.toml`, as commands
            have it.
        runs: the addresses of runs, as `ackfloor run --listen` has them, or `dns+NAME:PORT`, or
            `dns+https://NAME:PORT`; none for the one in the settings.
        name: what it is called in the addresses of its pages.
        report: the file that `ackfloor spark report --html` writes; None for none.
        prometheus: the address of a Prometheus that scrapes the runs; None for the console's own
            figures, since its start.
        tls_ca: the certificate that has signed those of runs at `https://` addresses; None for what
            the settings say.
    """

    settings: Path | str | None = None
    runs: Sequence[str] = ()
    name: str = ONLY
    report: Path | str | None = None
    prometheus: str | None = None
    tls_ca: Path | str | None = None


def checked_clusters(given: Sequence[ConsoleCluster]) -> Sequence[ShownCluster]:
    """What is shown; raises SettingError."""
    found = [_shown(each) for each in given]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise SettingError("name", name, "two clusters have it", "give each a name of its own")
    try:
        refuse_the_same(found)
    except SameCluster as exc:
        fix = "name a settings file with other servers for each"
        raise SettingError("clusters", names, str(exc), fix) from None
    return found


def _shown(given: object) -> ShownCluster:
    # Of an app without a type checker anything may come.
    if not isinstance(given, ConsoleCluster):
        raise SettingError("clusters", given, "is no ConsoleCluster", 'ConsoleCluster("FILE.toml")')
    refuse_odd_name("name", given.name)
    if isinstance(given.runs, str):
        raise SettingError("runs", given.runs, "is one text", f"write [{given.runs!r}]")
    for each in given.runs:
        _refuse_no_address("runs", each)
    file = None if given.settings is None else Path(given.settings)
    return ShownCluster(
        given.name,
        Brokers(config=file, tls_ca=None if given.tls_ca is None else _certificate(given.tls_ca)),
        list(given.runs),
        None if given.report is None else report_at("report", Path(given.report)),
        None if given.prometheus is None else Prometheus(place_of("prometheus", given.prometheus)),
    )


def _certificate(given: Path | str) -> Path:
    """The file that says whom to trust; raises SettingError."""
    try:
        Trust(Path(given)).context()
    except ConfigError as exc:
        raise ConfigError.of(exc, field="tls_ca") from None
    return Path(given)


def _refuse_no_address(field: str, given: str) -> None:
    try:
        checked(given)
    except NoAddress as exc:
        why = str(exc).removeprefix(f"--listen={given!r}: ")
        raise SettingError(field, given, why, "such as 127.0.0.1:9600") from None


def checked_files(given: Mapping[str, Path | str]) -> Mapping[str, Path]:
    """Address of a run -> the file with its token; raises SettingError."""
    for address in given:
        _refuse_no_address("run_token_files", address)
    return {address: Path(file) for address, file in given.items()}


def checked_indexing(folder: Path | str | None, rows: int) -> Indexing:
    """How dead letters are indexed; raises SettingError."""
    if rows < FEWEST_ROWS:
        raise SettingError("index_rows", rows, "is too few", f"{FEWEST_ROWS:,} or more")
    named = None if folder is None else Path(folder)
    try:
        own_folder(named)
    except ConfigError as exc:
        raise ConfigError.of(exc, field="index_folder") from None
    return Indexing(named, rows)


def gate_of(url: str, token_file: Path | str | None, who: Who | None) -> Gate:
    """Who comes in; raises SettingError."""
    public = _public(url)
    if (token_file is None) == (who is None):
        why = "everybody who reaches the app could come in" if who is None else "there are two"
        fix = "pass token_file or who, one of them"
        raise SettingError("token_file", token_file, why, fix)
    if who is not None and not _is_async(who):
        why = "is no async function"
        raise SettingError("who", who, why, "async def who(request) -> Person | None")
    names = own_names(public.hostname or "", public)
    secure, file = public.scheme == "https", None if token_file is None else Path(token_file)
    try:
        return Gate(names, secure=secure, token_file=file, who=who)
    except ConfigError as exc:
        raise ConfigError.of(exc, field="token_file") from None


def _public(given: str) -> SplitResult:
    try:
        found = public_url(given)
    except ConfigError as exc:
        raise ConfigError.of(exc, field="public_url") from None
    if found.scheme != "https" and not is_loopback(found.hostname or ""):
        why = "others can reach this address, and without TLS what makes an operator can be read"
        raise SettingError("public_url", given, why, "https://, or a loopback address")
    return found


def _is_async(who: object) -> bool:
    return iscoroutinefunction(who) or iscoroutinefunction(getattr(who, "__call__", None))  # noqa: B004
