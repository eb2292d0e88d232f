"""Signature: what each parameter of a handler takes, read from its type hints when the app starts.

At start and not at registration, because hints may name things that are defined further down in
the module. A function whose arguments are not certain is refused here, so that no record fails with
a TypeError of the call.

A batch handler takes lists: value and delivery are their items here.

A parameter takes one of three things: the *delivery* (its hint is `Delivery`, wherever it
stands), the *state* (its hint is the type of what the lifespan yields), or the *value* (the
first of the others). Everything else must have a default, and keeps it.
"""

from __future__ import annotations

import contextlib
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from ackfloor.delivery import Delivery
from ackfloor.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Signature:
    """How a handler is called.

    Attributes:
        is_async: whether it is an `async def`.
        value_type: the hint of the value parameter, of a batch handler that of its items; `bytes`
            where there is none.
        accepts_null: whether that hint admits None, which is to say tombstones.
        value_param: the parameter that takes the decoded value, None where nothing is decoded.
        delivery_param: the parameter that takes the delivery.
        state_params: (name, type) of the parameters that take what the lifespan yields.
        yields: whether it is a generator.
    """

    is_async: bool
    value_type: Any
    accepts_null: bool
    value_param: str | None
    delivery_param: str | None
    state_params: tuple[tuple[str, Any], ...] = ()
    yields: bool = False


def read_signature(
    function: Callable[..., object],
    *,
    handler: str,
    state_type: object = None,
    batch: bool = False,
    results: bool = False,
) -> Signature:
    """Read a handler's hints, or refuse it with the parameter at fault and the fix.

    Args:
        function: the handler.
        handler: its name, for the messages.
        state_type: the type of what the lifespan yields (see `yielded_type`), None for none.
        batch: whether value and delivery come as lists.
        results: whether what it returns or yields is published.
    """
    is_async = check_function(function, handler=handler, batch=batch, results=results)
    hints = _Hints(function, handler)
    value: tuple[str, Any] | None = None
    delivery: str | None = None
    states: list[tuple[str, Any]] = []
    extra: list[inspect.Parameter] = []
    for parameter in hints.parameters:
        hint = hints.resolve(parameter)
        listed = _listed(hint)
        if _is_delivery(listed if batch else hint):
            if delivery is not None:
                raise _refusal(handler, parameter, "a second `Delivery`", "take it once")
            delivery = parameter.name
        elif _is_delivery(hint if batch else listed):
            raise _wrong_deliveries(handler, parameter, batch=batch)
        elif state_type is not None and _takes(hint, state_type):
            states.append((parameter.name, hint))
        elif value is None:
            if batch and listed is None:
                why, fix = "one value, and a batch has many", "write list[...] around its type"
                raise _refusal(handler, parameter, why, fix)
            value = (parameter.name, listed if batch else hint)
        elif parameter.default is inspect.Parameter.empty:
            extra.append(parameter)
    _check_extra(extra, handler, state_type)
    if value is None and delivery is None:
        raise _no_input(function, handler, states)
    _check_kinds(hints.parameters, [value[0] if value else None, delivery, *dict(states)], handler)
    return Signature(
        is_async=is_async,
        value_type=value[1] if value else bytes,
        accepts_null=value is None or admits_null(value[1]),
        value_param=value[0] if value else None,
        delivery_param=delivery,
        state_params=tuple(states),
        yields=is_generator(function),
    )


def check_function(
    function: Callable[..., object], *, handler: str, batch: bool = False, results: bool = False
) -> bool:
    """Refuse what is no plain function; returns whether it is an `async def`.

    Needs no hints, so registration calls it at once. A generator has to have results, one a record.
    """
    field = f"handlers.{handler}"
    if inspect.ismethod(function):
        why, fix = "a bound method", "register a function of a module"
        raise ConfigError(field, function.__qualname__, why, f"{fix} and take state from lifespan=")
    if not inspect.isfunction(function):
        raise ConfigError(
            field, function, "not a function", "register a `def` or `async def` function"
        )
    inner = inspect.unwrap(function)
    if is_generator(function) or is_generator(inner):
        if not results:
            raise ConfigError(
                field, function.__qualname__, "a generator: calling it runs nothing",
                'return instead of yield; to publish what it yields, write to="invoices"',
            )  # fmt: skip
        if batch:
            raise ConfigError(
                field, function.__qualname__, "a generator, and a batch returns one result an item",
                "return a list of the same length as the batch",
            )  # fmt: skip
    if (kind := _kind(function)) != (wrapped := _kind(inner)):
        article = "an" if wrapped.startswith("`a") else "a"
        raise ConfigError(
            field, function.__qualname__, f"a decorator's {kind} around {article} {wrapped}",
            "make the wrapper the same kind of function as what it wraps",
        )  # fmt: skip
    return _is_async(function)


def _is_async(function: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def is_generator(function: Callable[..., object]) -> bool:
    """Whether a function yields."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def returns_nothing(function: Callable[..., object]) -> bool:
    """Whether a function's return hint is None; that of `from __future__` is text."""
    try:
        hints = getattr(inspect.unwrap(function), "__annotations__", {})
    except NameError:  # evaluated late (Python 3.14): it is refused at start
        return False
    return hints.get("return", inspect.Parameter.empty) in (None, "None")


def result_hint(function: Callable[..., object]) -> str:
    """The return hint of a function, as its author wrote it, where it promises a result.

    "" where there is no hint, where it promises nothing (None, Never, NoReturn), or leaves that
    open (Any, object).
    """
    inner = inspect.unwrap(function)
    try:
        written = getattr(inner, "__annotations__", {}).get("return", inspect.Parameter.empty)
    except NameError:  # evaluated late (Python 3.14): it is refused at start
        return ""
    if written is inspect.Parameter.empty:
        return ""
    bearer = types.SimpleNamespace(__annotations__={"return": written})
    hint = written
    # A name that only type checkers know stays text, and is none of those that promise nothing.
    with contextlib.suppress(Exception):
        hint = typing.get_type_hints(bearer, inner.__globals__, _closure(inner))["return"]
    if hint in (types.NoneType, typing.Never, typing.NoReturn, Any, object):
        return ""
    return written if isinstance(written, str) else inspect.formatannotation(written)


def _kind(function: Callable[..., object]) -> str:
    kind = "`async def`" if _is_async(function) else "`def`"
    return f"{kind} that yields" if is_generator(function) else kind


def yielded_type(lifespan: Callable[..., object]) -> object:
    """The type of what a lifespan yields, by its return hint; None where there is no such hint.

    Understands `AsyncIterator[T]`, `AsyncGenerator[T, None]` and
    `AbstractAsyncContextManager[T]`, with or without `@asynccontextmanager` around it.
    """
    inner = inspect.unwrap(lifespan)
    try:
        hint = typing.get_type_hints(inner, include_extras=True).get("return")
    except (NameError, TypeError):
        return None
    arguments = get_args(hint)
    if not arguments or arguments[0] is None or arguments[0] is types.NoneType:
        return None
    found: object = arguments[0]
    return found


def admits_null(hint: object) -> bool:
    """Whether a hint admits None."""
    hint = _plain(hint)
    if hint is None or hint is types.NoneType or hint is Any:
        return True
    return get_origin(hint) in (Union, types.UnionType) and any(
        admits_null(choice) for choice in get_args(hint)
    )


class _Hints:
    """A function's parameters; hints are resolved one by one, so that errors name the parameter."""

    def __init__(self, function: Callable[..., object], handler: str) -> None:
        self._handler = handler
        inner = inspect.unwrap(function)
        self._globals = getattr(inner, "__globals__", {})
        self._locals = _closure(inner)
        try:
            self.parameters = tuple(inspect.signature(function).parameters.values())
        except NameError as exc:  # hints that are evaluated late (Python 3.14)
            raise ConfigError(
                f"handlers.{handler}", inner, f"a hint can't be resolved: {exc}", _IMPORT_IT
            ) from exc
        first = self.parameters[0] if self.parameters else None
        if first and first.name in ("self", "cls") and first.annotation is first.empty:
            why = f"an unbound method: nothing to pass as `{first.name}`"
            fix = "register a function of a module and take state from lifespan="
            raise _refusal(handler, first, why, fix)

    def resolve(self, parameter: inspect.Parameter) -> Any:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            why = "takes anything, so nothing says what to pass"
            raise _refusal(self._handler, parameter, why, "name its parameters")
        if parameter.annotation is inspect.Parameter.empty:
            why = "has no type hint"
            fix = "write one: bytes, str, a pydantic model, or `Delivery`"
            raise _refusal(self._handler, parameter, why, fix)
        bearer = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
        try:
            hints = typing.get_type_hints(bearer, self._globals, self._locals, include_extras=True)
        except Exception as exc:
            why = f"its hint can't be resolved: {exc}"
            raise _refusal(self._handler, parameter, why, _IMPORT_IT) from exc
        return hints[parameter.name]


_IMPORT_IT = "import it outside `if TYPE_CHECKING:` and define it at module level"


def _closure(function: Callable[..., object]) -> dict[str, object]:
    """The local names that the function itself refers to: classes of an enclosing function."""
    found: dict[str, object] = {}
    code = getattr(function, "__code__", None)
    for name, cell in zip(
        code.co_freevars if code else (), getattr(function, "__closure__", None) or (), strict=False
    ):
        with contextlib.suppress(ValueError):  # an empty cell: not assigned yet
            found[name] = cell.cell_contents
    return found


def _plain(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def _listed(hint: Any) -> Any:
    """`Order` of `list[Order]`; None of what is no list of something."""
    hint = _plain(hint)
    return get_args(hint)[0] if get_origin(hint) is list else None


def _wrong_deliveries(handler: str, parameter: inspect.Parameter, *, batch: bool) -> ConfigError:
    if batch:
        return _refusal(handler, parameter, "a batch has many deliveries", "write list[Delivery]")
    why = "a list of deliveries, and it takes one record at a time"
    return _refusal(handler, parameter, why, "write `Delivery`, or pass batch=100")


def _is_delivery(hint: object) -> bool:
    hint = _plain(hint)
    if get_origin(hint) in (Union, types.UnionType):
        choices = [_plain(choice) for choice in get_args(hint)]
        return Delivery in choices and all(c in (Delivery, types.NoneType) for c in choices)
    return hint is Delivery


def _takes(hint: object, state_type: object) -> bool:
    """Whether a parameter with this hint takes the state: its type, or a base of its own."""
    hint, state_type = _plain(hint), _plain(state_type)
    if hint == state_type:
        return True
    if not (isinstance(hint, type) and isinstance(state_type, type)):
        return False
    # A base class counts when it is the application's own: `object`, `dict` or `BaseModel`
    # as a hint says what is decoded, not which state is meant.
    library = hint.__module__.partition(".")[0] in ("builtins", "pydantic", "typing", "abc")
    return not library and hint in state_type.__mro__


def _check_extra(extra: list[inspect.Parameter], handler: str, state_type: object) -> None:
    if extra:
        known = (
            f"lifespan= yields {getattr(state_type, '__name__', state_type)}"
            if state_type is not None
            else "no lifespan= with a return hint yields it"
        )
        why = f"nothing to pass: the value is taken and {known}"
        raise _refusal(handler, extra[0], why, "give it a default, or yield it from lifespan=")


def _no_input(
    function: Callable[..., object], handler: str, states: list[tuple[str, Any]]
) -> ConfigError:
    why = "takes neither the value nor the delivery"
    fix = "add a parameter: `value: bytes`, a model, or `delivery: Delivery`"
    if states:
        why = f"takes only what lifespan= yields (`{states[0][0]}`)"
        fix = "yield a class of its own from lifespan=, or add `delivery: Delivery`"
    return ConfigError(f"handlers.{handler}", function.__name__, why, fix)


def _check_kinds(
    parameters: tuple[inspect.Parameter, ...], used: list[str | None], handler: str
) -> None:
    """A single argument is passed by position, several by name: both must be possible."""
    names = [name for name in used if name is not None]
    single = len(names) == 1
    for parameter in parameters:
        if parameter.name not in names:
            continue
        if single and parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            raise _refusal(handler, parameter, "is keyword-only", "drop the * before it")
        if not single and parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise _refusal(handler, parameter, "is positional-only", "drop the / before it")


def _refusal(handler: str, parameter: inspect.Parameter, why: str, fix: str) -> ConfigError:
    return ConfigError(f"handlers.{handler}.{parameter.name}", str(parameter), why, fix)
