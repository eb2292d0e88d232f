"""What holds up a handler although nothing fails: noisy and hanging keys, and slots all taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ackfloor.core.values.durations import format_duration, format_rounded
from ackfloor.core.values.printable import plain
from ackfloor.operations.run_client import age_s, workers_of

#: How many keys a line names.
MOST_NAMED = 5


class HeldUp(NamedTuple):
    """The noisy and hanging keys of one handler, in all workers together.

    Attributes:
        running: how many of their records run, as far as the keys are named.
        behind: how many records wait behind them.
        behind_hanging: how many of these wait behind keys that hang.
        newest: some of the keys, as far as redaction has left them, and which they are.
    """

    handler: str
    noisy: int
    hanging: int
    running: int
    behind: int
    behind_hanging: int
    newest: str

    def __str__(self) -> str:
        return f"{self.counts}; the newest: {self.newest}"

    @property
    def counts(self) -> str:
        """How many there are, without the keys."""
        what = [_counted(self.noisy, "noisy key"), _counted(self.hanging, "hanging key")]
        keys = ", ".join(text for text in what if text)
        records = _counted(self.behind, "record") or "nothing"
        if self.running > self.noisy + self.hanging:
            records = f"{_counted(self.running, 'record')} in flight, {records}"
        mixed = self.noisy and self.hanging and self.behind
        part = f" ({self.behind_hanging} of hanging keys)" if mixed else ""
        return f"{keys}, {records} behind{part}"


def noisy_key_remarks(state: Mapping[str, Any]) -> Iterator[str]:
    """A line for each handler with noisy or hanging keys, of all workers together."""
    return (f"{each.handler}: {each}" for each in held_up(state))


def held_up(state: Mapping[str, Any]) -> Iterator[HeldUp]:
    """The handlers of a run with noisy or hanging keys."""
    of_handler: dict[str, list[Mapping[str, Any]]] = {}
    for _, worker in workers_of(state):
        for handler in worker["handlers"]:
            # An older run does not tell.
            keys = handler.get("noisy_keys")
            if keys and keys["noisy"] + keys["hanging"]:
                of_handler.setdefault(handler["name"], []).append(keys)
    for name, each in sorted(of_handler.items()):
        noisy, hanging, behind = (sum(k[n] for k in each) for n in ("noisy", "hanging", "behind"))
        again_noisy, again_hanging = _named_again(each)
        yield HeldUp(
            name,
            noisy - again_noisy,
            hanging - again_hanging,
            running=sum(key["running"] for keys in each for key in keys["newest"]),
            behind=behind,
            behind_hanging=sum(k.get("behind_hanging", k["hanging"] and k["behind"]) for k in each),
            newest=_named(each),
        )


def _named_again(each: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """How many noisy and hanging keys a worker has that another one has as well.

    A key's source partition and its retry partitions may be in different workers.
    """
    seen: dict[str, bool] = {}
    again = [0, 0]
    for key in (key for keys in each for key in keys["newest"]):
        name, hanging = key["key"], key["hanging"]
        if name is None:  # redacted: which one it is nobody can say
            continue
        if name in seen:
            # Where it hangs in one of them, it is a hanging key.
            both = hanging and seen[name]
            again[both] += 1
        seen[name] = seen.get(name, False) or hanging
    return again[False], again[True]


def _counted(count: int, what: str) -> str:
    """Empty where there is none."""
    return f"{count} {what}{'' if count == 1 else 's'}" if count else ""


def _named(each: Sequence[Mapping[str, Any]]) -> str:
    """The newest keys of all workers, as many as a line has room for."""
    newest = (key for keys in each for key in keys["newest"])
    named = dict.fromkeys(
        f"{_shown(key['key'])} ({'hanging' if key['hanging'] else 'noisy'})" for key in newest
    )
    return ", ".join(list(named)[:MOST_NAMED])


def _shown(key: str | None) -> str:
    """A key in a line, as far as redaction has left it."""
    return "(not shown)" if key is None else " ".join(plain(key).split())


def full_slot_remarks(state: Mapping[str, Any]) -> Iterator[str]:
    """A line for each worker and handler that has nothing but deliveries that run far longer than
    usual: since when the longest runs, when it ends, and what frees the slots sooner."""
    for number, worker in workers_of(state):
        since_s = age_s(state, worker)
        for handler in worker["handlers"]:
            slots = handler.get("long_slots")
            if slots and slots["full"] and handler["oldest"]:
                yield (
                    f"worker {number}: all {slots['count']} slots of {handler['name']} are held by "
                    f"deliveries that run far longer than usual, {_longest(handler, since_s)}; "
                    f"a shorter {_lever(handler)} frees them sooner"
                )


def _longest(handler: Mapping[str, Any], since_s: float) -> str:
    """For how long the longest-running delivery runs, and when it ends at the latest."""
    longest = handler["oldest"][0]
    running, left_s = format_rounded(longest["running_s"] + since_s), longest["left_s"]
    if left_s is None:
        return f"the longest for {running}, without a deadline"
    if left_s <= since_s:
        return f"the longest for {running}, beyond its deadline"
    return f"the longest for {running}, {format_rounded(left_s - since_s)} before its deadline"


def _lever(handler: Mapping[str, Any]) -> str:
    timeout_s = handler["consume_timeout_s"]
    now = "none" if timeout_s is None else format_duration(timeout_s)
    return f"handlers.{handler['name']}.consume_timeout ({now} now)"
