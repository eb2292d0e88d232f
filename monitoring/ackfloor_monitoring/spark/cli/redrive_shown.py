"""How a redrive is shown: what it would do, how far it is, what it did. No payload is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from ackfloor.redrive import Left, Tally

if TYPE_CHECKING:
    from ackfloor.redrive import DeadLetter, Preview

CAUSES = 10


def report_of(dlq: str, preview: Preview) -> dict[str, Any]:
    """A dry run as JSON."""
    return {
        "dlq": dlq,
        "target": preview.target.topic,
        "would_send": preview.tally.sent,
        "left": dict(preview.tally.left),
        "causes": [
            {"handler": handler, "reason": reason, "error_type": error, "count": count}
            for (handler, reason, error), count in preview.causes.most_common()
        ],
        "samples": [_sample(letter) for letter in preview.samples],
    }


def _sample(letter: DeadLetter) -> dict[str, Any]:
    told = letter.envelope
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "origin": f"{told.origin_topic}/{told.origin_partition}/{told.origin_offset}",
        "handler": told.handler,
        "reason": told.reason,
        "error_type": told.error_type,
        "attempt": told.attempt,
        "replays": told.replays,
    }


def text_of(dlq: str, preview: Preview) -> str:
    """A dry run for people."""
    lines = [line_of(dlq, preview.target.topic, preview.tally, verb="would be sent")]
    causes = preview.causes.most_common(CAUSES)
    lines += [f"  {count:>9,}  {_cause(*cause)}" for cause, count in causes]
    if more := len(preview.causes) - len(causes):
        lines.append(f"  {'':>9}  and {more} other causes")
    for letter in preview.samples:
        told = letter.envelope
        lines.append(
            f"    {letter.partition}/{letter.offset}  from {told.origin_topic}/"
            f"{told.origin_partition}/{told.origin_offset}, attempt {told.attempt}, "
            f"replayed {told.replays} times"
        )
    return "\n".join(lines)


def _cause(handler: str, reason: str, error: str) -> str:
    return ", ".join(part for part in (handler, reason, error) if part) or "not said"


def line_of(dlq: str, target: str, tally: Tally, verb: str = "sent") -> str:
    """What a job did, or would do."""
    lines = [f"{dlq} to {target}: {tally.sent:,} {verb}"]
    left = sorted(tally.left.items(), key=lambda each: list(Left).index(each[0]))
    lines += [f"  {count:>9,}  left: {why.words}" for why, count in left]
    if tally.stopped:
        lines.append(f"  stopped: {tally.stopped}")
    return "\n".join(lines)


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error where that is a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("dead letters", total=total)
        yield lambda done: progress.update(bar, completed=done)
