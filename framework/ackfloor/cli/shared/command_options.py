"""Commands and their options: how options and their environment variables are read.

An option that takes one value may be given once. The parser underneath would silently take the last
value, and with a filter that could widen a replay or a discard. For the same reason a variable that
looks like one of an option but is none is refused, and so is an option with an empty value, which
is what a shell makes of `--resume "$JOB"` if JOB is not set. A text that is not UTF-8 is refused,
too: no name in Kafka is such a text, printing one fails, and the Kafka client crashes on it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from itertools import accumulate
from typing import Any, Final, get_type_hints

import typer
from typer.core import TyperCommand

from ackfloor.cli.shared.late_commands import Group
from ackfloor.errors import ConfigError

#: What all variables begin with, as in `settings.names`, which the help of a command does not need.
PREFIX: Final = "ACKFLOOR_"
#: Options that may have an empty value: keys of records may be empty.
MAY_BE_EMPTY = frozenset({"key"})

#: Characters of a first sentence: lists of commands wrap it, and cut none.
LONGEST_HELP = 400

#: What typer calls an option's type: several texts, and a number within bounds, which the help has.
_TYPE = re.compile(r"<list\[(?P<one>[^\]]+)\]>|<(?P<number>int|float) range>")


@dataclass(frozen=True, slots=True)
class Made:
    """Marks a parameter that is made from several options: `Annotated[Brokers, Made(of)]`.

    Attributes:
        of: the function that makes it; its parameters are the options.
    """

    of: Callable[..., object]


class Command(TyperCommand):
    """A command that refuses options given twice or with an empty value, and text not in UTF-8.

    Args:
        variables: see `Commands`.
    """

    def __init__(self, *given: Any, variables: str, **more: Any) -> None:
        super().__init__(*given, **more)
        before = variables.format(command=self.name)
        for each in self.params:
            if each.param_type_name == "option" and not each.envvar:
                long = next(one for one in each.opts if one.startswith("--"))
                each.envvar = PREFIX + f"{before}{long[1:]}".replace("-", "_").upper()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line.

        Raises:
            typer.BadParameter: an option of one value is given more than once, or is empty; a text
                is not UTF-8; something is missing, which is told with its help.
        """
        if not ctx.resilient_parsing:  # shell completion: the line is incomplete
            values, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for each, times in Counter(map(id, given)).items():
                option: Any = next(one for one in given if id(one) == each)
                if times > 1 and _is_single(option):
                    raise typer.BadParameter("is given more than once: give it once", ctx, option)
                if values.get(option.name) == "" and option.name not in MAY_BE_EMPTY:
                    why = "is empty: give it a value, or leave it out"
                    raise typer.BadParameter(why, ctx, option)
            for parameter in self.params:
                _refuse_broken_text(ctx, parameter, values.get(parameter.name))
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as refused:
            # Only what is missing comes without a reason. The name alone says not what to give.
            refused.message = refused.message or getattr(refused.param, "help", None) or ""
            raise

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 -- lists wrap it
        """The first sentence of the help, in full."""
        return super().get_short_help_str(LONGEST_HELP)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage: an argument as it is named, with the brackets that it may have itself."""
        named = {id(each): each.metavar for each in _arguments(self.params) if each.metavar}
        found = [self.options_metavar] if self.options_metavar else []
        for each in self.get_params(ctx):
            own = named.get(id(each))
            found += [own] if own else each.get_usage_pieces(ctx)
        return found

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments and the options, with their types as somebody who types them needs it."""
        arguments = [
            (each.metavar or record[0], record[1])
            for each in _arguments(self.params)
            if (record := each.get_help_record(ctx)) is not None
        ]
        options = [
            (_TYPE.sub(lambda found: f"<{found['one'] or found['number']}>", record[0]), record[1])
            for each in self.get_params(ctx)
            if each.param_type_name == "option" and (record := each.get_help_record(ctx))
        ]
        for title, records in (("Arguments", arguments), ("Options", options)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            ConfigError: a variable is misspelt: no option has it.
        """
        _refuse_unknown_variables(ctx.find_root().command)
        return super().invoke(ctx)


def _arguments(parameters: Iterable[Any]) -> list[Any]:
    return [each for each in parameters if each.param_type_name == "argument"]


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """A function in which the options replace the parameters that are `Made` of them."""
    if not _made_of(function):
        return function

    @wraps(function)
    def command(**given: Any) -> None:
        function(**_filled(function, given))

    # Arguments first, as in the help and the reference.
    parameters = sorted(_flat(function), key=lambda each: each.default is not Parameter.empty)
    keywords = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in keywords}
    return command


def _made_of(function: Callable[..., object]) -> dict[str, Callable[..., object]]:
    """The parameters that are made from options, and what makes them."""
    return {
        name: extra.of
        for name, hint in get_type_hints(function, include_extras=True).items()
        for extra in getattr(hint, "__metadata__", ())
        if isinstance(extra, Made)
    }


def _flat(function: Callable[..., object]) -> list[Parameter]:
    """The options of a function, those that its parameters are made of included.

    An option that the function has itself and a part of it needs as well is one: its own.
    """
    made = _made_of(function)
    found: dict[str, Parameter] = {}
    for each in signature(function, eval_str=True).parameters.values():
        if each.name not in made:
            found[each.name] = each
            continue
        for one in _flat(made[each.name]):
            found.setdefault(one.name, one)
    return list(found.values())


def _filled(function: Callable[..., object], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a function from the values of its options."""
    made = _made_of(function)
    return {
        name: made[name](**_filled(made[name], given)) if name in made else given[name]
        for name in signature(function).parameters
    }


def _refuse_unknown_variables(root: Any) -> None:
    if not any(_may_be_an_options(variable.upper(), root) for variable in os.environ):
        return  # all commands would be imported for nothing
    from ackfloor.settings.layers import HIDDEN
    from ackfloor.settings.names import is_service_link, nearest

    twins = tuple(f"{PREFIX}{name.upper()}_" for name in _names(root))
    known = set(_variables(root))
    for variable, value in sorted(os.environ.items()):
        name = variable.upper()
        if name.startswith(twins) and name not in known and not is_service_link(name, value):
            fix = nearest(name, {each: each for each in known}, "`--help` names the variables")
            why = "no option has this variable"
            raise ConfigError(variable, HIDDEN, why, fix, source="the environment")


def _may_be_an_options(variable: str, root: Any) -> bool:
    """Whether a variable begins with the name of a command."""
    words = variable.removeprefix(PREFIX).lower().split("_")
    firsts = accumulate(words, lambda before, word: f"{before}_{word}")
    commands = getattr(root, "commands", {})
    return variable.startswith(PREFIX) and any(each in commands for each in firsts)


def _names(root: Any) -> Iterator[str]:
    """What the variables of options begin with, one for each command.

    Two words where the first is also a section of settings, which are checked elsewhere.
    """
    from ackfloor.settings.layers import SECTIONS

    for name, command in getattr(root, "commands", {}).items():
        if name in SECTIONS:
            yield from (f"{name}_{each}" for each in command.commands)
        else:
            yield name


def _variables(command: Any) -> Iterator[str]:
    """The variables of all options of a command and its sub-commands."""
    for each in getattr(command, "commands", {}).values():
        yield from _variables(each)
    for parameter in command.params:
        found = parameter.envvar or ()
        yield from [found] if isinstance(found, str) else found


def _refuse_broken_text(ctx: Any, parameter: Any, given: object) -> None:
    """Refuse bytes that are not UTF-8, which Python has in a text as lone surrogates.

    Before the values are converted: the error of a converter would hold the text.

    Args:
        given: on the command line: a text, several, a flag's value, or something that is falsy.
    """
    texts = given or parameter.resolve_envvar_value(ctx)
    for text in texts if isinstance(texts, list | tuple) else [texts]:
        if isinstance(text, str) and _is_broken(text):
            seen = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            raise typer.BadParameter(f"'{seen}' is not UTF-8", ctx, parameter)


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_single(parameter: Any) -> bool:
    """Whether an option takes one value; a flag may be repeated."""
    return (
        parameter.param_type_name == "option" and not parameter.multiple and not parameter.is_flag
    )


class Commands(typer.Typer):
    """A group of commands.

    Args:
        name: of the group.
        variables: the prefix of the variable of each option that does not name one; `{command}` is
            the command's name. With "dlq" the variable of --limit is ACKFLOOR_DLQ_LIMIT.
    """

    def __init__(self, *, name: str, variables: str = "", **more: Any) -> None:
        # As markup, help would lose what it has in brackets: `[app]` is a section of the settings.
        super().__init__(name=name, cls=Group, rich_markup_mode=None, **more)
        self._command = partial(Command, variables=variables or name)

    def command(self, *args: Any, **more: Any) -> Callable[[Any], Any]:
        """Register a command, as typer does."""
        register: Any = super().command(*args, **{"cls": self._command, **more})
        return lambda function: register(_with_options(function))
