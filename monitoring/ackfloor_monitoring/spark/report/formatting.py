"""Numbers, times and names as people read them; and the report's sentences."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, cast

from ackfloor_monitoring.spark.report.answer import FailureGroup, Report

#: Stands for a number that is not known.
UNKNOWN = "?"
#: As long as Kafka lets a topic's name be; what is longer is cut to `_CUT`.
LONGEST_NAME = 249
_CUT = 160
#: Marks on one letter; languages have two or three, and what has more runs out of its line.
_MOST_ACCENTS = 4
_MOST_TITLED = 8
_SPARKS = "▁▂▃▄▅▆▇█"

RECOVERED_NOTE = (
    "Recovered means: the group has committed past the message's last retry record, and nothing "
    "later was written for it. A handler that succeeds leaves no record, so this is a bound from "
    "above: messages discarded on purpose, or removed by retention before they were read, are in "
    "it. The time to recover ends when the last wait was over: a bound from below."
)
UNKNOWN_NOTE = (
    "The groups' commits were not read, so what recovered can't be told from what still waits: "
    "both are counted as unknown, and a question mark stands where their number would. Give "
    "--bootstrap-servers to have them distinguished."
)


def for_people(report: Report) -> Report:
    """The report with every text in it made visible, and cut where it is longer than any name.

    What records hold may be as long as a record: the JSON has it whole. Two that are cut stay two.
    """
    return cast("Report", _for_people(report))


def _for_people(value: Any) -> Any:
    if isinstance(value, str):
        # One of spaces alone would not be seen.
        return f'"{value}"' if value.isspace() and len(value) < _CUT else _cut(visible(value))
    if isinstance(value, tuple):
        return tuple(map(_for_people, value))
    if is_dataclass(value) and not isinstance(value, type):
        made = {each.name: _for_people(getattr(value, each.name)) for each in fields(value)}
        return replace(value, **made)
    return value


def _cut(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    which = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{name[:_CUT]}… ({count(len(name))} characters, {which})"


def visible(value: str) -> str:
    """Text with its control characters shown, and no heap of marks on a letter."""
    shown, accents = [], 0
    for each in value:
        accents = accents + 1 if not each.isascii() and unicodedata.category(each)[0] == "M" else 0
        is_shown = (each.isprintable() or each == "\n") and accents <= _MOST_ACCENTS
        shown.append(each if is_shown else ascii(each)[1:-1])
    return "".join(shown)


def in_middle(name: str, longest: int) -> str:
    """A name in one line, with its beginning and its end where it is longer than that."""
    name = " ".join(name.split())
    end = longest // 3
    return name if len(name) <= longest else f"{name[: longest - 1 - end]}…{name[-end:]}"


def title(report: Report) -> str:
    """What the report is on: the groups, so many of them as a heading holds."""
    more = len(report.groups) - _MOST_TITLED
    named = ", ".join(report.groups[:_MOST_TITLED])
    return f"Failures of {named}" + (f" and {some(more, 'more group')}" if more > 0 else "")


def count(number: int) -> str:
    """1,234."""
    return f"{number:,}"


def settled(number: int, report: Report) -> str:
    """A number that only the groups' commits tell: of what recovered, or waits."""
    return count(number) if report.commits_known else UNKNOWN


def some(number: int, what: str) -> str:
    """1 failure, 2 failures."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def percent(share: float) -> str:
    """12 %, 1.2 %, under 0.1 %."""
    if share and share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def seconds(amount: float) -> str:
    """A duration in its two largest units: at once, 45 ms, 1.5 s, 25m 16s, 3h 2m, 4d 1h."""
    if not amount:
        return "at once"
    if amount < 1:
        return f"{amount * 1000:.0f} ms"
    if amount < 60:
        return f"{amount:.1f} s"
    whole = round(amount)
    for size, unit, below, part in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m")):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // below}{part}"
    return f"{whole // 60}m {whole % 60}s"


def multiple(number: float) -> str:
    """How many times, with as many digits as needed."""
    return f"{number:.2f}" if number >= 0.1 or not number else f"{number:.2g}"


def moment(time: datetime) -> str:
    """30 Oct 2026 23:59."""
    return f"{time.day} {time:%b %Y %H:%M}"


def owner(group: str | None, handler: str | None, report: Report) -> str:
    """A handler's name, with its group in front where the report has several."""
    name = handler or "(no handler named)"
    return f"{group or '(no group named)'} / {name}" if len(report.groups) > 1 else name


def source(group: str | None, topic: str | None, report: Report) -> str:
    """A source topic's name, with the group that reads it where the report has several."""
    name = topic or "(no topic named)"
    return f"{name} for {group}" if len(report.groups) > 1 else name


def stretch(report: Report) -> str:
    """The length of a stretch of time: "day", "6 hours"."""
    for unit, seconds in (
        ("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1),
    ):  # fmt: skip
        count, rest = divmod(report.bucket_s, seconds)
        if count and not rest:
            return unit if count == 1 else f"{count} {unit}s"
    raise ValueError(f"bucket_s={report.bucket_s}: not a whole number of seconds")


def spark(trend: Sequence[int], width: int) -> str:
    """A trend as a line of blocks, its stretches summed up until they fit."""
    step = max(1, -(-len(trend) // width))
    sums = [sum(trend[at : at + step]) for at in range(0, len(trend), step)]
    top = max(sums, default=0) or 1
    return "".join(" " if not n else _SPARKS[min(7, n * 8 // (top + 1))] for n in sums)


def cause_name(group: FailureGroup) -> str:
    """The name of a group of failures: the error's class, else what groups it."""
    return group.error_type or group.cause


def healed(group: FailureGroup, report: Report) -> str:
    """What replays of its dead letters achieved: 3 of 5; "-" where none was replayed."""
    if not group.replayed:
        return "-"
    return f"{settled(group.healed, report)} of {count(group.replayed)}"


def since_text(report: Report) -> str:
    """What "new" is measured from."""
    if report.since_release is not None:
        return f"release {report.since_release} first failed ({moment(report.since)})"
    return moment(report.since)


def days_note(report: Report) -> str:
    """How much of it was counted before: of the rows of these days none was read."""
    return (
        f"Counts of {some(report.days_kept, 'day')} were kept by earlier reports, "
        f"{some(report.days_counted, 'day')} counted now."
    )


def in_short(report: Report) -> list[str]:
    """The report in a few sentences, the most important first."""
    return [
        _what_became(report),
        _largest(report),
        _new(report),
        *_replayed(report),
        *_missing(report),
        *_erased(report),
    ]


def _erased(report: Report) -> list[str]:
    """What was erased on request, and whether the last one came to its end."""
    if not report.erased:
        return []
    last = report.erased[-1]
    rows = sum(each.rows for each in report.erased)
    # Of one that was killed it is not known.
    what = some(rows, "record") if rows else "Records"
    if rows:
        what += f" of {some(sum(each.messages for each in report.erased), 'message')}"
    when = f"the last at {moment(last.at)}"
    sentences = [f"{what} were erased on request, {when}: the numbers are without them."]
    if not last.done:
        sentences.append(
            f"The erasure that {last.by} began at {moment(last.at)} did not come to its end: run "
            "`ackfloor spark forget` again."
        )
    return sentences


def _what_became(report: Report) -> str:
    totals = report.totals
    results = [
        f"{word.format(count(number))} ({percent(number / totals.messages)})"
        for number, word in (
            (totals.recovered, "at most {} recovered"),
            (totals.dead, "{} dead letters"),
            (totals.waiting, "{} still wait for a retry"),
            (totals.unknown, "{} recovered or still wait"),
        )
        if number and totals.messages
    ]
    ended = ": " + ", ".join(results) if results else ""
    return f"{some(totals.messages, 'message')} failed at least once{ended}."


def _largest(report: Report) -> str:
    top = report.failure_groups[0]
    return (
        f"The largest cause is {cause_name(top)} in {owner(top.group, top.handler, report)}: "
        f"{some(top.failures, 'failure')}, {percent(top.share)} of all, last seen "
        f"{moment(top.last)}."
    )


def _new(report: Report) -> str:
    if not report.new:
        return f"Nothing new since {since_text(report)}."
    named = ", ".join(
        f"{cause_name(g)} in {owner(g.group, g.handler, report)} ({some(g.failures, 'failure')})"
        for g in report.new[:3]
    )
    more = f", and {len(report.new) - 3} more" if len(report.new) > 3 else ""
    causes = "1 cause is" if len(report.new) == 1 else f"{len(report.new)} causes are"
    return f"{causes} new since {since_text(report)}: {named}{more}."


def _replayed(report: Report) -> list[str]:
    if not report.replays:
        return []
    every, good, dead, unknown = (
        sum(getattr(row, name) for row in report.replays)
        for name in ("replayed", "recovered", "dead", "unknown")
    )
    of_them = f"Of {some(every, 'replayed dead letter')}"
    if not unknown:
        return [f"{of_them} {count(good)} recovered."]
    if unknown == every:
        return [f"{of_them} it is not known whether they recovered."]
    ends = [
        f"{count(number)} {what}" for number, what in ((good, "recovered"), (dead, "died again"))
        if number
    ]  # fmt: skip
    known = " and ".join(ends) or f"{count(every - unknown)} still wait"
    return [f"{of_them} {known}; of {count(unknown)} it is not known whether they recovered."]


def _missing(report: Report) -> list[str]:
    notes = [] if report.commits_known else [UNKNOWN_NOTE]
    totals = report.totals
    if report.commits_refused:
        notes.append(
            f"The commits of {some(report.commits_refused, 'partition')} carry metadata that could "
            "not be believed; what lies above their position is counted as waiting."
        )
    if totals.without_origin:
        notes.append(
            f"{some(totals.without_origin, 'record')} cannot be traced to a message: counted among "
            "the failures, not among the messages."
        )
    if report.far:
        notes.append(far_note(report, 3))
    return notes


def far_note(report: Report, most: int) -> str:
    """Which records lie far from all others, so many of them by name."""
    named = "; ".join(
        f"{moment(each.failed_at)} in {each.topic}/{each.partition}/{each.offset}"
        f" (written {moment(each.written_at)})"
        for each in report.far[:most]
    )
    more = report.far_records - len(report.far[:most])
    return (
        f"{some(report.far_records, 'record')} with a time far from all others, in no chart and "
        f"no time: a worker's clock was probably wrong. {named}"
        + (f"; and {count(more)} more." if more else ".")
    )


def period(report: Report) -> str:
    """From the first failure to the last."""
    length = timedelta(seconds=(report.last - report.first).total_seconds())
    return (
        f"{moment(report.first)} to {moment(report.last)} UTC ({seconds(length.total_seconds())})"
    )
