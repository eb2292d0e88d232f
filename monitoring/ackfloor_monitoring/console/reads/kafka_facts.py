"""OfKafka: what Kafka said of the groups of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ackfloor.cli.status.group_look import GroupLook, open_in
from ackfloor.cli.status.status_line import StatusLine


@dataclass(frozen=True, slots=True)
class OfKafka:
    """What Kafka said of the groups.

    Attributes:
        taken_ms: when it was asked, in milliseconds since 1970.
        answered_ms: nothing of it is newer than this, likewise.
        before: what it said before that, without what came before; None for nothing.
    """

    looks: Sequence[GroupLook]
    lines: Sequence[StatusLine]
    taken_ms: int
    answered_ms: int
    before: OfKafka | None = None

    def groups(self) -> Iterator[Mapping[str, Any]]:
        """A row for each group."""
        for look in self.looks:
            sources = [each for each in look.progress if each.kind == "source"]
            yield {
                "group": look.group,
                "members": look.members,
                "lag": sum(each.lag or 0 for each in sources),
                "open": sum(map(open_in, sources)),
                "retry": sum(open_in(each) for each in look.progress if each.kind == "retry"),
                "dead": sum(open_in(each) for each in look.progress if each.kind == "dlq"),
            }

    def figures(self) -> dict[str, int]:
        """What the history keeps of them, of all groups together."""
        groups = list(self.groups())
        return {name: sum(row[name] for row in groups) for name in ("lag", "open", "retry", "dead")}
