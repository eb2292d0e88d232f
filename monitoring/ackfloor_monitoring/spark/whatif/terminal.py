"""The answer as tables for the terminal, with its assumptions below them.

Names come from records, so they may hold anything: they are printed as text, never as markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ackfloor.core.values.durations import format_duration
from ackfloor_monitoring.spark.report.formatting import count, seconds
from ackfloor_monitoring.spark.whatif.answer import Estimate, Outcome, Policy, WhatIf

_OWN_WAIT = "messages with a wait of their handler's own, Retry(after=...)"
# An arithmetic minus, and a dash between two bounds.
_MINUS, _TO = "\u2212", "\u2013"


def whatif_tables(whatif: WhatIf) -> Iterator[RenderableType]:
    """What was against what would have been, in all and by handler."""
    yield from _policies(whatif)
    part = "" if whatif.messages == whatif.total.messages else f"{count(whatif.total.messages)} of "
    what = f"{part}{count(whatif.messages)} messages that failed, of {whatif.table}"
    yield Text(what, style="dim")
    yield _total(whatif.total)
    if len(whatif.handlers) > 1:
        yield _handlers(whatif.handlers)
    for sentence in (*_notes(whatif), "Assumptions:", *whatif.assumptions):
        yield Text(sentence, style="dim")


def _policies(whatif: WhatIf) -> Iterator[Text]:
    """The other policy and the one in force; of each handler where they differ."""
    policies = {(each.policy, each.in_force) for each in whatif.handlers}
    if len(policies) == 1:
        ((_, in_force),) = policies
        yield Text(f"Through {policy_text(whatif.policy)}", style="bold")
        yield Text(_in_force_text(in_force), style="dim")
        return
    for each in whatif.handlers:
        name = _plain(each.handler or "not named")
        yield Text(f"{name} through {policy_text(each.policy or whatif.policy)}", style="bold")
        yield Text(_in_force_text(each.in_force), style="dim")


def _in_force_text(policy: Policy | None) -> str:
    if policy is None:
        return "The records do not say which policy was in force; what is not given has its default"
    return f"In force: {policy_text(policy)}"


def policy_text(policy: Policy) -> str:
    """3 redeliveries after 1s, 5s, 25s, with up to 15 % jitter."""
    if not policy.max_redeliveries:
        return "no redelivery"
    waits = []
    for wait_s, same in groupby(policy.waits_s):
        times = len(list(same))
        waits.append(format_duration(wait_s) + (f" ({times} times)" if times > 1 else ""))
    number = policy.max_redeliveries
    jitter = f", with up to {policy.jitter:.0%} jitter" if policy.jitter else ""
    return (
        f"{count(number)} redeliver{'y' if number == 1 else 'ies'} after {', '.join(waits)}{jitter}"
    )


def _total(total: Outcome) -> Table:
    table = _table(("", "as it was", "then, likely", "bounds", "change"), names=1)
    for name, was, then in (
        ("recovered", total.recovered, total.recovered_then),
        ("dead letters", total.dead, total.dead_then),
        ("redeliveries", total.redeliveries, total.redeliveries_then),
    ):
        table.add_row(
            name, count(was), count(round(then.likely)), _bounds(then), _signed(then.likely - was)
        )
    for name, before_s, after_s in (
        ("mean time to recovery", total.to_recovery_s, total.to_recovery_then_s),
        ("half recovered within", total.to_recovery_p50_s, total.to_recovery_p50_then_s),
        ("99 of 100 within", total.to_recovery_p99_s, total.to_recovery_p99_then_s),
        ("mean time to the dead letter", total.to_death_s, total.to_death_then_s),
    ):
        table.add_row(name, _seconds(before_s), _seconds(after_s), "", "")
    return table


def _handlers(handlers: Sequence[Outcome]) -> Table:
    heads = ("group", "handler", "messages", "recovered", "dead letters", "redeliveries")
    table = _table(heads, names=2)
    for each in handlers:
        table.add_row(
            _plain(each.group or "not named"),
            _plain(each.handler or "not named"),
            count(each.messages),
            _change(each.recovered, each.recovered_then),
            _change(each.dead, each.dead_then),
            _change(each.redeliveries, each.redeliveries_then),
        )
    return table


def _notes(whatif: WhatIf) -> Iterator[str]:
    total, left, examples = whatif.total, whatif.left_out, whatif.examples
    # Less than that is only how the model spreads a recovery over its stretch.
    if total.sooner_s is not None and abs(total.sooner_s) > 0.05 * (total.to_recovery_s or 0):
        way = "sooner" if total.sooner_s > 0 else "later"
        by = seconds(abs(total.sooner_s))
        yield f"What recovers under both does so {by} {way} on the average."
    if total.tried_later:
        yield (
            f"{count(total.tried_later)} dead letters would have been tried clearly later than "
            "they were; whether that had helped cannot be known: see the bounds"
            f"{_such_as(examples.tried_later)}."
        )
    parts = (
        (left.waiting, f"messages that still wait{_such_as(examples.waiting)}"),
        (left.own_waits, f"{_OWN_WAIT}{_such_as(examples.own_waits)}"),
        (left.replays, "lives of redriven dead letters (their first lives count)"),
        (left.without_origin, "failures whose origin can't be read"),
    )
    if any(number for number, _ in parts):
        yield "Left out: " + "; ".join(f"{count(n)} {what}" for n, what in parts if n) + "."


def _such_as(place: str | None) -> str:
    return "" if place is None else f" (such as {_plain(place)})"


def _table(heads: Sequence[str], *, names: int) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for at, head in enumerate(heads):
        if at < names:
            table.add_column(head, overflow="fold")
        else:
            table.add_column(head, justify="right", no_wrap=True)
    return table


def _bounds(number: Estimate) -> str:
    least, most = round(number.least), round(number.most)
    return count(least) if least == most else f"{count(least)} {_TO} {count(most)}"


def _change(was: int, then: Estimate) -> str:
    return f"{count(was)} > {count(round(then.likely))}"


def _signed(change: float) -> str:
    number = round(change)
    return "0" if not number else (_MINUS if number < 0 else "+") + count(abs(number))


def _seconds(amount: float | None) -> str:
    return "-" if amount is None else seconds(amount)


def _plain(value: str) -> Text:
    return Text("".join(c if c.isprintable() else ascii(c)[1:-1] for c in value))
