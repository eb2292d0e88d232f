"""What is told of an exception is what Python prints; its files are not asked for again."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from ackfloor import Delivery
from ackfloor.declare.codec import raw
from ackfloor.declare.signature import read_signature
from ackfloor.runtime.calls.invoke import bind
from ackfloor.runtime.calls.tracebacks import DEEPEST, MOST, _places, format_exception


def plain() -> None:
    """Raise in a place whose line is underlined in part."""
    assert {"a": 1}["a"] + {"b": 2}["c"]


def caused() -> None:
    """With a cause."""
    try:
        plain()
    except KeyError as error:
        raise ValueError("because") from error


def made_up() -> None:
    """With a cause that was never raised."""
    try:
        caused()
    except ValueError:
        raise LookupError from OSError("away")


def unhandled_context() -> None:
    """While another was handled."""
    try:
        caused()
    except ValueError:
        plain()


def hidden() -> None:
    """Without what it came from."""
    try:
        plain()
    except KeyError:
        raise ValueError("alone") from None


def in_circles() -> None:
    """Its own cause's cause."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def noted() -> None:
    """With notes."""
    error = ValueError("x")
    error.add_note("a note\nof two lines")
    raise error


def grouped() -> None:
    """Several at once."""
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


def misspelt() -> None:
    """With a suggestion."""
    [].apend(1)  # type: ignore[attr-defined]


def broken() -> None:
    """Source that is none."""
    compile("a b", "nowhere.py", "exec")


def deep(levels: int = DEEPEST + 10) -> None:
    """Repeats itself."""
    if levels:
        deep(levels - 1)
    plain()


class Silent(Exception):
    """Whose text can't be told."""

    def __str__(self) -> str:
        raise RuntimeError


def silent() -> None:
    """Raise it."""
    raise Silent


RAISING = (
    plain, caused, made_up, unhandled_context, hidden, in_circles, noted, grouped, misspelt,
    broken, deep, silent,
)  # fmt: skip


def raised(function: Callable[[], Any]) -> BaseException:
    """What a function raises."""
    with pytest.raises(Exception) as found:  # noqa: PT011
        function()
    return found.value


@pytest.mark.parametrize("function", RAISING)
def test_it_is_what_python_prints(function: Callable[[], None]) -> None:
    """The first time and the second, when the places are known."""
    for _ in range(2):
        error = raised(function)
        text, frames = format_exception(error)
        assert text == "".join(traceback.format_exception(error))
        expected = [
            (frame.filename, frame.name) for frame in traceback.extract_tb(error.__traceback__)
        ]
        assert frames == expected


def test_a_known_place_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its file nor its line."""
    errors = [raised(caused) for _ in range(2)]
    format_exception(errors[0])
    error = errors[1]

    def asked(*_: object) -> None:
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(linecache, "checkcache", asked)
        patch.setattr(linecache, "getline", asked)
        text, _ = format_exception(error)
    assert "because" in text
    assert text == "".join(traceback.format_exception(error))


def test_places_are_forgotten_before_they_are_too_many() -> None:
    """Code that is made anew each time."""
    for _ in range(MOST + 10):
        made: dict[str, Any] = {}
        exec("def boom(): raise ValueError", made)
        try:
            made["boom"]()
        except ValueError as error:
            format_exception(error)
    assert len(_places) <= MOST


def deep(left: int) -> None:
    """Raise below more frames than are formatted here."""
    if not left:
        raise ValueError("deep")
    deep(left - 1)


def grouped(_left: int) -> None:
    """Raise several at once."""
    raise ExceptionGroup("both", [ValueError("one"), KeyError("two")])


@pytest.mark.parametrize(("fails", "left"), [(deep, 0), (deep, DEEPEST + 9), (grouped, 0)])
def test_frames_that_call_the_handler_are_left_out(fails: Callable[[int], None], left: int) -> None:
    """Of a stack of any depth, and of a group; the user's stay."""

    def around(_delivery: object, call_next: Callable[[], object]) -> object:
        return call_next()

    signature = read_signature(takes_a_delivery, handler="h")
    call = bind(lambda _delivery: fails(left), signature, raw, middleware=[around])
    with pytest.raises((ValueError, ExceptionGroup)) as raised:
        call(None)
    told, frames = format_exception(raised.value)
    assert not any("calls/invoke" in file for file, _ in frames)
    assert "calls/invoke" not in told
    names = [name for _, name in frames]
    assert names[1:3] == ["around", "<lambda>"]
    assert names[3:] == [fails.__name__] * (left + 1)


def takes_a_delivery(_delivery: Delivery) -> None:
    """The shape of the handler."""
