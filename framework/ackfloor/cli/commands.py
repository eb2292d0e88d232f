"""What all commands have in common: how a command line is read, whichever command it is for.

An option that takes one value is given once. The parser underneath would take the last value and
say nothing, and of a filter that is what widens a replay or a discard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand


class Command(TyperCommand):
    """A command that refuses an option whose first value would be lost."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line.

        Raises:
            typer.BadParameter: an option of one value is given more than once.
        """
        if not ctx.resilient_parsing:  # else it is half a line, to be completed
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for each, times in Counter(map(id, given)).items():
                option: Any = next(one for one in given if id(one) == each)
                if times > 1 and _is_single(option):
                    raise typer.BadParameter("is given more than once: give it once", ctx, option)
        return super().parse_args(ctx, args)


def _is_single(parameter: Any) -> bool:
    """Whether of two values one would be lost; a flag says the same twice."""
    return (
        parameter.param_type_name == "option" and not parameter.multiple and not parameter.is_flag
    )


class Commands(typer.Typer):
    """A group of such commands."""

    def command(self, *args: Any, **more: Any) -> Callable[[Any], Any]:
        """Register a command, as typer does."""
        return super().command(*args, **{"cls": Command, **more})
