"""Live settings: which may change while a run runs, and which changes wait for a restart.

Nearly all settings of a handler are live. Of `[app]`, limits, commits and the log level are;
clients, topics, addresses and all of `[kafka]` are not: a change waits for a restart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ackfloor.declare.registration import HandlerSpec, settings_key
from ackfloor.settings.layers import Assigned, Layer, path_of
from ackfloor.settings.model import Settings
from ackfloor.settings.names import Path
from ackfloor.settings.show import SettingRow, handler_rows, rows

#: Of `[app]`.
LIVE_APP = frozenset(
    (
        "max_open",
        "max_open_bytes",
        "partition_open",
        "partition_open_bytes",
        "partition_span",
        "tier_buffer",
        "commit_interval",
        "commit_count",
        "log_level",
    )
)
#: Of a handler: all but these.
FIXED_HANDLER = frozenset(("process_memory_limit", "process_max_records"))


def is_live(path: Path) -> bool:
    """Whether a setting may change while a run runs."""
    if path[0] == "handlers":
        return path[2] not in FIXED_HANDLER
    return path[0] == "app" and path[1] in LIVE_APP


@dataclass(frozen=True, slots=True)
class Changed:
    """One setting with its values before and after, as their user would write them."""

    name: str
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.name} from {self.before or 'unset'} to {self.after or 'unset'}"


def changes(before: Settings, after: Settings, specs: Iterable[HandlerSpec]) -> tuple[Changed, ...]:
    """What differs between two settings of the same app, in the order of the reference."""
    specs = tuple(specs)
    old = {row.name: row for row in rows(before, specs)}
    return tuple(
        Changed(row.name, old[row.name].value if row.name in old else "", row.value, row.source)
        for row in rows(after, specs)
        if row.name not in old or old[row.name].value != row.value
    )


def effective(settings: Settings, specs: Iterable[HandlerSpec]) -> dict[str, object]:
    """Every setting as `config show` has it, and whether it may change while a run runs; for JSON.

    Args:
        specs: the handlers that run, with what operators set applied.
    """
    return {
        "settings": [_shown(row) for row in rows(settings)],
        "handlers": {
            spec.name: [_shown(row) for row in handler_rows(settings, spec)] for spec in specs
        },
    }


def _shown(row: SettingRow) -> dict[str, object]:
    return {**row._asdict(), "live": is_live(path_of(row.name))}


def held_back(started: Layer, wanted: Layer, kept: Collection[Path]) -> Layer:
    """The settings in force after a file changed while the run runs.

    Args:
        started: what the file said when the run started.
        wanted: what it says now.
        kept: live settings that can't change this time, and stay as `started` has them.
    """
    return {path: value for path, value in started.items() if not _counts(path, kept)} | {
        path: value for path, value in wanted.items() if _counts(path, kept)
    }


def _counts(path: Path, kept: Collection[Path]) -> bool:
    return is_live(path) and path not in kept


def restart_needed(started: Settings, wanted: Settings, kept: Collection[Path]) -> tuple[str, ...]:
    """The settings that differ from those a run was started with, and wait for a restart."""
    before, after = started.assigned, wanted.assigned
    return tuple(
        sorted(
            ".".join(path)
            for path in before.keys() | after.keys()
            if not _counts(path, kept) and _value(before, path) != _value(after, path)
        )
    )


def _value(assigned: Mapping[Path, Assigned], path: Path) -> object:
    found = assigned.get(path)
    return None if found is None else found.value


def new_delays(
    before: Iterable[HandlerSpec], after: Iterable[HandlerSpec]
) -> dict[str, tuple[float, ...]]:
    """Handler name -> delays in seconds of its new policy for which it has no retry topic.

    Args:
        before: the handlers as the run was started: their delays have topics.
        after: the same handlers with other settings.
    """
    known = {spec.name: set(spec.tiers()) for spec in before}
    found = {
        spec.name: tuple(s for s in spec.tiers() if s not in known[spec.name]) for spec in after
    }
    return {name: delays for name, delays in found.items() if delays}


def retry_paths(handlers: Iterable[str], *layers: Layer) -> frozenset[Path]:
    """The settings of the retry policies of these handlers."""
    keys = {settings_key(name) for name in handlers}
    return frozenset(
        path
        for layer in layers
        for path in layer
        if path[0] == "handlers" and path[1] in keys and path[2] == "retry"
    )
