"""Tracebacks: what Python prints of an exception, without looking at its source files each time.

The standard library asks the file system for each file of each traceback whether it has changed,
and parses each line to underline a part of it. While it asks, other threads take the interpreter,
and it has to wait for its turn: with a handler that fails for every record this was the limit. Such
a handler raises in the same few places. So what is printed of a place is kept.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from types import CodeType, TracebackType

#: Places that are kept: code that is made anew again and again must not fill the memory.
MOST = 4_096
#: Longer ones are left to the standard library, which shortens what repeats itself.
DEEPEST = 50
#: Of these the standard library tells more than their text: where, or what may have been meant.
LOOKED_UP = (SyntaxError, NameError, AttributeError, ImportError)

#: (code, instruction) -> what is printed of it, its file, and its function.
_places: dict[tuple[CodeType, int], tuple[str, str, str]] = {}

_HEAD = "Traceback (most recent call last):\n"
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"

Frames = list[tuple[str, str]]


def format_exception(exc: BaseException) -> tuple[str, Frames]:
    """A traceback as it is printed, and file and function of its frames, outermost first."""
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
    """What led to an exception, and it, in the order of telling, each with the words before it."""
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
