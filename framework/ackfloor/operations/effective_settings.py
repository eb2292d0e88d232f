"""EffectiveSettings: what a run's settings are now, and where each value comes from.

It is what `ackfloor config show` prints, said by the run itself: with what was changed since it
began, and secrets as `***`. A run tells it to whoever has its token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ackfloor.live.run_control import PATH
from ackfloor.operations.run_client import ControlFailed, ask
from ackfloor.operations.run_tls import SYSTEM, Trust


class SettingValue(NamedTuple):
    """One setting of a run.

    Attributes:
        name: such as "handlers.bill.rate".
        value: as its user would write it; a secret is `***`.
        source: where it was set, such as "environment ACKFLOOR_APP__WORKERS"; "built-in" where it
            was not, "config set" where it was changed while the run runs.
        live: whether it may change while the run runs.
    """

    name: str
    value: str
    source: str
    live: bool


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """Those of one run.

    Attributes:
        run: its address.
        group: its consumer group.
        settings: those that are not about one handler.
        handlers: those of each handler that it runs, by the handler's name.
    """

    run: str
    group: str
    settings: Sequence[SettingValue]
    handlers: Mapping[str, Sequence[SettingValue]]

    def all(self) -> Iterator[SettingValue]:
        """All of them, in the order of the reference."""
        yield from self.settings
        for values in self.handlers.values():
            yield from values


def ask_settings(listen: str, token: str, trust: Trust = SYSTEM) -> EffectiveSettings:
    """The settings of a run now.

    Args:
        listen: its address.
        token: its own.

    Raises:
        ControlFailed: there is no answer, the token is not its own or could be read on the way, or
            it takes no requests.
        ConfigError: whom to trust can't be read.
    """
    tree = ask(listen, token, PATH, trust)
    try:
        handlers = {str(name): _values(rows) for name, rows in tree["handlers"].items()}
        return EffectiveSettings(listen, str(tree["group"]), _values(tree["settings"]), handlers)
    except (AttributeError, KeyError, TypeError) as exc:
        why = f"{listen} tells its settings in a way that is not known here ({exc!r}): it is of"
        raise ControlFailed(f"{why} another release") from exc


def _values(rows: Sequence[Mapping[str, Any]]) -> Sequence[SettingValue]:
    return [
        SettingValue(str(row["name"]), str(row["value"]), str(row["source"]), bool(row["live"]))
        for row in rows
    ]
