"""Settings: what each run goes by and from where, where runs differ, and who changed what when."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ackfloor import AckfloorError
from ackfloor.operations import ActionFilter, ActionLog, ActionNote
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.pages.console_page import Asked, AskedPage
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.group_settings import look

#: Changes that are looked at: the newest, of so many days.
MOST: Final = 200
DAYS: Final = 30
#: The longest name of a group or a setting that an address may have.
LONGEST: Final = 1_000


def facts(cluster: Cluster, asked: Asked) -> Mapping[str, Any]:
    """What the template shows; raises Refused."""
    if not asked.person.may(Right.see_payloads):
        raise Refused(403, f"a {asked.person.role} may not see settings: a reader may")
    group, setting = (asked.query.get(name, "")[:LONGEST] for name in ("group", "setting"))
    now_ms = time.time_ns() // 1_000_000
    with ThreadPoolExecutor(1, "console-changes") as asking:
        history = asking.submit(_history, cluster, group, now_ms)
        groups = look(cluster, group)
        changes, error = history.result()
    return {
        "taken_ms": now_ms,
        "group": group,
        "setting": setting,
        "groups": groups,
        "changes": [_change(note) for note in changes],
        "changes_error": error,
        "days": DAYS,
        "more": cluster.commands.asks_kafka("actions ls", "--action=config set"),
        "may_change": asked.person.may(Right.change_settings),
    }


def _history(cluster: Cluster, group: str, now_ms: int) -> tuple[Sequence[ActionNote], str]:
    """The newest changes, or why they are not known."""
    since_ms = now_ms - DAYS * 24 * 3_600_000
    wanted = ActionFilter(action="config set", since_ms=since_ms)
    try:
        found = ActionLog(cluster.options()).newest(wanted, MOST)
    except AckfloorError as exc:
        return [], str(exc)
    # The command line does not always know the group.
    return [note for note in found if not group or note.group in {"", group}], ""


def _change(note: ActionNote) -> Mapping[str, Any]:
    return {
        "note": note,
        # Whoever may write the topic can write anything.
        "before": str(note.arguments.get("before", "")),
        "after": str(note.arguments.get("after", "")),
    }


SETTINGS = AskedPage("settings", "Settings", "s", "settings.html", facts)
