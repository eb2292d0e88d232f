"""Tracebacks: formats them as Python does, without reading source files each time.

The standard library checks each file of each traceback for changes, and parses each line to
underline a part of it. While it does, other threads take the interpreter, and it waits for its
turn: with a handler that fails for every record this was the limit. Such a handler raises in the
same few places. So the text of a place is cached.

The frames that call a user's handler, and go between it and its middleware, are left out: they are
the same for every failure. What a handler has called of ours stays. Where there are no other frames
they all stay.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, TracebackType

#: Places that are cached: code that is made anew again and again must not fill the memory.
MOST = 4_096
#: The standard library formats longer ones: it shortens repeated frames.
DEEPEST = 50
#: The standard library adds to the text of these: the place, or a suggestion.
LOOKED_UP = (SyntaxError, NameError, AttributeError, ImportError)

_RUNTIME = Path(__file__).resolve().parents[1]
#: The files that call handlers.
_CALLERS = (
    f"{_RUNTIME / 'executors'}/",
    *(
        str(_RUNTIME / "calls" / name)
        for name in ("invoke.py", "invoke_batch.py", "results.py", "batch_results.py", "spans.py")
    ),
)

#: (code, instruction) -> what is printed of it, its file, and its function.
_places: dict[tuple[CodeType, int], tuple[str, str, str]] = {}

_HEAD = "Traceback (most recent call last):\n"
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"

Frames = list[tuple[str, str]]


def format_exception(exc: BaseException) -> tuple[str, Frames]:
    """A traceback as Python prints it, and file and function of its frames, outermost first.

    Without the frames that have called the handler.
    """
    text, frames = "", Frames()
    for one, joint in _chain(exc):
        stack = None if isinstance(one, BaseExceptionGroup) else _stack(one.__traceback__)
        if stack is None:
            whole = traceback.TracebackException.from_exception(exc, compact=True)
            for part in _parts(whole):
                part.stack[:] = [f for f in part.stack if not _calls(f.filename)] or part.stack
            return "".join(whole.format()), [(frame.filename, frame.name) for frame in whole.stack]
        lines, frames = stack
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
    kept = [index for index, (file, _) in enumerate(frames) if not _calls(file)]
    if 0 < len(kept) < len(frames):
        return "".join(lines[index] for index in kept), [frames[index] for index in kept]
    return "".join(lines), frames


def _calls(file: str) -> bool:
    """Whether this file calls handlers."""
    return file.startswith(_CALLERS)


def _parts(whole: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """An exception, its causes, and what is in them where they are groups."""
    left = [whole]
    while left:
        part = left.pop()
        yield part
        left += part.exceptions or ()
        left += (one for one in (part.__cause__, part.__context__) if one is not None)
