"""What a version writes, for each way in which it can look: bytes as text, beside what they say."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from typing import Any

from ackfloor.core.acks.gap_set import GapSet, encode, topic_hash
from ackfloor.core.parking.topic_names import dlq_topic, parse_topic, tier_topic
from ackfloor.core.records.envelope import Envelope, Reason, write_headers
from ackfloor.core.records.record import Headers
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.dispositions import (
    Disposition,
    DispositionNote,
    disposition_key,
    dispositions_topic_of,
)
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, redriven_headers

_FULL = Envelope(
    origin_topic="orders", origin_partition=3, origin_offset=41_927,
    origin_timestamp_ms=1_700_000_000_000, group="billing", handler="bill", attempt=7, failures=6,
    timeouts=1, reason=Reason.EXHAUSTED, error_type="shop.InvalidOrder",
    error_message="no such näme", error_stack='Traceback\n  File "shop.py", line 7, in bill',
    error_fingerprint="0123456789abcdef", first_failed_at_ms=1_700_000_001_000,
    failed_at_ms=1_700_000_009_000, not_before_ms=1_700_000_010_000,
    retry_at_ms=1_700_000_020_000, duration_ms=250, release="v1.2", worker="host-0", replays=2,
    edited="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    idempotency_key="Jq0bS6aTQs2aGUqzyx4zZw/3/41927", truncated="stack",
)  # fmt: skip
#: In a retry topic, behind a record of its key: not delivered, so nothing is told of an error.
FOLLOWER = Envelope(
    origin_topic="orders", origin_partition=3, origin_offset=41_930,
    origin_timestamp_ms=1_700_000_000_500, group="billing", handler="bill", reason=Reason.BEHIND,
    not_before_ms=1_700_000_010_000, retry_at_ms=2_015_360_000_500, release="v1.3",
    worker="host-0",
)  # fmt: skip
#: It was redelivered from a retry topic before its key was quarantined.
FAILED_FOLLOWER = FOLLOWER._replace(attempt=2, failures=1, timeouts=1)
#: It went to the dead-letter topic with the record in front of it.
_DEAD_FOLLOWER = FOLLOWER._replace(not_before_ms=None, retry_at_ms=None)
#: It is in the dead-letter topic, and this keeps its key in quarantine.
HELD = FOLLOWER._replace(origin_offset=41_927, attempt=7, failures=7, reason=Reason.HELD)
_DID_NOT_FAIL = frozenset({Reason.BEHIND, Reason.HELD})
_OWN: Headers = [("traceparent", b"00-1-2-01"), ("twice", b"1"), ("twice", None), ("", b"\xff\x00")]


def written(headers: Headers) -> list[list[str | None]]:
    """Headers for JSON: values in hexadecimal digits."""
    return [[name, None if value is None else value.hex()] for name, value in headers]


def headers() -> list[dict[str, Any]]:
    """Headers of parked records: each reason, all of ours, none, with copies for other tools."""
    first = Envelope("orders", 0, 0, -1, "billing", "bill", 1, 1, reason=Reason.ERROR)
    cases = [
        ("everything", _FULL, write_headers(_FULL, _OWN)),
        ("copies", _FULL, write_headers(_FULL, _OWN, spring=True, kafka=True, timestamp_type=1)),
        ("first failure", first, write_headers(first, ())),
        ("another tool", Envelope(), list(_OWN)),
    ]
    for reason in (each for each in Reason if each not in _DID_NOT_FAIL):
        envelope = Envelope("o.t_x", 9, 10**15, 5, "g", "h", 2, 1, 1, reason, "E", not_before_ms=9)
        cases.append((reason.value, envelope, write_headers(envelope, ())))
    dead = DeadLetter("orders--billing--dlq", 0, 3, b"k", b"v", write_headers(_FULL, _OWN))
    again = redriven_headers(dead, 1_700_000_030_000)
    kept = Envelope(
        "orders", 3, 41_927, 1_700_000_000_000, "billing", "bill",
        first_failed_at_ms=1_700_000_001_000, not_before_ms=1_700_000_030_000, replays=3,
        edited=_FULL.edited, idempotency_key=_FULL.idempotency_key,
    )  # fmt: skip
    cases.append(("replayed", kept, again))
    cases += [
        ("behind", FOLLOWER, write_headers(FOLLOWER, _OWN)),
        ("behind, with copies", FOLLOWER, write_headers(FOLLOWER, _OWN, spring=True, kafka=True)),
        ("behind, failed before", FAILED_FOLLOWER, write_headers(FAILED_FOLLOWER, _OWN)),
        ("behind, dead-lettered", _DEAD_FOLLOWER, write_headers(_DEAD_FOLLOWER, _OWN)),
        ("held", HELD, write_headers(HELD, _OWN)),
    ]
    return [
        {"case": name, "headers": written(raw), "says": _told(says)} for name, says, raw in cases
    ]


def _told(envelope: Envelope) -> dict[str, Any]:
    return {name: value for name, value in envelope._asdict().items() if name != "unreadable"}


def commits() -> list[dict[str, Any]]:
    """Metadata of commits in all four codecs, and the ends of what they can say."""
    pick = random.Random(7)
    spans = {"none": (9, 0), "few": (100_000, 64), "many": (20_000, 1_000), "half": (4_000, 2_000)}
    cases = [
        ("nothing", GapSet(0)),
        ("one run", GapSet(500, ((501, 10_501),), topic_hash("aB+/cd"), 0)),
        ("far", GapSet(1 << 40, (((1 << 40) + 5, (1 << 40) + 6),), 12_345, 41)),
        ("from the floor on", GapSet(9, ((9, 11), (12, 13)), 1, 2)),
    ]
    for name, (span, count) in spans.items():
        open_ = sorted(pick.sample(range(1, span), count))
        runs, at = [], 101
        for offset in (100 + each for each in open_):
            if offset > at:
                runs.append((at, offset))
            at = offset + 1
        cases.append((f"{name} open", GapSet(100, tuple(runs), 77, 3)))
    found = []
    for name, gaps in cases:
        text, _ = encode(gaps, "bestellungen.ä", 7, 100_000)
        says = {
            "floor": gaps.floor,
            "runs": [list(run) for run in gaps.runs],
            "topic_hash": gaps.topic_hash,
            "leader_epoch": gaps.leader_epoch,
        }
        found.append({"case": name, "text": text, "says": says})
    return found


def notes() -> list[dict[str, Any]]:
    """Records of the topic beside the dead letters: dispositions, and notes of jobs."""
    found = []
    for n, what in enumerate(Disposition):
        note = DispositionNote(what, 1_700_000_000_123, "änn@host", "job-1", "t", "Jq0bS6aTQ")
        found.append(
            {
                "key": disposition_key(n, 10**n).decode(),
                "value": note.to_bytes().decode(),
                "hides": [n, 10**n],
            }
        )
    meant = DeadLetterFilter(
        "bill", "Boom", "exhausted", "4711", (("tenant", "a"),), 1, 7, 5, 1_000
    )
    asked = {
        "places": [], "filter": meant.to_dict(), "to": "retry", "max": 5, "max_replays": 5,
        "ends": {"0": 7}, "topic_id": "Jq0bS6aTQ", "edit": "",
    }  # fmt: skip
    for state in (JobState.RUNNING, JobState.DONE, JobState.STOPPED):
        job = JobNote("j-1", "replayed", state, "ann", "host", 7, "t", 3, 9, 1_000, 2_000, 3_000,
                      asked, "why")  # fmt: skip
        says = json.loads(json.dumps(asdict(job)))
        found.append({"key": job.key.decode(), "value": job.to_bytes().decode(), "says": says})
    return found


def topics() -> list[dict[str, Any]]:
    """Names of our topics, and what they are made of."""
    names = [tier_topic("orders", "billing", each) for each in (0.25, 1.0, 90.0, 600.0, 86_400.0)]
    names += [dlq_topic("o.t_x", "g-1"), dispositions_topic_of(dlq_topic("o.t_x", "g-1"))]
    found = []
    for name in names:
        parsed = parse_topic(name)
        assert parsed is not None
        found.append({"name": name, "says": asdict(parsed)})
    return found


FILES = {"headers": headers, "commits": commits, "notes": notes, "topics": topics}
