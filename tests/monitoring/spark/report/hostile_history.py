"""A history in which everything is wrong that can be: clocks, headers, names, sizes, strangers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

Headers = list[tuple[str, bytes | str | None]]

DAY_MS = 86_400_000
DAYS = 14
GROUPS = ("hostile", "hostile.v2")
#: Of the topics of these groups.
PATTERN = r"^.+--hostile[^-]*--(retry-[0-9]+[a-z]+|dlq)$"
#: What a script in it would set, were it run.
RUN = "window.ran=1;alert(1)"
#: Names that try to be something else, wherever they get to.
ATTACKS = (
    f"<script>{RUN}</script>",
    f'"><img src=x onerror="{RUN}">',
    f"'><svg onload='{RUN}'>",
    f"</style><script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</title></textarea><script>{RUN}</script>",
    f'<a href="javascript:{RUN}">here</a>',
    f"javascript:{RUN}",
    "<!--<script>",
    "]]>--!>",
    f'<iframe srcdoc="<script>parent.ran=1</script>"></iframe><a href="javascript:{RUN}">x</a>',
    '<style>*{display:none}</style><base href="http://evil.invalid/">',
    '<link rel=stylesheet href="http://evil.invalid/x.css"><img src="http://evil.invalid/x.png">',
    "%{x}<br>%{customdata}<extra></extra>",
    "${alert(1)} {{7*7}} $\\alpha$",
    "\u202eevil\u202dtxt.exe\u2066\u2067",
    "\u200b\u200f\ufeff\u2028\u2029",
    "one\r\ntwo\n\n\n\ttabs\x00\x1b[31mred\x07",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f3f4\U000e0067\U000e007f",
    "Z" + "\u0301\u0323\u0489" * 60 + "algo",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u4e2d\u6587 \u0939\u093f\u0928\u094d\u0926\u0940",
    "W" * 400,
    "a.b" * 2_000,
    "constructor",
    "__proto__",
    "",
    " ",
    "NaN",
    "2026-11-01",
    "1e9",
    "other",
)
FIELDS = (
    "ackfloor.origin.topic", "ackfloor.handler", "ackfloor.reason", "ackfloor.error.type",
    "ackfloor.error.message", "ackfloor.error.stack", "ackfloor.error.fingerprint",
    "ackfloor.release", "ackfloor.worker", "ackfloor.edited", "ackfloor.idempotency_key",
    "ackfloor.truncated", "ackfloor.group", "ackfloor.unheard.of",
)  # fmt: skip
_NUMBERS = (b"two", b"1.5", b"-1", b"", b" 2", b"999999999999999999", "\u0663".encode(), None)
#: Milliseconds that a clock never had, or has not for years.
CLOCKS = (
    3_786_912_000_000, 0, -1, -86_400_000 * 400, 253_402_214_400_000, -62_135_510_400_000,
    10**18, 946_684_800_000,
)  # fmt: skip


class Wrong(NamedTuple):
    """A record as it is produced."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    at_ms: int


def topic(group: str, ending: str) -> str:
    """A topic of a group."""
    return f"orders--{group}--{ending}"


def topics() -> list[str]:
    """All of them, and one of a name as long as Kafka takes."""
    names = [topic(group, end) for group in GROUPS for end in ("retry-5s", "retry-10m", "dlq")]
    return [*names, "o" * (249 - len("--hostile.g--dlq")) + "--hostile.g--dlq"]


def records(count: int, now_ms: int) -> Iterator[Wrong]:
    """About so many records: ordinary ones with odd names, and then what is broken."""
    for number in range(count):
        yield _odd(number, now_ms - DAYS * DAY_MS + number * DAYS * DAY_MS // count)
    yield from _broken(now_ms)


def _odd(number: int, at_ms: int) -> Wrong:
    """A failure that is told of correctly, by somebody whose names are attacks."""
    attack = ATTACKS[number % len(ATTACKS)].encode()
    other = ATTACKS[number // 7 % len(ATTACKS)].encode()
    group = GROUPS[number % 2]
    attempt = number % 4
    ending = ("retry-5s", "retry-10m", "retry-10m", "dlq")[attempt]
    headers: Headers = [
        ("own", attack),
        ("ackfloor.origin.topic", b"orders" if number % 3 else attack),
        ("ackfloor.origin.partition", b"%d" % (number % 5)),
        ("ackfloor.origin.offset", b"%d" % (number // 4)),
        ("ackfloor.handler", b"bill" if number % 4 else other),
        ("ackfloor.attempt", b"%d" % (attempt + 1)),
        ("ackfloor.reason", b"error" if number % 5 else attack),
        ("ackfloor.error.type", b"shop.%d." % (number % 700) + other),
        ("ackfloor.error.message", attack * (1 + number % 40)),
        ("ackfloor.error.fingerprint", b"%d" % (number % 700) + attack),
        ("ackfloor.failed_at", b"%d" % at_ms),
        ("ackfloor.first_failed_at", b"%d" % (at_ms - attempt * 61_000)),
        ("ackfloor.not_before", b"%d" % (at_ms + 5_000)),
        ("ackfloor.duration_ms", b"%d" % (number % 40_000)),
        ("ackfloor.release", other),
    ]
    if number % 50 == 0:
        headers += [("ackfloor.replays", b"1"), ("ackfloor.attempt", b"0")]
    return Wrong(topic(group, ending), attack, b"{}", headers, at_ms)


def _broken(now_ms: int) -> Iterator[Wrong]:
    dead, retry = topic(GROUPS[0], "dlq"), topic(GROUPS[1], "retry-5s")
    for clock in CLOCKS:
        for attack in ATTACKS[:4]:
            told: Headers = [("ackfloor.failed_at", b"%d" % clock), *_all_are(attack.encode())]
            yield Wrong(dead, attack.encode(), b"{}", told, now_ms)
    for name in FIELDS:
        huge = (name.encode() + b"/" + b"<b>" * 30_000)[:65_536]
        for value in (None, b"", b"\xc3\x28\xff", huge):
            yield Wrong(retry, b"\xff\xfe", b"{}", [(name, value)], now_ms)
            yield Wrong(retry, None, b"{}", [(name, value), (name, b"second")], now_ms)
    for number in ("attempt", "failures", "timeouts", "duration_ms", "replays", "origin.offset"):
        for bad in _NUMBERS:
            wrong: Headers = [(f"ackfloor.{number}", bad), ("ackfloor.origin.topic", b"orders")]
            yield Wrong(retry, b"k", b"{}", wrong, now_ms)
    large = b"<script>" + b"x" * 2_000_000
    for key in (b"large", None, b"K" * 65_536, b"<b>" * 20_000):
        yield Wrong(dead, key, large, _all_are(b"</script>"), now_ms)
    for who in topics():  # nobody's of ours: no header, a tombstone, JSON, other tools' headers
        yield Wrong(who, None, None, [], now_ms)
        yield Wrong(who, b"\x00", json.dumps({"a": ATTACKS[0]}).encode(), [("", b"")], now_ms)
        spring: Headers = [("kafka_dlt-exception-fqcn", ATTACKS[1].encode()), ("x", None)] * 50
        yield Wrong(who, b"s", b"\xff" * 10, spring, 1_000)


def _all_are(value: bytes) -> Headers:
    return [(name, value) for name in FIELDS]


def produce(servers: str, count: int, now_ms: int) -> int:
    """Create the topics, with room for large values, and fill them; how many records that are."""
    config = {"max.message.bytes": "12000000", "retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(name, 2, 1, config=config) for name in topics()]
    for made in admin.create_topics(wanted, operation_timeout=60).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 12_000_000})
    produced = 0
    for each in records(count, now_ms):
        producer.produce(
            each.topic, each.value, each.key, headers=each.headers, timestamp=max(1, each.at_ms)
        )
        producer.poll(0)
        produced += 1
    assert producer.flush(60) == 0
    return produced
