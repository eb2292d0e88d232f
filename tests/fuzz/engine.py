"""The engine: tries inputs of a target for a while, keeps what leads further and what breaks it."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz import commits, filters, http, records
from tests.fuzz import settings as of_settings
from tests.fuzz.target import Target

TARGETS = (
    *records.TARGETS,
    *commits.TARGETS,
    *of_settings.TARGETS,
    *filters.TARGETS,
    *http.TARGETS,
)
#: Inputs between two looks at the clock.
ROUND = 300


class Lines:
    """Which lines of ackfloor are reached: (file, line), as a tracer of threads sees them."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()
        self._before: tuple[Any, Any] = None, None

    def __enter__(self) -> Self:
        self._before = sys.gettrace(), threading.gettrace()
        # Also of threads that are begun meanwhile: those of a server.
        threading.settrace(self._called)
        sys.settrace(self._called)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whoever measures coverage has a tracer of its own for new threads.
        ours, threads = self._before
        sys.settrace(ours)
        threading.settrace(threads)

    def _called(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        return self._reached if "/ackfloor" in frame.f_code.co_filename else None

    def _reached(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "line":
            self.seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._reached


@dataclass(slots=True)
class Trial:
    """What came of a target.

    Attributes:
        executions: inputs tried.
        kept: new ones that led to lines which nothing had reached.
        broke: the smallest that broke the check, and how; one of each kind of error.
    """

    executions: int = 0
    kept: list[bytes] = field(default_factory=list)
    broke: dict[str, tuple[bytes, str]] = field(default_factory=dict)


def replay(target: Target) -> int:
    """Try the corpus; returns how many inputs it has. Raises what the check raises."""
    corpus = target.corpus()
    for data in corpus:
        target.check(data)
    return len(corpus)


def explore(
    target: Target, corpus: Sequence[bytes], executions: int, seed_: int, lines: Lines | None = None
) -> Trial:
    """Try so many inputs, the same for the same seed.

    Args:
        corpus: what inputs are made from by changing them.
        lines: where it is given, what reaches a line that is not in it is kept.
    """
    trial = Trial()
    last = b""

    # An input that broke it may be tried again while it is made smaller.
    @seed(seed_)
    @settings(
        max_examples=executions,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(target.inputs(corpus))
    def once(data: bytes) -> None:
        nonlocal last
        last = data
        trial.executions += 1
        if lines is None:
            target.check(data)
            return
        before = len(lines.seen)
        with lines:
            target.check(data)
        if len(lines.seen) > before:
            trial.kept.append(data)

    try:
        once()
    except Exception as exc:  # noqa: BLE001 -- whatever it is, it is what is looked for
        trial.broke[_kind(exc)] = (last, "".join(traceback.format_exception(exc)))
    return trial


def fuzz(target: Target, seconds: float, seed_: int) -> Trial:
    """Try inputs for so long, and keep what leads further."""
    lines, total = Lines(), Trial()
    corpus = target.corpus()
    with lines:
        for data in corpus:
            target.check(data)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        seed_ += 1
        trial = explore(target, corpus, ROUND, seed_, lines)
        corpus += trial.kept
        total.executions += trial.executions
        total.kept += trial.kept
        for kind, broke in trial.broke.items():
            total.broke.setdefault(kind, broke)
        if trial.broke:
            break
    return total


def _kind(exc: BaseException) -> str:
    frames = traceback.extract_tb(exc.__traceback__)
    where = next((f for f in reversed(frames) if "hypothesis" not in f.filename), frames[-1])
    return f"{type(exc).__name__} at {where.filename}:{where.lineno}"
