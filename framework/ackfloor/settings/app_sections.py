"""App sections: `[apps.<group>]` of the settings file, and their twins in the environment.

Everything that may stand at the top level may stand in an app's section, where it counts for the
app of this group alone, and more than the top level of the same place. A section is checked when
its app asks for it: an app that is started here need not be able to read what belongs to another.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ackfloor.declare.registration import settings_key
from ackfloor.errors import ConfigError
from ackfloor.settings.layers import HIDDEN, SECTIONS, Assigned, Layer, tables_layer
from ackfloor.settings.names import Path

APPS = "apps"
GROUP: Path = ("app", "group")
#: What TOML takes as one part of a name without quotes.
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """What the settings file says, or the environment.

    Attributes:
        top: what counts for every app.
        section: group -> what counts for its app alone; raises ConfigError.
        groups: those that have a section in the file.
    """

    top: Layer
    section: Callable[[str], Layer]
    groups: tuple[str, ...] = ()

    def remark(self, group: str) -> str:
        """What to tell whoever may have misspelt a group; "" where there is nothing to tell."""
        if not self.groups or group in self.groups:
            return ""
        others = ", ".join(f"[{section_name(each)}.*]" for each in self.groups)
        if not group:
            return f"these sections of single apps do not count here: {others}"
        return f"the settings file has no section [{section_name(group)}.*]; it has {others}"

    def of(self, group: str) -> tuple[Layer, Layer]:
        """What counts for the app of a group, and what of the top level its section hides.

        Raises:
            ConfigError: a name in the section is unknown, or it names another group.
        """
        own = self.section(group) if group else {}
        named = own.get(GROUP, Assigned(group, ""))
        if named.value != group:
            why = f"this is the section of group {group!r}"
            fix = "leave it out here: the group that code or [app] names selects the section"
            raise ConfigError("app.group", named.value, why, fix, source=named.source)
        return self.top | own, {path: self.top[path] for path in own if path in self.top}


NOWHERE = Place({}, lambda _group: {})


def group_of(*layers: Layer) -> str:
    """The app's group as the strongest of these layers names it, the last; "" if none does."""
    named = (str(layer[GROUP].value) for layer in reversed(layers) if GROUP in layer)
    return next(named, "")


def file_place(path: FilePath) -> Place:
    """The settings of an `ackfloor.toml`.

    Raises:
        ConfigError: it can't be read, or its top level is refused.
    """
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as exc:
        reason = exc.strerror or type(exc).__name__
        raise ConfigError("config", str(path), reason, "name a file that can be read") from None
    except (ValueError, RecursionError) as exc:
        raise ConfigError("config", str(path), f"not TOML: {exc}", "mend that line") from None
    source = f"file {path}"
    apps = _apps(tables.pop(APPS, {}), source)
    top = tables_layer(tables, source, (*SECTIONS, APPS))

    def section(group: str) -> Layer:
        _refuse_unquoted(apps, group, source)
        return tables_layer(apps.get(group, {}), f"{source} [{section_name(group)}]")

    return Place(top, section, tuple(apps))


def section_name(group: str) -> str:
    """How a group's section is written in TOML: `apps.billing`, `apps."shop.billing"`."""
    return f"{APPS}.{group}" if _BARE.fullmatch(group) else f'{APPS}."{group}"'


def own_name(name: str, group: str) -> str:
    """A setting's name without its app's section: `app.workers` of `apps.billing.app.workers`.

    Raises:
        ConfigError: it is in the section of another group.
    """
    own = name.removeprefix(f"{APPS}.{group}.").removeprefix(f"{section_name(group)}.")
    if own.startswith(f"{APPS}."):
        why, fix = f"this app's group is {group!r}", f"write {APPS}.{group}.app..., or app..."
        raise ConfigError(name, HIDDEN, why, fix)
    return own


def _apps(apps: object, source: str) -> Mapping[str, Mapping[str, Any]]:
    """The sections by their groups; refuses what is none, and two that variables can't tell."""
    if not isinstance(apps, dict):
        raise ConfigError(APPS, HIDDEN, "not a table", "write [apps.<group>.app]", source=source)
    groups: dict[str, str] = {}
    for group, table in apps.items():
        if not isinstance(table, dict):
            why, fix = "not the section of a group", f"write [apps.<group>.app] above {group}"
            raise ConfigError(f"{APPS}.{group}", HIDDEN, why, fix, source=source)
        other = groups.setdefault(settings_key(group), group)
        if other != group:
            why = f"its variables would be those of {section_name(other)}"
            fix = "rename one of the groups, or give each app a file"
            raise ConfigError(section_name(group), HIDDEN, why, fix, source=source)
    return apps


def _refuse_unquoted(apps: Mapping[str, Any], group: str, source: str) -> None:
    """Refuse `[apps.shop.billing.app]`: TOML reads a table `billing` of the group `shop`."""
    found: Any = apps
    for part in group.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if "." not in group or not isinstance(found, dict):
        return
    for section in found.keys() & set(SECTIONS):
        if isinstance(found[section], dict):
            why = "a dot in a group parts the names of tables"
            fix = f"quote the group: [{section_name(group)}.{section}]"
            raise ConfigError(f"{APPS}.{group}", HIDDEN, why, fix, source=source)
