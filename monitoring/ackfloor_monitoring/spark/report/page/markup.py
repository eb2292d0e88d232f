"""Small pieces of HTML. Whatever comes from records goes through `text`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import accumulate

from ackfloor_monitoring.spark.report.formatting import count, some, visible

#: Bytes of a table's rows. One with more says how many it leaves out; the JSON has all.
ROOM = 120_000
#: Rows of a table that are not folded, where there may be hundreds.
MOST_SEEN = 12


def text(value: str) -> str:
    """Text as HTML shows it: never as markup, control characters made visible.

    A number and its % stay on one line.
    """
    return escape(visible(value)).replace(" %", "&nbsp;%")


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: int = 0,
    cards: bool = False,
    room: int = ROOM,
) -> str:
    """A table, of as many rows as there is room for; its cells are HTML already.

    Args:
        heads: of the columns, as text.
        numbers: how many columns at the end hold numbers.
        cards: on a narrow screen each row becomes a card with the heads in it.
        room: in bytes.
    """
    first = len(heads) - numbers
    attributes = [' class="n"' if at >= first else "" for at in range(len(heads))]
    head = "".join(
        f"<th{attribute}>{text(name)}</th>"
        for name, attribute in zip(heads, attributes, strict=True)
    )
    cells = [
        f'<td{attr} data-head="{text(name)}">' for attr, name in zip(attributes, heads, strict=True)
    ]
    body = [
        f"<tr>{''.join(f'{td}{cell}</td>' for td, cell in zip(cells, row, strict=True))}</tr>\n"
        for row in rows
    ]
    sizes = accumulate(len(row.encode("utf-8", "replace")) for row in body)
    shown = body[: sum(size <= room for size in sizes)]
    more = len(body) - len(shown)
    rest = f'<p class="note">{count(more)} more in the JSON.</p>' if more else ""
    kind = "wide cards" if cards else "wide"
    return (
        f'<div class="{kind}"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{''.join(shown)}</tbody></table></div>{rest}"
    )


def tables(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    more: str,
    *,
    numbers: int = 0,
    room: int = ROOM,
) -> str:
    """A table of cards whose first rows are seen, and the others unfolded.

    Args:
        more: what one of the others is called, such as "more handler".
    """
    seen, rest = rows[:MOST_SEEN], rows[MOST_SEEN:]
    first = table(heads, seen, numbers=numbers, cards=True, room=room)
    if not rest:
        return first
    others = table(heads, rest, numbers=numbers, cards=True, room=room)
    return f"{first}\n{details(some(len(rest), more), others)}"


def section(name: str, title: str, lead: str, *parts: str) -> str:
    """A part of the page with its heading and a sentence that says how to read it."""
    inside = "\n".join(parts)
    return (
        f'<section id="{name}"><h2>{text(title)}</h2>\n<p class="lead">{text(lead)}</p>\n'
        f"{inside}</section>\n"
    )


def chart(name: str, height: int, says: str) -> str:
    """Room for a chart; `says` is what it shows, for who cannot see it."""
    return (
        f'<div class="chart" id="{name}" role="img" aria-label="{text(says)}" '
        f'style="height:{height}px"></div>'
    )


def details(summary: str, inside: str) -> str:
    """Something that is folded on the screen, and open on paper."""
    return f"<details><summary>{text(summary)}</summary>\n{inside}</details>"


def bar(share: float) -> str:
    """A share as a bar as long as it."""
    return f'<span class="bar"><span style="width:{max(share * 100, 0.5):.1f}%"></span></span>'


def sparkline(trend: Sequence[int]) -> str:
    """A trend as small columns."""
    top = max(trend, default=0) or 1
    # One shape, however many columns, in few bytes: a page has hundreds of trends.
    columns = "".join(
        f"V{24 - max(1, round(number / top * 24))}h.85V24h.15" if number else "h1"
        for number in trend
    )
    return (
        f'<svg class="spark" viewBox="0 0 {max(len(trend), 1)} 24" preserveAspectRatio="none" '
        f'role="img" aria-label="trend"><path d="M0 24{columns}"/></svg>'
    )
