"""What a change of a setting does to deliveries in flight, in sentences.

A run says how many it would end; these say what becomes of the others. See
docs/guide/running.md, "Changing settings while it runs".
"""

from __future__ import annotations

from typing import Final

_LIMITS: Final = (
    "Nothing in flight ends. Lower: partitions are paused until less is open. Higher: they are "
    "read on."
)
_COMMITS: Final = "Handlers notice nothing: it says when positions are committed."
_BATCHES: Final = "Calls that run keep their records; the next ones go by it."
#: By the end of a setting's name.
_EFFECTS: Final = {
    "consume_timeout": "It counts from when a delivery began, for those in flight as well: what "
    "is over it times out at its worker's next turn, and the retry policy says what becomes of "
    "it. Deadlines that `extend` has moved further stay.",
    "max_extend": "From now on `extend` moves no deadline further than that; one that was moved "
    "stays.",
    "concurrency": "More: waiting records start at once. Fewer: what runs may end, and none "
    "starts until fewer run than allowed.",
    "fairness": "What runs goes on; what waits is put in order anew.",
    "rate": "What runs goes on: it says when what waits may start, redeliveries too. It is the "
    "rate of the whole group, and each run goes by its own setting: all need the same.",
    "batch": _BATCHES,
    "batch_wait": _BATCHES,
    "max_open": _LIMITS,
    "max_open_bytes": _LIMITS,
    "partition_open": _LIMITS,
    "partition_open_bytes": _LIMITS,
    "partition_span": _LIMITS,
    "tier_buffer": _LIMITS,
    "commit_interval": _COMMITS,
    "commit_count": _COMMITS,
    "log_level": "It changes what is logged, and nothing else.",
}
#: By the table that it is in.
_OF_TABLES: Final = {
    "retry": "What runs is judged by it if it fails. What waits for a redelivery keeps its time.",
    "breaker": "What runs goes on; the circuit breaker goes by it from now on.",
}
#: Of what has no sentence of its own.
_ANY: Final = "Nothing in flight keeps a copy: it goes by the new value from now on."


def effect_of(setting: str) -> str:
    """What a change of this setting does to what is in flight, beside what it ends."""
    *_, table, key = ("", *setting.split("."))
    return _EFFECTS.get(key) or _OF_TABLES.get(table, _ANY)
