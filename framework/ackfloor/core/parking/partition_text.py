"""Partitions in the words of a log line: summed by topic, and no longer than a person reads.

A worker may get hundreds of partitions at once, because each retry topic has as many as its
source. So numbers are ranges, and the retry topics of a source that have the same numbers are
named by their delays. What has no room is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.record import StartPosition, TopicPartition
from ackfloor.core.values.durations import format_exact_unit

#: How many ranges of a topic's numbers, and how many delays of its retry topics, are named.
MOST_RANGES = 8
MOST_DELAYS = 12
#: After so many characters no further topic is named.
ENOUGH = 400

#: A source topic, and of its retry topics the group and the delays in seconds; else a topic.
_Name = tuple[str, str, tuple[float, ...]]


def partitions_text(partitions: Iterable[TopicPartition | StartPosition]) -> str:
    """Partitions by topic, such as `orders: 0-7, 12; retry topics of orders (1s, 1m): 0-7`."""
    parts = _summed(partitions)
    text = ""
    for number, (name, numbers) in enumerate(parts):
        if number and len(text) >= ENOUGH:
            return f"{text}; and {_rest(parts[number:])}"
        text = f"{text}; {_part(name, numbers)}" if text else _part(name, numbers)
    return text


def _summed(
    partitions: Iterable[TopicPartition | StartPosition],
) -> list[tuple[_Name, Sequence[int]]]:
    """What is named as one, with its partition numbers: a source before its retry topics."""
    topics: dict[str, set[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, set()).add(each.partition)
    delays: dict[tuple[str, str, tuple[int, ...]], list[float]] = {}
    for topic, numbers in topics.items():
        parsed = parse_topic(topic)
        if parsed is None or parsed.delay_s is None:
            delays[topic, "", tuple(sorted(numbers))] = []
        else:
            key = parsed.topic, parsed.group, tuple(sorted(numbers))
            delays.setdefault(key, []).append(parsed.delay_s)
    named = [((key[0], key[1], tuple(sorted(each))), key[2]) for key, each in delays.items()]
    return sorted(named)


def _part(name: _Name, numbers: Sequence[int]) -> str:
    topic, _, delays_s = name
    if not delays_s:
        return f"{topic}: {_ranges(numbers)}"
    shown = ", ".join(format_exact_unit(delay_s) for delay_s in delays_s[:MOST_DELAYS])
    more = len(delays_s) - MOST_DELAYS
    shown = f"{shown} and {more} more" if more > 0 else shown
    noun = "retry topic" if len(delays_s) == 1 else "retry topics"
    return f"{noun} of {topic} ({shown}): {_ranges(numbers)}"


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in order as ranges, such as `0-7, 12`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges]
    more = sum(last - first + 1 for first, last in ranges[MOST_RANGES:])
    shown = ", ".join(texts[:MOST_RANGES])
    return f"{shown} and {more} more" if more else shown


def _rest(parts: Sequence[tuple[_Name, Sequence[int]]]) -> str:
    count = sum(len(numbers) * max(1, len(name[2])) for name, numbers in parts)
    topics = sum(max(1, len(name[2])) for name, _ in parts)
    return f"{count} partitions of {topics} more {'topic' if topics == 1 else 'topics'}"
