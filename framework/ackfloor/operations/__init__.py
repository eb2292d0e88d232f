"""Operations: what operators do to runs and dead letters, noted where everybody can read it.

The one way to act. The command line stands on it today, a console will: what the one has done, the
other shows. It has four parts, and a family of actions (lanes, retry topics, dead letters,
handlers, settings) moves here part by part:

* read: what is there; no note is written.
* judge: a dry run, with the count and a sample of what would be done; no note is written.
* act: done under `noted`, with who, from where, what, why and a correlation id.
* audit: `ActionLog`, which writes and reads these notes. Only this part is here so far.

    from ackfloor.operations import ActionFilter, ActionLog
    from ackfloor.redrive import kafka_options

    for note in ActionLog(kafka_options()).newest(ActionFilter(by="ann"), limit=20):
        print(note.by, note.action, note.targets, note.state)

Invariants. A note holds no payload and no secret, and of keys and headers what `[redaction]`
leaves. It says done only where all that was meant was reached. Who acts decides what a note that
can't be written means: the command line warns and acts all the same.
"""

from __future__ import annotations

from ackfloor.operations.action_log import ActionLog
from ackfloor.operations.action_notes import TOPIC, ActionFilter, ActionNote, ActionState
from ackfloor.operations.noted import Ending, new_note, noted

__all__ = [
    "TOPIC",
    "ActionFilter",
    "ActionLog",
    "ActionNote",
    "ActionState",
    "Ending",
    "new_note",
    "noted",
]
