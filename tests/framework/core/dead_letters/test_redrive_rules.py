"""Redrive: what a dead letter becomes, where it goes, and what stays where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.records.envelope import (
    PREFIX,
    REPLAYS,
    Envelope,
    Reason,
    read_envelope,
    write_headers,
)
from ackfloor.core.records.record import Headers
from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.rules.dispositions import Disposed, Disposition, disposition_key
from ackfloor.dead_letters.rules.record_size import SizeLimits
from ackfloor.dead_letters.rules.redrive_rules import (
    TO_RETRY,
    TO_SOURCE,
    DeadLetter,
    Left,
    Order,
    Target,
    in_order,
    redriven_headers,
    target_partition,
    target_topic,
    why_left,
)
from ackfloor.dead_letters.rules.redrive_tally import SAMPLES, Preview, Tally

DIED = Envelope(
    origin_topic="orders",
    origin_partition=3,
    origin_offset=41_927,
    origin_timestamp_ms=1_700_000_000_000,
    group="billing",
    handler="bill",
    attempt=7,
    failures=6,
    timeouts=1,
    reason=Reason.EXHAUSTED,
    error_type="shop.InvalidOrder",
    error_message="no",
    error_stack="Traceback",
    error_fingerprint="0123456789abcdef",
    first_failed_at_ms=1_700_000_001_000,
    failed_at_ms=1_700_000_009_000,
    duration_ms=250,
    release="v1",
    truncated="headers,stack",
)
DLQ = "orders--billing--dlq"
ORDER = Order(DLQ, TO_RETRY, "job", "me")
OWN: Headers = [("trace", b"1"), ("trace", None), ("kafka_dlt-original-topic", b"other"), ("", b"")]


def dead(
    envelope: Envelope | None = DIED, own: Headers = OWN, key: bytes | None = b"k", offset: int = 5
) -> DeadLetter:
    """A dead letter as the runtime writes it; as another tool does, without an envelope."""
    headers = own if envelope is None else write_headers(envelope, own)
    return DeadLetter(DLQ, 3, offset, key, b"value", headers)


def test_the_budget_is_whole_and_the_origin_kept() -> None:
    """Only the origin, the first failure and what can't be had again survive; replays count."""
    assert read_envelope(redriven_headers(dead(), 42)) == Envelope(
        origin_topic="orders",
        origin_partition=3,
        origin_offset=41_927,
        origin_timestamp_ms=1_700_000_000_000,
        group="billing",
        handler="bill",
        first_failed_at_ms=1_700_000_001_000,
        not_before_ms=42,
        replays=1,
        truncated="headers",
    )


@given(
    own=st.lists(
        st.tuples(
            st.text(max_size=5).filter(lambda name: not name.startswith(PREFIX)),
            st.none() | st.binary(max_size=5),
        ),
        max_size=6,
    ),
    replays=st.integers(0, 9),
    ours=st.booleans(),
)
def test_own_headers_are_kept_byte_for_byte(own: Headers, replays: int, ours: bool) -> None:
    """Order, repeated names and empty values included, for our dead letters and for others'."""
    letter = dead(DIED._replace(replays=replays) if ours else None, own)
    written = redriven_headers(letter, 1)
    assert [header for header in written if not header[0].startswith(PREFIX)] == list(own)
    assert read_envelope(written).replays == (replays if ours else 0) + 1


def test_copies_for_other_tools_are_written_anew() -> None:
    """Copies behind our headers say the new facts; what came with the record stays in front."""
    headers = write_headers(DIED, OWN, spring=True, kafka=True, timestamp_type=1)
    written = redriven_headers(replace(dead(), headers=headers), 1)
    names = [name for name, _ in written]
    assert written[: len(OWN)] == list(OWN)
    assert names.count("kafka_dlt-original-topic") == 2
    assert "kafka_dlt-exception-fqcn" not in names
    assert written[-1] == ("__dlq.errors.delivery.count", b"0")
    assert ("kafka_dlt-original-timestamp-type", b"CreateTime") in written


def test_a_record_of_another_tool_gets_nothing_but_the_count() -> None:
    """Foreign headers stay; leftovers under our prefix are replaced by `replays`."""
    letter = dead(None, [("__dlq.errors.topic", b"t"), (REPLAYS, b"2"), ("ackfloor.group", b"g")])
    assert redriven_headers(letter, 1) == [("__dlq.errors.topic", b"t"), (REPLAYS, b"3")]
    assert redriven_headers(replace(letter, headers=None), 1) == [(REPLAYS, b"1")]


def test_the_first_retry_topic_is_the_one_with_the_shortest_delay() -> None:
    """By its delay and not by its name, among those of this topic and group only."""
    topics = [
        "orders--billing--retry-5s",
        "orders--billing--retry-1500ms",
        "orders--billing--retry-10m",
        "orders--other--retry-1s",
        "more-orders--billing--retry-1s",
        "orders",
        DLQ,
        "orders--billing--dispositions",
    ]
    assert target_topic(ORDER, topics) == "orders--billing--retry-1500ms"
    assert target_topic(replace(ORDER, to=TO_SOURCE), topics) == "orders"
    assert target_topic(replace(ORDER, to="orders--other--retry-1s"), topics) == topics[3]
    assert target_topic(Order("legacy.DLT", "orders", "job", "me"), topics) == "orders"


@pytest.mark.parametrize(
    ("order", "topics", "says"),
    [
        (ORDER, [DLQ], "no retry topic"),
        (replace(ORDER, to=TO_SOURCE), [DLQ], "does not exist"),
        (replace(ORDER, to="nowhere"), [DLQ], "does not exist"),
        (replace(ORDER, to=DLQ), [DLQ], "not read by any handler"),
        (replace(ORDER, dlq="legacy.DLT"), ["legacy.DLT"], "--to TOPIC"),
        (Order("legacy.DLT", "legacy.DLT", "job", "me"), ["legacy.DLT"], "there already"),
        (Order("legacy.DLT", TO_SOURCE, "job", "me"), ["legacy.DLT"], "--to TOPIC"),
        (replace(ORDER, dlq="orders--billing--retry-5s"), [], "--to TOPIC"),
    ],
)
def test_an_order_without_a_target_is_refused(order: Order, topics: list[str], says: str) -> None:
    """The sentence says what is missing and what to do."""
    with pytest.raises(SettingError, match=says):
        target_topic(order, topics)


def test_orders_that_send_nothing_are_refused() -> None:
    """A maximum or a cap below one."""
    with pytest.raises(SettingError, match="max=0"):
        replace(ORDER, limit=0)
    with pytest.raises(SettingError, match="max_replays=0"):
        replace(ORDER, max_replays=0)


def test_what_stays_and_why() -> None:
    """Disposed, unreadable, at the cap, or another tool's; in this order."""
    disposed = Disposed()
    disposed.note(disposition_key(3, 9), b'{"disposition": "discarded"}')
    capped = dead(DIED._replace(replays=5))
    assert why_left(dead(), ORDER, disposed) is None
    assert why_left(dead(offset=9), ORDER, disposed) is Left.DISPOSED
    assert why_left(replace(dead(), headers=None), ORDER, disposed) is Left.UNREADABLE
    assert why_left(capped, ORDER, disposed) is Left.CAPPED
    assert why_left(capped, replace(ORDER, max_replays=6), disposed) is None
    assert why_left(dead(None), ORDER, disposed) is Left.FOREIGN
    assert why_left(dead(None), replace(ORDER, to=TO_SOURCE), disposed) is Left.FOREIGN
    assert why_left(dead(None), replace(ORDER, to="orders"), disposed) is None


def test_what_goes_nowhere_may_be_anything() -> None:
    """Discarded is whatever is there; archived what can be written down whole."""
    capped, unreadable = dead(DIED._replace(replays=9)), replace(dead(), headers=None)
    disposed = Disposed()
    disposed.note(disposition_key(3, 9), b'{"disposition": "archived"}')
    discard, archive = (
        replace(ORDER, to="", action=action)
        for action in (Disposition.DISCARDED, Disposition.ARCHIVED)
    )
    for order in (discard, archive):
        assert not order.sends
        assert [why_left(each, order, disposed) for each in (capped, dead(None))] == [None, None]
        assert why_left(dead(offset=9), order, disposed) is Left.DISPOSED
    assert why_left(unreadable, discard, disposed) is None
    assert why_left(unreadable, archive, disposed) is Left.UNREADABLE


def test_a_preview_counts_causes_and_shows_a_few() -> None:
    """A cause that no header tells is one, too."""
    preview = Preview(Target("orders", 1, "orders"))
    for offset in range(SAMPLES + 2):
        preview.add(dead(offset=offset))
    preview.add(dead(None))
    assert preview.causes == {
        ("bill", "exhausted", "shop.InvalidOrder"): SAMPLES + 2,
        ("", "", ""): 1,
    }
    assert [each.offset for each in preview.samples] == list(range(SAMPLES))
    assert all(why.words for why in Left)


def test_partitions_of_the_target() -> None:
    """Source and retry topics are entered where the record was; one without a key is spread."""
    tier, source = Target("t", 4, TO_RETRY), Target("s", 4, TO_SOURCE)
    named = Target("orders--billing--retry-10m", 4, "orders--billing--retry-10m")
    for each in (tier, named):
        keys = {target_partition(dead(key=b"%d" % n, offset=n), each) for n in range(9)}
        assert keys == {3}
        spread = {target_partition(dead(key=None, offset=n), each) for n in range(9)}
        assert spread == {0, 1, 2, 3}
        # With fewer partitions, or from another tool, a key's records stay together all the same.
        few = replace(each, partitions=3)
        assert len({target_partition(dead(offset=n), few) for n in range(9)}) == 1
        assert target_partition(dead(None), few) in range(3)
    assert target_partition(dead(), source) == 3
    assert target_partition(dead(), replace(source, partitions=3)) is None
    assert target_partition(dead(), Target("x", 4, "x")) is None


def test_what_was_given_up_again_is_sent_before_what_came_after_it() -> None:
    """By topic, partition and offset of the origin; what has none stays as it was, in front."""
    order = [(3, 7), (3, 9), (3, 5), (1, 8), (3, 5)]
    letters = [
        dead(DIED._replace(origin_partition=partition, origin_offset=offset), offset=n)
        for n, (partition, offset) in enumerate(order)
    ]
    foreign = [dead(None, offset=10), dead(None, offset=11)]
    mixed = [*letters[:2], foreign[0], *letters[2:], foreign[1]]
    assert [each.offset for each in in_order(mixed)] == [10, 11, 3, 2, 4, 0, 1]


def test_no_more_is_held_in_memory_than_is_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a row of any length, by count and by bytes; none is left out."""
    letters = [dead(DIED._replace(origin_offset=-n % 7), offset=n) for n in range(7)]
    for bound in ({"ORDERED": 3}, {"ORDERED_BYTES": 3 * letters[0].size}):
        with monkeypatch.context() as patched:
            for name, value in bound.items():
                patched.setattr(f"ackfloor.dead_letters.rules.redrive_rules.{name}", value)
            read: list[int] = []
            feed = (each for each in letters if read.append(each.offset) is None)
            found = in_order(feed)
            first = [next(found).offset for _ in range(3)]
            assert (read, sorted(first)) == ([0, 1, 2], [0, 1, 2])
            assert sorted(each.offset for each in found) == [3, 4, 5, 6]


def test_the_size_counts_everything() -> None:
    """Key, value, header names and values."""
    letter = DeadLetter("t", 0, 0, b"12", b"345", [("6", b"7"), ("8", None)])
    assert letter.size == 8
    assert DeadLetter("t", 0, 0, None, None, None).size == 0


def test_a_tally_accounts_for_everything() -> None:
    """What was disposed before is no failure; whatever else was left is."""
    tally = Tally().send(2).leave(Left.DISPOSED).leave(Left.DISPOSED, 3)
    assert tally.complete
    assert [tally.of(9, most).remaining for most in (None, 5, 4, 2)] == [3, 3, 2, 0]
    assert not tally.leave(Left.GONE).complete
    assert not replace(tally, stopped="killed").complete


def test_what_may_not_fit_is_said_with_the_limit_or_what_it_takes_to_know_it() -> None:
    """Who may not describe the topic learns which right that needs."""
    unknown = Preview(Target("orders", 3, TO_SOURCE)).perhaps_text
    known = Preview(Target("orders", 3, TO_SOURCE, SizeLimits(topic=5_000))).perhaps_text
    assert "what orders allows is not known (grant DESCRIBE_CONFIGS on it)" in unknown
    assert "bytes that orders allows: what compression does not make fit" in known
