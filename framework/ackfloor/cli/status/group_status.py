"""What Kafka says of groups, as lines of `ackfloor status`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from ackfloor.cli.shared.times import moment
from ackfloor.cli.status.group_look import (
    MOST_DEAD,
    MOST_WAITING,
    GroupLook,
    open_in,
    source_of,
)
from ackfloor.cli.status.next_commands import NextCommands
from ackfloor.cli.status.status_line import State, StatusLine, counted
from ackfloor.core.acks.progress import Progress, oddity
from ackfloor.core.values.durations import format_rounded

if TYPE_CHECKING:
    from ackfloor.core.records.redaction import Redaction
    from ackfloor.dead_letters.rules.cause_groups import CauseGroup

#: A record that has been due for so long is overdue, as for the alert AckfloorRetryOverdue.
OVERDUE_S: Final = 300.0
#: So many causes are shown, the newest ones.
MOST_CAUSES: Final = 5
#: What is noted of a partition that a group has only just begun to read: no fault.
NO_COMMIT: Final = oddity(Progress("", "", 0, "source"))


def group_lines(
    look: GroupLook, commands: NextCommands, rules: Redaction, now_ms: int
) -> Iterator[StatusLine]:
    """All that is known of a group."""
    line = partial(StatusLine, group=look.group)
    for error in look.errors:
        next_ = commands.asks_kafka("doctor")
        yield line(State.wrong, "group", error, count=1, next=next_)
    yield from _members(look, line, commands)
    yield from _lag(look, line, commands)
    yield from _log(look, line, commands)
    yield from _retry(look, line, commands, now_ms)
    yield from _dead(look, line, commands, rules, now_ms)


Line = Callable[..., StatusLine]


def _members(look: GroupLook, line: Line, commands: NextCommands) -> Iterator[StatusLine]:
    waiting = _sum(look, "source", "retry")
    if look.members is None:
        return
    if look.members:
        yield line(State.ok, "group", counted(look.members, "member"), count=look.members)
    elif not look.progress:
        text = f"nothing is known of group {look.group!r}: no members, no commits, no topics"
        yield line(State.wrong, "group", text, next=commands.asks_kafka("lag"))
    else:
        state = State.wrong if waiting else State.note
        text = f"no members: no worker is running, and {counted(waiting, 'record')} open"
        yield line(state, "group", text, next=commands.asks_kafka("doctor"))


def _sum(look: GroupLook, *kinds: str) -> int:
    return sum(open_in(each) for each in look.progress if each.kind in kinds)


def _lag(look: GroupLook, line: Line, commands: NextCommands) -> Iterator[StatusLine]:
    """How far the group is behind in its source topics, where the most, and what is parked."""
    parts = [each for each in look.progress if each.kind == "source"]
    if not parts:
        return
    lag, left = sum(each.lag or 0 for each in parts), _sum(look, "source")
    parked = _sum(look, "retry")
    text = f"{lag:,} behind, of these {left:,} open"
    most = max(parts, key=lambda each: each.open or 0)
    if left:
        text += f"; the most in {most.topic}/{most.partition}: {most.open:,}"
    if parked:
        text += f"; another {parked:,} open in retry topics"
    next_ = commands.asks_kafka("lag", "--group", look.group)
    state = State.note if left or parked else State.ok
    yield line(state, "lag", text, count=left + parked, next=next_)


def _log(look: GroupLook, line: Line, commands: NextCommands) -> Iterator[StatusLine]:
    """What is odd about a partition's log or commit."""
    for each in look.progress:
        if each.note and each.note != NO_COMMIT:
            place = f"{each.topic}/{each.partition}"
            next_ = commands.asks_kafka("acks", place, "--group", look.group)
            yield line(
                State.wrong, "log", f"{place}: {each.note}", subject=place, count=1, next=next_
            )


def _retry(
    look: GroupLook, line: Line, commands: NextCommands, now_ms: int
) -> Iterator[StatusLine]:
    """What waits in retry topics, and which of them are overdue."""
    for topic, tier in look.tiers.items():
        oldest_s = _ago_s(tier.oldest_due_ms, now_ms)
        if tier.due and oldest_s > OVERDUE_S:
            text = f"{topic}: {tier.due:,} are due, the oldest for {format_rounded(oldest_s)}"
            next_ = commands.asks_kafka("retry show", topic)
            # What could not be read may have failed just now.
            failed_ms = None if look.errors else look.failed_ms.get(source_of(topic))
            yield line(
                State.wrong,
                "overdue",
                text,
                subject=topic,
                count=tier.due,
                next=next_,
                quiet_s=None if failed_ms is None else _ago_s(failed_ms, now_ms),
                open_in=frozenset(look.open_by_topic("retry").get(topic, ())),
            )
    tiers = list(look.tiers.values())
    left = _sum(look, "retry")
    next_ = commands.asks_kafka("retry ls", "--group", look.group)
    if not left or not tiers:
        yield line(State.ok, "retry", "nothing waits in retry topics", next=next_)
        return
    waiting, due, behind = (
        sum(getattr(each, name) for each in tiers) for name in ("waiting", "due", "behind")
    )
    read = waiting + due + behind
    text = f"{waiting:,} wait, {due:,} due"
    if behind:
        text += f", {behind:,} behind one that failed"
        # Whose they are, says what to look at: few keys may hold very many.
        next_ = commands.asks_kafka("retry groups", "--by", "key", "--group", look.group)
    if any(each.waiting + each.due + each.behind >= MOST_WAITING for each in tiers):
        text += f" (of the first {read:,} of {left:,})"
    times = [each.next_due_ms for each in tiers if each.next_due_ms is not None]
    if times:
        text += f"; the next is due at {moment(min(times))}"
    yield line(State.note, "retry", text, count=left, next=next_)


def _dead(
    look: GroupLook, line: Line, commands: NextCommands, rules: Redaction, now_ms: int
) -> Iterator[StatusLine]:
    """The newest causes of dead letters, and how many there are in all."""
    total = _sum(look, "dlq")
    all_of_them = commands.asks_kafka("dlq groups", "--group", look.group)
    if not total:
        yield line(State.ok, "dlq", "no open dead letters", next=all_of_them)
        return
    for cause in look.causes[:MOST_CAUSES]:
        latest = f"{cause.topic}/{cause.partition}/{cause.offset}"
        yield line(
            State.wrong,
            "dlq",
            _cause_text(cause, rules, now_ms, whole=look.dead >= total),
            subject=cause.handler or cause.topic,
            count=cause.count,
            next=commands.asks_kafka("dlq show", latest),
            handler=cause.handler,
            errors=frozenset({cause.error_type} if cause.error_type else ()),
        )
    for topic, job in look.jobs.items():
        done = f"{job.done:,} of {job.wanted:,} {job.action}"
        text = f"{topic}: job {job.job} of {job.by} works on its dead letters: {done}"
        next_ = commands.asks_kafka("dlq jobs", topic)
        yield line(State.note, "dlq", text, subject=topic, count=job.done, next=next_)
    more = len(look.causes) - MOST_CAUSES
    if more <= 0 and look.dead >= total:
        return
    text = f"{counted(total, 'dead letter')} in all"
    if more > 0:
        text += f", of {counted(more, 'further cause')}"
    if look.dead < total:
        text += f"; causes are those of the newest {MOST_DEAD:,} of each partition"
    yield line(State.wrong, "dlq", text, count=total, next=all_of_them)


def _cause_text(cause: CauseGroup, rules: Redaction, now_ms: int, *, whole: bool) -> str:
    """What there is of a cause; where not all dead letters were read, there may be more."""
    error = cause.error_type or cause.cause
    message = rules.of_text(cause.message)
    count = f"{'' if whole else 'at least '}{counted(cause.count, 'dead letter')}"
    parts = [
        f"{count}: {error}{f': {message}' if message else ''}",
        f"the last {format_rounded(_ago_s(cause.last_ms, now_ms))} ago",
    ]
    releases = cause.releases_in_order()
    if releases:
        parts.append(f"{'release' if len(releases) == 1 else 'releases'} {', '.join(releases)}")
    if cause.cause != error:
        parts.append(f"cause {cause.cause}")
    whose = f"{cause.handler or cause.topic}: "
    return whose + "; ".join(parts)


def _ago_s(at_ms: int | None, now_ms: int) -> float:
    return 0.0 if at_ms is None else max(0.0, (now_ms - at_ms) / 1000)
