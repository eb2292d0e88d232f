"""Templates to HTML: whatever a template shows is escaped, and an unknown name is a bug."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ackfloor.core.values.durations import format_rounded
from ackfloor.core.values.printable import plain
from ackfloor_monitoring.console.acts.order_text import done_of, left_of, meaning_of, title_of
from ackfloor_monitoring.console.forms import root_of
from ackfloor_monitoring.console.pages.console_page import Page

TEMPLATES: Final = Path(__file__).with_name("templates")


@cache
def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "clock": clock,
        "commands": commands,
        "done_of": done_of,
        "duration": format_rounded,
        "left_of": left_of,
        "meaning_of": meaning_of,
        "moment": moment,
        "number": number,
        "partition_path": partition_path,
        "plain": plain,
        "record_path": record_path,
        "title_of": title_of,
    }
    return found


def rendered(request: Request, template: str, status: int, **context: Any) -> HTMLResponse:
    """A template as an answer; `root` is in front of each address that it has."""
    found = _templates().get_template(template)
    return HTMLResponse(found.render(context, root=root_of(request)), status)


def rendered_part(request: Request, page: Page, context: dict[str, Any]) -> str:
    """The part of a page that changes."""
    return _templates().get_template(page.changing).render(context, root=root_of(request))


def clock(at_ms: int) -> Markup:
    """A time of today, exact in UTC; the page's script shows it in the reader's own zone."""
    return _time(at_ms, "%H:%M:%S UTC", "")


def moment(at_ms: int) -> Markup:
    """A time with its day, likewise."""
    return _time(at_ms, "%Y-%m-%d %H:%M:%S UTC", "day")


def _time(at_ms: int, shown: str, kind: str) -> Markup:
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OSError, OverflowError, ValueError):
        # Somebody else wrote it, and no calendar has it.
        return escape(f"{at_ms} ms")
    exact = f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03} UTC"
    marked = Markup('<time datetime="{}" title="{}"{}>{}</time>')
    with_day = Markup(' data-shown="day"') if kind else ""
    return marked.format(at.isoformat(timespec="milliseconds"), exact, with_day, f"{at:{shown}}")


def commands(text: str) -> Markup:
    """A sentence in which `commands` stand between backticks, as the command line writes them."""
    parts = [escape(plain(part)) for part in text.split("`")]
    marked = (Markup("<code>{}</code>").format(p) if n % 2 else p for n, p in enumerate(parts))
    return Markup("").join(marked)


def number(value: float | None) -> str:
    """A number with separators; a dash where there is none."""
    return "-" if value is None else f"{value:,}"


def record_path(place: str) -> str:
    """The page of the record at a place, below the cluster's."""
    return "/".join(("records", *(quote(each, safe="") for each in place.split("/"))))


def partition_path(record: str, group: str) -> str:
    """The page of the partition of a place, which may name an offset, below the cluster's."""
    names = (group, *record.split("/")[:2])
    return "/".join(("partitions", *(quote(each, safe="") for each in names)))
