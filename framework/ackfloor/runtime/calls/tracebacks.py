"""Tracebacks: formats them as Python does, without reading source files each time.

The standard library checks each file of each traceback for changes, and parses each line to
underline a part of it. While it does, other threads take the interpreter, and it waits for its
turn: with a handler that fails for every record this was the limit. Such a handler raises in the
same few places. So the text of a place is cached.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from types import CodeType, TracebackType

#: Places that are cached: code that is made anew again and again must not fill the memory.
MOST = 4_096
#: The standard library formats longer ones: it shortens repeated frames.
DEEPEST = 50
#: The standard library adds to the text of these: the place, or a suggestion.
LOOKED_UP = (SyntaxError, NameError, AttributeError, ImportError)

#: (code, instruction) -> what is printed of it, its file, and its function.
_places: dict[tuple[CodeType, int], tuple[str, str, str]] = {}

_HEAD = "Traceback (most recent call last):\n"
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"

Frames = list[tuple[str, str]]


def format_exception(exc: BaseException) -> tuple[str, Frames]:
    """A traceback as Python prints it, and file and function of its frames, outermost first."""
    chain = _chain(exc)
    stacks = [_stack(one.__traceback__) for one, _ in chain]
    if any(isinstance(one, BaseExceptionGroup) for one, _ in chain) or None in stacks:
        whole = traceback.TracebackException.from_exception(exc, compact=True)
        return "".join(whole.format()), [(frame.filename, frame.name) for frame in whole.stack]
    text, frames = "", Frames()
    for (one, joint), stack in zip(chain, stacks, strict=True):
        lines, frames = stack or ("", Frames())
        head = _HEAD if one.__traceback__ is not None else ""
        text = "".join((text, joint, head, lines, *_only(one)))
    return text, frames


def _chain(exc: BaseException) -> list[tuple[BaseException, str]]:
    """An exception and its causes, in printed order, each with the line printed before it."""
    found: list[tuple[BaseException, str]] = []
    seen: set[int] = set()
    one: BaseException | None = exc
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        before, joint = one.__cause__, _CAUSE
        if before is None and not one.__suppress_context__:
            before, joint = one.__context__, _CONTEXT
        found.append((one, "" if before is None or id(before) in seen else joint))
        one = before
    return found[::-1]


def _only(exc: BaseException) -> Iterable[str]:
    """The lines without a stack."""
    if isinstance(exc, LOOKED_UP) or hasattr(exc, "__notes__"):
        return traceback.format_exception_only(type(exc), exc)
    kind = type(exc)
    name = kind.__qualname__
    if kind.__module__ not in ("__main__", "builtins"):
        name = f"{kind.__module__}.{name}"
    try:
        text = str(exc)
    except BaseException:
        text = "<exception str() failed>"
    return (f"{name}: {text}\n" if text else f"{name}\n",)


def _stack(tb: TracebackType | None) -> tuple[str, Frames] | None:
    """What is printed of a stack, and its frames; None where it is too deep for this."""
    lines: list[str] = []
    frames: Frames = []
    while tb is not None:
        key = (tb.tb_frame.f_code, tb.tb_lasti)
        place = _places.get(key)
        if place is None:
            summary = traceback.extract_tb(tb, limit=1)
            place = ("".join(summary.format()), summary[0].filename, summary[0].name)
            if len(_places) >= MOST:
                _places.clear()
            _places[key] = place
        lines.append(place[0])
        frames.append(place[1:])
        if len(frames) > DEEPEST:
            return None
        tb = tb.tb_next
    return "".join(lines), frames
