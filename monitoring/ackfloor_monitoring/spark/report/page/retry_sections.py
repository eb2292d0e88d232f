"""The page's sections on retries: what they save, their cost, how long they take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ackfloor_monitoring.spark.report.answer import Report, Step
from ackfloor_monitoring.spark.report.formatting import (
    RECOVERED_NOTE,
    UNKNOWN_NOTE,
    count,
    multiple,
    owner,
    percent,
    seconds,
    settled,
    some,
    source,
)
from ackfloor_monitoring.spark.report.page import charts
from ackfloor_monitoring.spark.report.page.charts import Figures
from ackfloor_monitoring.spark.report.page.markup import (
    chart,
    details,
    section,
    table,
    tables,
    text,
)

_MOST_HANDLERS = 6  # with a chart; the others' numbers are folded
_MOST_FOLDED = 40
_ROOM_FOR_STEPS = 15_000


def funnel(report: Report, figures: Figures) -> str:
    """What each attempt saved."""
    by_handler: dict[tuple[str | None, str | None], list[Step]] = defaultdict(list)
    for step in report.funnel:
        by_handler[step.group, step.handler].append(step)
    largest = sorted(by_handler, key=lambda of: -by_handler[of][0].failed)
    parts = []
    for at, of in enumerate(largest[: _MOST_HANDLERS + _MOST_FOLDED]):
        name, steps = owner(*of, report), by_handler[of]
        numbers = _steps_table(steps, report)
        if at < _MOST_HANDLERS:
            figures[f"funnel-{at}"] = charts.funnel(steps)
            height = 120 + 34 * min(len(steps), charts.MOST_STEPS)
            parts += [
                f"<h3>{text(name)}</h3>",
                chart(f"funnel-{at}", height, f"what each retry of {name} saved"),
                details("The numbers", numbers),
            ]
        else:
            parts.append(details(name, numbers))
    if (more := len(largest) - _MOST_HANDLERS - _MOST_FOLDED) > 0:
        parts.append(f'<p class="note">{some(more, "more handler")} in the JSON.</p>')
    lead = (
        "Each bar holds the messages that failed at least that often: what the next delivery "
        "saved, what died, what still waits, and what failed again. First lives only; replays "
        "have a section of their own."
    )
    note = RECOVERED_NOTE if report.commits_known else UNKNOWN_NOTE
    parts.append(f'<p class="note">{text(note)}</p>')
    return section("funnel", "What do retries buy?", lead, *parts)


def _steps_table(steps: Sequence[Step], report: Report) -> str:
    heads = ("Step", "Failed", "Saved by next", "Dead", "Waiting", "Unknown")
    rows = [
        (
            text(charts.step_label(step)),
            count(step.failed),
            _saved(step.recovered, step.failed, report),
            count(step.dead),
            settled(step.waiting, report),
            count(step.unknown),
        )
        for step in steps
    ]
    return table(heads, rows, numbers=5, room=_ROOM_FOR_STEPS)


def _saved(number: int, of: int, report: Report) -> str:
    share = f" ({percent(number / of)})" if report.commits_known else ""
    return text(f"{settled(number, report)}{share}")


def times(report: Report, figures: Figures) -> str:
    """How long recovery and death take."""
    drawn = charts.times(report)
    if drawn["data"]:
        figures["spread"] = drawn
    height = 110 + 46 * len(drawn["layout"]["yaxis"]["ticktext"])
    says = "times to recovery and death by handler"
    heads = (
        "Handler", "Recovered", "p50, at least", "p95, at least", "p99, at least",
        "Dead", "p50", "p95", "p99",
    )  # fmt: skip
    rows = [
        (
            text(owner(row.group, row.handler, report)),
            settled(row.recovered_messages, report),
            *_spread(row.to_recover_s),
            count(row.dead_messages),
            *_spread(row.to_death_s),
        )
        for row in report.times
    ]
    return section(
        "times",
        "How long does it take?",
        "From a message's first failure to its recovery, or to the dead-letter topic: half are "
        "faster than p50, 99 of 100 faster than p99. Times to recover are at least so long: when "
        "exactly a retry succeeded is not recorded.",
        *((chart("spread", height, says),) if drawn["data"] else ()),
        tables(heads, rows, "more handler", numbers=8),
    )


def _spread(spread: tuple[float, ...] | None) -> tuple[str, ...]:
    return ("-",) * 3 if spread is None else tuple(text(seconds(value)) for value in spread[:3])


def traffic(report: Report, figures: Figures) -> str:  # noqa: ARG001
    """Retry records as a multiple of the input."""
    heads = ("Topic", "Input", "Failed messages", "Retry records", "Retries per input record")
    rows = [
        (
            text(source(each.group, each.topic, report)),
            count(each.input),
            count(each.messages),
            count(each.tier_records),
            multiple(each.multiple),
        )
        for each in report.traffic
    ]
    return section(
        "traffic",
        "What do retries cost?",
        "Records in retry topics for each record of input. Input is counted as the offsets "
        "between the first and the last failing record of each source partition.",
        tables(heads, rows, "more topic", numbers=4),
    )


def handlers(report: Report, figures: Figures) -> str:  # noqa: ARG001
    """Timeouts, errors, duplicates, durations."""
    heads = ("Handler", "Errors", "Timeouts", "Duplicates", "p50", "p95", "p99", "Longest")
    rows = [
        (
            text(owner(each.group, each.handler, report)),
            count(each.errors),
            count(each.timeouts),
            count(each.duplicates),
            *(
                ("-",) * 4
                if each.duration_s is None
                else (text(seconds(value)) for value in each.duration_s)
            ),
        )
        for each in report.handlers
    ]
    return section(
        "handlers",
        "Which handlers are slow?",
        "Slowest first, by the p95 of their failed calls. Duplicates are failures of an attempt "
        "that had failed before: after a crash, or when an acknowledgement was lost.",
        tables(heads, rows, "more handler", numbers=7),
    )


def replays(report: Report, figures: Figures) -> str:  # noqa: ARG001
    """Dead letters that were put back to work."""
    lead = (
        "Dead letters that went back into a retry topic, and what became of them. One that went "
        "to its source topic shows here once it has failed again."
    )
    if not report.replays:
        return section("replays", "Did replays help?", lead, "<p>Nothing was replayed.</p>")
    heads = ("Handler", "Replayed", "Recovered", "Dead again", "Waiting", "Unknown")
    rows = [
        (
            text(owner(each.group, each.handler, report)),
            count(each.replayed),
            _saved(each.recovered, each.replayed, report),
            count(each.dead),
            settled(each.waiting, report),
            count(each.unknown),
        )
        for each in report.replays
    ]
    body = tables(heads, rows, "more handler", numbers=5)
    return section("replays", "Did replays help?", lead, body)
