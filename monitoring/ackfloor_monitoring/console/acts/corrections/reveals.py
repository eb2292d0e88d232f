"""Reveals: a look at what redaction hides of one dead letter.

Invariants. A look is noted before anything is read, and where that fails nothing is shown. It is
one person's and one dead letter's: whoever else wants to see it looks themselves.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from ackfloor.cli.shared.run_address import checked_reason
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.operations import noted
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.first_noted import by_of, console_note, writer_of
from ackfloor_monitoring.console.acts.kept_forms import KeptForms
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.pages.dead_letter_page import opened, place_named
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

#: Seconds that who has looked has to send a correction.
LOOK_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Look:
    """A look that was noted.

    Attributes:
        place: of the dead letter.
        content: what the payload was, as `content_of` has it.
    """

    by: str
    place: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Revealed:
    """A dead letter that may be shown whole.

    Attributes:
        look: the id of the look's note.
        unnoted: why its end is not noted; its begin is.
    """

    found: DeadLetter
    look: str
    by: str
    unnoted: str


class Reveals:
    """Those of a cluster. Its methods block, and belong to threads of the console."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        #: By the ids of their notes.
        self.looks = KeptForms[Look, Any](longest_s=LOOK_S)

    def reveal(self, form: Fields, person: Person, address: str) -> Revealed:
        """Note a look, and read the dead letter.

        Args:
            person: who looks.
            address: from where.

        Raises:
            Refused: there is no such dead letter, or no reason is given.
            SettingError: the reason is too long.
            AckfloorError: the look can't be noted.
        """
        topic, partition, offset = place_named(form.get("place"))
        place, by = f"{topic}/{partition}/{offset}", by_of(person)
        reason = checked_reason("reason", " ".join(form.get("reason").split()))
        if not reason:
            raise Refused(400, "say why you look: others will ask")
        parsed, unnoted = parse_topic(topic), list[str]()
        note = console_note(
            "dlq reveal",
            by,
            address,
            target=topic,
            group="" if parsed is None else parsed.group,
            arguments={"places": [place]},
            reason=reason,
        )
        with noted(note, writer_of(self.cluster, unnoted.append), job=True) as ending:
            found = opened(self.cluster, place)
            ending.counts = {"done": 1}
        self.looks.keep(note.id, Look(by, place, content_of(found.value)))
        return Revealed(found, note.id, by, "".join(unnoted))

    def looked_at(self, look: str, by: str, place: str) -> Look:
        """The look that allows a person to correct a dead letter; raises Refused without one."""
        found = self.looks.judged(look)
        if found is None or (found.by, found.place) != (by, place):
            why = "a correction follows a look of the last hour: reveal the dead letter again"
            raise Refused(409, why)
        return found

    def lasts(self, look: str) -> bool:
        """Whether what somebody saw in a look may still be shown to them."""
        return self.looks.judged(look) is not None


def content_of(value: bytes | None) -> bytes:
    """What a payload is, to see whether it is still the same."""
    return b"" if value is None else hashlib.sha256(value).digest()
