"""First noted, then done: how the console writes the notes of its actions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ackfloor import AckfloorError
from ackfloor.operations import TOPIC, ActionLog, ActionNote, redacted
from ackfloor_monitoring.console.acts.kept_forms import Carrying
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

log = logging.getLogger("ackfloor.console")


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
