"""Commits: what consumer groups have settled, for monitoring and reconciliation.

    from ackfloor.commits import settled
    from ackfloor.redrive import kafka_options

    settled(kafka_options(), "billing", ["orders--billing--retry-1s"])

The Kafka client is loaded when it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ackfloor.core.acks.settled import Settled

if TYPE_CHECKING:
    from ackfloor.kafka.groups.group_commits import settled

__all__ = ["Settled", "settled"]

if not TYPE_CHECKING:
    # A type checker that saw this would take every misspelt name for one of these.
    def __getattr__(name: str) -> Any:
        if name != "settled":
            raise AttributeError(f"module 'ackfloor.commits' has no attribute {name!r}")
        from ackfloor.kafka.groups.group_commits import settled

        return settled
