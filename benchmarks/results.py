"""Results as Markdown: medians with their spread, shares and ratios round by round."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cases import CASES, Case
from benchmarks.speed import Entry, Found

FOLDER = Path(__file__).parent / "results"
#: Figures that have a column of their own; what else a run told stands below the table.
COLUMNS = {"records_per_s", "cpu_s_per_million", "cores", "peak_mib"}
HEAD = (
    "| | records/s | of the limit | of the bare loop | ackfloor is faster by | CPU s per million "
    "| cores | peak MiB |\n|---|--:|--:|--:|--:|--:|--:|--:|"
)


def speed_table(found: Found) -> str:
    """Every case as a table."""
    cases = {case.title: case for case in CASES}
    parts = [_case(cases[title], entries, found) for title, entries in found.items()]
    return "\n".join(parts)


def _case(case: Case, entries: list[Entry], found: Found) -> str:
    lines = [f"## {case.title}", ""]
    limit = "" if case.limit is None else f"Limit: {case.limit:,.0f} records/s."
    lines += [" ".join(filter(None, [case.note, limit])), ""] if case.note or limit else []
    lines.append(HEAD)
    ours = next((e for e in entries if e.run.peer == "ackfloor"), None)
    lines += [_row(case, entry, ours, _bare(case, found)) for entry in entries]
    more = [line for entry in entries for line in _more(entry)]
    return "\n".join([*lines, "", *more, *([""] if more else [])])


def _row(case: Case, entry: Entry, ours: Entry | None, bare: Entry | None) -> str:
    if not entry.rounds:
        why = entry.failed[-1] if entry.failed else "not run"
        return f"| {entry.name} | {_plain(why)} | | | | | | |"
    rates = values(entry, "records_per_s")
    limit = f"{median(rates) / case.limit:.0%}" if case.limit else ""
    shares = [] if bare is entry else ratios(entry, bare)
    better = [] if ours is None or entry is ours else ratios(ours, entry)
    rest = " | ".join(
        f"{median(values(entry, name)):,.{digits}f}"
        for name, digits in (("cpu_s_per_million", 1), ("cores", 2), ("peak_mib", 0))
    )
    failed = f" ({len(entry.failed)} failed)" if entry.failed else ""
    return (
        f"| {entry.name}{failed} | {_spread(rates, '{:,.0f}')} | {limit} "
        f"| {_spread(shares, '{:.2f}')} | {_spread(better, '{:.2f}', 'x')} | {rest} |"
    )


def _more(entry: Entry) -> Iterable[str]:
    names = [name for name in next(iter(entry.rounds.values()), {}) if name not in COLUMNS]
    if names:
        figures = (f"{name} {median(values(entry, name)):,.1f}" for name in names)
        yield f"{entry.name}: {', '.join(figures)}."


def _bare(case: Case, found: Found) -> Entry | None:
    """The bare loop that a case is compared with: its own, or that of the no-op."""
    own = [e for e in found[case.title] if e.run.peer == "confluent"]
    general = [e for e in found.get("no-op", []) if e.run.peer == "confluent"]
    return next(iter(own or (general if case.body == "noop" else [])), None)


def ratios(entry: Entry, other: Entry | None) -> list[float]:
    """How much faster an entry was than another one of the same rounds."""
    if other is None:
        return []
    return [
        figures["records_per_s"] / other.rounds[number]["records_per_s"]
        for number, figures in entry.rounds.items()
        if number in other.rounds
    ]


def values(entry: Entry, name: str) -> list[float]:
    """One figure of every round that has it."""
    return [figures[name] for figures in entry.rounds.values() if name in figures]


def _spread(values: list[float], form: str, unit: str = "") -> str:
    if not values:
        return ""
    middle = form.format(median(values)) + unit
    if len(values) == 1:
        return middle
    return f"{middle} ({form.format(min(values))} to {form.format(max(values))})"


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")[:200]


def plain_table(found: Found) -> str:
    """Other parts: what each entry told, a column for each figure."""
    lines: list[str] = []
    for title, entries in found.items():
        names = list(dict.fromkeys(n for e in entries for r in e.rounds.values() for n in r))
        lines += [f"## {title}", "", f"| | {' | '.join(names)} |"]
        lines.append(f"|---|{'--:|' * len(names)}")
        for entry in entries:
            cells = [_spread(values(entry, name), "{:,.2f}") for name in names]
            if not entry.rounds:
                cells[:1] = [_plain(entry.failed[-1] if entry.failed else "not run")]
            lines.append(f"| {entry.name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def as_json(found: Found) -> dict[str, Any]:
    """The raw figures of every run."""
    return {
        title: {entry.name: {"rounds": entry.rounds, "failed": entry.failed} for entry in entries}
        for title, entries in found.items()
    }
