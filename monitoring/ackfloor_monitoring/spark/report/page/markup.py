"""Small pieces of HTML. Whatever comes from records goes through `text`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def text(value: str) -> str:
    """Text as HTML shows it: never as markup, control characters made visible.

    A number and its % stay on one line.
    """
    shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in value)
    return escape(shown).replace(" %", "&nbsp;%")


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0, cards: bool = False
) -> str:
    """A table; its cells are HTML already.

    Args:
        heads: of the columns, as text.
        numbers: how many columns at the end hold numbers.
        cards: on a narrow screen each row becomes a card with the heads in it.
    """
    first = len(heads) - numbers
    attributes = [' class="n"' if at >= first else "" for at in range(len(heads))]
    head = "".join(
        f"<th{attribute}>{text(name)}</th>"
        for name, attribute in zip(heads, attributes, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{attribute} data-head="{text(name)}">{cell}</td>'
            for cell, attribute, name in zip(row, attributes, heads, strict=True)
        )
        + "</tr>\n"
        for row in rows
    )
    kind = "wide cards" if cards else "wide"
    return (
        f'<div class="{kind}"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


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
    wide = 120 / max(len(trend), 1)
    # One shape, however many columns: a page has hundreds of trends.
    columns = "".join(
        f"M{at * wide:.1f} 24v-{high:.1f}h{max(wide - 0.6, 0.6):.1f}v{high:.1f}z"
        for at, number in enumerate(trend)
        if (high := max(1.0, number / top * 24) if number else 0.0)
    )
    return (
        '<svg class="spark" viewBox="0 0 120 24" preserveAspectRatio="none" role="img" '
        f'aria-label="trend"><path d="{columns}"/></svg>'
    )
