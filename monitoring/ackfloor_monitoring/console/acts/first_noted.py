"""First noted, then done: how the console writes the notes of its actions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from ackfloor import AckfloorError
from ackfloor.operations import TOPIC, ActionLog, ActionNote, new_note, redacted
from ackfloor.redrive import operator
from ackfloor_monitoring.console.access.gate import ANYBODY
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.kept_forms import Carrying
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

log = logging.getLogger("ackfloor.console")

PROGRAM: Final = "console"


def console_note(
    action: str,
    by: str,
    address: str,
    *,
    target: str,
    group: str,
    arguments: Mapping[str, Any],
    reason: str = "",
) -> ActionNote:
    """The note of an action that begins now.

    Args:
        by: who acts, as `by_of` says.
        address: from where.
        target: the handler, topic or setting that it is done to.
        arguments: what it was asked for, without payloads.
    """
    given = {**arguments, "from": address}
    return new_note(
        action, PROGRAM, by, targets=[target], group=group, arguments=given, reason=reason
    )


def confirmed(note: ActionNote, reason: str, address: str) -> ActionNote:
    """The note of what was judged, once it is confirmed.

    Args:
        reason: why, as whoever confirms it says.
        address: from where they do; it may be another one than that it was asked from.
    """
    return replace(note, reason=reason, arguments={**note.arguments, "from": address})


def by_of(person: Person) -> str:
    """Who acts, as a note names them: of everybody on a machine, the one who runs the console."""
    return operator() if person.name == ANYBODY else person.name


def writer_of(cluster: Cluster, unnoted: Callable[[str], None]) -> Callable[[ActionNote], None]:
    """What writes the notes of one action.

    Where the first can't be written it raises AckfloorError, and nothing is to be done. Where a
    later one can't, it has been done: `unnoted` gets why.
    """
    actions = ActionLog(cluster.options())
    written: list[ActionNote] = []

    def write(note: ActionNote) -> None:
        try:
            actions.write(redacted(note, cluster.rules))
        except AckfloorError as exc:
            if not written:
                text = f"nothing was done: it can't be noted in {TOPIC}: {exc}"
                raise AckfloorError(text) from exc
            log.warning("how %s ended is not noted: %s", note.id, exc)
            unnoted(f"it was done, but how it ended is not noted in {TOPIC}: {exc}")
        written.append(note)

    return write


@contextmanager
def carrying(carried: Carrying, note: ActionNote) -> Iterator[None]:
    """What is done within is over at its end, however it ends; a failure is kept for its page."""
    try:
        yield
    except AckfloorError as exc:
        carried.error = str(exc)
    except Exception as exc:
        log.exception("%s failed", note.id)
        carried.error = f"{type(exc).__name__}: {exc}; the console's log has more"
    finally:
        carried.over = True
