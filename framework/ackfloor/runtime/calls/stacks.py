"""Stacks: where a running handler is, as file, line and function, the innermost last.

Never what its variables hold, and never a line of its source: whoever may ask for `/state` may see
this. Read from another thread while the handler goes on, so it is where it was a moment ago.
"""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

#: Frames of one stack; of a deeper one the innermost are kept.
MOST_FRAMES = 12
#: What a handler is called through.
_AROUND = ("ackfloor.", "asyncio.", "threading")


def thread_stack(ident: int | None) -> tuple[str, ...]:
    """Where a thread is; empty where there is no such thread."""
    frame = sys._current_frames().get(ident or 0)  # noqa: SLF001 -- the only way to ask
    return _as_text(_outward(frame))


def task_stack(task: asyncio.Task[Any] | None) -> tuple[str, ...]:
    """Where a task is: what it awaits, or what it computes at this moment."""
    frames: list[FrameType] = []
    waiting: Any = None if task is None else task.get_coro()
    while waiting is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(waiting, f"{kind}_frame")), "")
        frame = getattr(waiting, f"{kind}_frame", None)
        if frame is None:
            break
        if getattr(waiting, f"{kind}_running"):
            return _as_text(_computing(frame))
        frames.append(frame)
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return _as_text(frames[::-1])


def _computing(frame: FrameType) -> list[FrameType]:
    """The whole stack of the thread that a frame is on, the innermost first."""
    for innermost in sys._current_frames().values():  # noqa: SLF001 -- as above
        stack = _outward(innermost)
        if frame in stack:
            return stack
    return [frame]


def _outward(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _as_text(frames: list[FrameType]) -> tuple[str, ...]:
    """Frames, the innermost first, as text; without those around the handler."""
    while frames and _module(frames[-1]).startswith(_AROUND):
        frames.pop()
    return tuple(
        f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"
        for frame in frames[:MOST_FRAMES][::-1]
    )


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
