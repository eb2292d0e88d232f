"""Late commands: a group whose commands are imported when one of them is run, not before.

`ackfloor --version`, `--help` and completion ask for names and one-line helps alone. Those are in a
table; behind them stand the Kafka client, the settings and all that a run is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Group(TyperGroup):
    """A group of commands whose own options are flags: to read them takes no conversion."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what stands in front of the command."""
        for each in self.get_params(ctx):
            # typer's own: `--help`, and those for completion. It converts None with pydantic,
            # whose import takes as long as all else that the help of a command needs.
            if getattr(each, "is_flag", False) and each.default is None:
                each.default = False
        return super().parse_args(ctx, args)


class _Listed(TyperCommand):
    """A name and a help, for lists of commands."""

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 -- lists wrap it
        """The whole line."""
        return self.help or ""


@dataclass(frozen=True)
class Late:
    """A command, or a group of commands, that is imported when it is needed.

    Attributes:
        name: on the command line.
        load: imports it; returns a typer app or the function of a command.
        short: its help in one line; None where only what is imported knows.
    """

    name: str
    load: Callable[[], Any]
    short: str | None = None

    @classmethod
    def at(cls, name: str, place: str, short: str) -> Late:
        """What is at MODULE:ATTRIBUTE."""
        module, _, attribute = place.partition(":")
        return cls(name, lambda: getattr(import_module(module), attribute), short)

    @cached_property
    def command(self) -> Any:
        """It itself, or None where it can't be imported, which a warning says."""
        try:
            return self._made(self.load())
        except Exception as exc:
            if self.short is not None:  # ours: a bug keeps its traceback
                raise
            # Another package's code may raise anything, and breaks no other command.
            text = f"warning: the commands {self.name!r} can't be loaded: {exc!r}"
            typer.secho(text, fg="yellow", err=True)
            return None

    def _made(self, found: Any) -> Any:
        from ackfloor.cli.shared.command_options import Commands

        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name = self.name
            return group
        alone = Commands(name="ackfloor", variables="{command}")
        alone.command(self.name)(found)
        return typer.main.get_group(alone).commands[self.name]

    @cached_property
    def listed(self) -> Any:
        """What lists of commands show of it: its name and its help in one line."""
        return self.command if self.short is None else _Listed(self.name, help=self.short)


class _Commands(Mapping[str, Any]):
    """Name -> command, imported when it is asked for; without those that can't be."""

    def __init__(self, late: Callable[[], Mapping[str, Late]]) -> None:
        self._late = late

    def __getitem__(self, name: str) -> Any:
        return self._late()[name].command

    def __contains__(self, name: object) -> bool:
        return name in self._late()

    def __iter__(self) -> Iterator[str]:
        return (name for name, late in self._late().items() if late.listed is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def late_group(known: Callable[[], Iterator[Late]]) -> type[TyperGroup]:
    """A class of groups with these commands; of two with one name the first counts.

    Args:
        known: names the commands; it is called when the first of them is asked for.
    """

    @cache
    def late() -> Mapping[str, Late]:
        found: dict[str, Late] = {}
        for each in known():
            found.setdefault(each.name, each)
        return found

    class LateGroup(Group):
        """The group."""

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.commands = _Commands(late)  # type: ignore[assignment]

        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 -- typer gives it
            """The names, in the table's order."""
            return list(self.commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 -- likewise
            """What lists show of a command."""
            found = late().get(cmd_name)
            return None if found is None else found.listed

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """The command that is to be run."""
            name, command, rest = super().resolve_command(ctx, args)
            return name, command and self.commands[str(name)], rest

    return LateGroup
