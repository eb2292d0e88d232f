"""How a redrive job is shown: its dry run, progress and result.

Of payloads only the changes of an edit are shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Any

from ackfloor.core.records.redaction import Redaction
from ackfloor.core.values.printable import plain
from ackfloor.dead_letters.rules.dispositions import Disposition
from ackfloor.dead_letters.rules.redrive_jobs import resumable, resuming
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, Left, Order
from ackfloor.dead_letters.rules.redrive_tally import Preview, Tally

CAUSES = 10


def counted_dead_letters(count: int) -> str:
    """`3 dead letters`."""
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


#: What is done, in words: done, and to do.
DONE = {
    Disposition.REPLAYED: "sent",
    Disposition.DISCARDED: "discarded",
    Disposition.ARCHIVED: "archived",
}
TO_DO = {
    Disposition.REPLAYED: "Send",
    Disposition.DISCARDED: "Discard",
    Disposition.ARCHIVED: "Archive",
}


def report_of(order: Order, preview: Preview, rules: Redaction) -> dict[str, Any]:
    """A dry run as JSON."""
    # Not at the top: programs that import this need no terminal.
    from ackfloor.dead_letters.commands.dead_letter_views import changed_lines

    return {
        "dlq": order.dlq,
        "target": preview.target.topic,
        f"would_{TO_DO[order.action].lower()}": preview.tally.sent,
        "left": dict(preview.tally.left),
        "causes": [
            {"handler": handler, "reason": reason, "error_type": error, "count": count}
            for (handler, reason, error), count in preview.causes.most_common()
        ],
        "samples": [_sample(dead_letter) for dead_letter in preview.samples],
        "perhaps_too_large": preview.perhaps,
        "edited": preview.edited,
        "changes": [
            {
                "partition": before.partition,
                "offset": before.offset,
                "lines": changed_lines(before, after, rules),
            }
            for before, after in preview.changes
        ],
    }


def result_of(order: Order, target: str, tally: Tally) -> dict[str, Any]:
    """What a job did, as JSON."""
    return {
        "dlq": order.dlq,
        "job": order.job,
        "target": target,
        DONE[order.action]: tally.sent,
        "left": dict(tally.left),
        "stopped": tally.stopped,
        "remaining": tally.remaining,
        "resume": resume_of(order, tally) if tally.stopped else None,
    }


def resume_of(order: Order, tally: Tally) -> str | None:
    """The command that goes on with a job; None where that is the command that began it."""
    # A note exists where something was sent; it can be resumed if it says what was asked for.
    keeps = order.kept is not None or order.keeps_selection
    noted = tally.sent or order.resumes or keeps
    if not (noted and resumable(order.asked)):
        return None
    if "where" in order.asked:  # of `spark replay`, over several topics
        table = quote(order.asked["table"])
        return f"ackfloor spark replay --table {table} --resume {order.job} --yes"
    return f"{resuming(order.dlq, order.job, sends=order.sends)} --yes"


def _sample(dead_letter: DeadLetter) -> dict[str, Any]:
    envelope = dead_letter.envelope
    return {
        "partition": dead_letter.partition,
        "offset": dead_letter.offset,
        "origin": dead_letter.origin or None,
        "handler": envelope.handler,
        "reason": envelope.reason,
        "error_type": envelope.error_type,
        "attempt": envelope.attempt,
        "replays": envelope.replays,
    }


def text_of(order: Order, preview: Preview, rules: Redaction) -> str:
    """A dry run for people."""
    from ackfloor.dead_letters.commands.dead_letter_views import changed_lines

    would = f"would be {DONE[order.action]}"
    lines = [line_of(order, preview.target.topic, preview.tally, verb=would)]
    causes = preview.causes.most_common(CAUSES)
    lines += [f"  {count:>9,}  {_cause(*cause)}" for cause, count in causes]
    if more := len(preview.causes) - len(causes):
        lines.append(f"  {'':>9}  and {more} other causes")
    for dead_letter in preview.samples:
        envelope = dead_letter.envelope
        origin = f"from {dead_letter.origin}" if dead_letter.origin else ""
        if envelope.origin_topic is None:
            origin = ", ".join(filter(None, ("no header of ours", origin)))
        lines.append(
            f"    {dead_letter.partition}/{dead_letter.offset}  {origin}, "
            f"attempt {envelope.attempt}, replayed {envelope.replays} times"
        )
    if preview.perhaps:
        lines.append(f"  {preview.perhaps:>9,}  of them {preview.perhaps_text}")
    if preview.edited:
        lines.append(f"  {preview.edited:>9,}  of them edited")
    for before, after in preview.changes:
        lines.append(f"    {before.partition}/{before.offset}")
        lines += [f"      {line}" for line in changed_lines(before, after, rules)]
    return plain("\n".join(lines))


def _cause(handler: str, reason: str, error: str) -> str:
    return ", ".join(part for part in (handler, reason, error) if part) or "not said"


def line_of(order: Order, target: str, tally: Tally, verb: str = "") -> str:
    """What a job did, or would do."""
    where = f"{order.dlq} to {target}" if target else order.dlq
    lines = [f"{where}: {tally.sent:,} {verb or DONE[order.action]}"]
    left = sorted(tally.left.items(), key=lambda each: list(Left).index(each[0]))
    lines += [f"  {count:>9,}  left out: {why.words}" for why, count in left]
    if tally.stopped:
        lines.append(f"  {tally.remaining:>9,}  not {DONE[order.action]}")
        lines.append(f"  stopped: {tally.stopped} (job {order.job})")
        how = resume_of(order, tally) or "give the same command again"
        lines.append(f"  to go on: {how}")
    return plain("\n".join(lines))


def left_out_text(order: Order, tally: Tally, why: str, verb: str = "") -> str:
    """A topic whose dead letters stay where they are, and why."""
    return plain(f"{line_of(order, '', tally, verb)}\n  {why}")


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error where that is a terminal, nothing elsewhere.

    Call it with how many are done, and of how many; before the first call the total is unknown.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = TextColumn("dead letters"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
