"""Redrive on a real broker: byte for byte, once in effect, accounted for, and refused in words."""

from __future__ import annotations

import gc
import random
import threading
from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from ackfloor.core.records.envelope import read_envelope, write_headers
from ackfloor.core.records.record import Headers
from ackfloor.dead_letters.kafka import redrive_job, redrive_topics
from ackfloor.dead_letters.kafka.redrive_cancel import cancelled
from ackfloor.dead_letters.kafka.redrive_job import RedriveJob
from ackfloor.dead_letters.kafka.redrive_writer import NewRecord, RedriveWriter, TooLarge
from ackfloor.dead_letters.rules.record_size import Fit, SizeLimits
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState
from ackfloor.dead_letters.rules.redrive_rules import Left, Order
from ackfloor.dead_letters.rules.redrive_tally import Tally
from ackfloor.errors import KafkaUnreachable, RedriveRefused
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.redrive import select
from tests.framework.kafka.wire import fresh, options, recreate
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka


@pytest.fixture
def stage(bootstrap_servers: str) -> Stage:
    """A group's topics with an empty dead-letter topic."""
    return Stage(bootstrap_servers)


def test_it_goes_back_byte_for_byte_with_a_whole_budget(stage: Stage) -> None:
    """Key, value and own headers as they were, origin kept, replays counted, note written."""
    own: Headers = [("a", b"\xff\x00"), ("a", None), ("kafka_dlt-original-topic", b"x"), ("", b"")]
    stage.bury([(b"", b"\x00\xff", own), (None, None, []), (b"key", b"", own)])
    tally = stage.job().run(stage.everything())
    assert tally == Tally(sent=3)
    sent = {read_envelope(m.headers()).origin_offset: m for m in stage.read(stage.tier)}
    assert [(sent[n].key(), sent[n].value()) for n in range(3)] == [
        (b"", b"\x00\xff"),
        (None, None),
        (b"key", b""),
    ]
    assert (sent[0].headers() or [])[:4] == own
    envelope = read_envelope(sent[0].headers())
    assert (envelope.attempt, envelope.failures, envelope.replays) == (0, 0, 1)
    assert (envelope.origin_topic, envelope.reason) == (stage.source, None)
    notes = stage.notes()
    assert sorted(notes) == ["0/0", "0/1", "1/0"]
    assert notes["0/0"].items() >= {
        "disposition": "replayed", "by": "me", "job": "job", "target": stage.tier,
    }.items()  # fmt: skip
    assert len(stage.read(stage.dlq)) == 3


@pytest.mark.parametrize("to", ["retry", "source"])
def test_it_goes_back_to_its_partition_in_the_order_of_the_source(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """Over several transactions, and where one was redriven before and given up again, too."""
    monkeypatch.setattr("ackfloor.dead_letters.kafka.redrive_job.BATCH", 2)
    producer = Producer({"bootstrap.servers": stage.servers})
    for offset in (4, 6, 7, 9, 2, 5, 8):
        died = stage.died._replace(origin_partition=1, origin_offset=offset)
        key, headers = b"k%d" % (offset % 3), write_headers(died, [])
        # In a partition of its own: the dead-letter topic may have been given others since.
        producer.produce(stage.dlq, b"%d" % offset, key, partition=0, headers=headers)
    assert producer.flush(60) == 0
    assert stage.job(to).run(select([(0, n) for n in range(7)])).sent == 7
    sent = stage.read(stage.tier if to == "retry" else stage.source)
    ordered = [(1, b"%d" % offset) for offset in (2, 4, 5, 6, 7, 8, 9)]
    assert [(message.partition(), message.value()) for message in sent] == ordered


def test_asked_twice_it_is_sent_once(stage: Stage) -> None:
    """The second job finds the dispositions, and sends only what is new."""
    stage.bury([(b"k", b"%d" % n, []) for n in range(20)])
    first = stage.job(limit=7).run(stage.everything())
    assert first == Tally(sent=7)
    second = stage.job().run(stage.everything())
    assert (second.sent, second.left) == (13, {Left.DISPOSED: 7})
    assert second.complete
    assert stage.sent_once() == 20


def test_a_dry_run_writes_nothing(stage: Stage) -> None:
    """It counts what would be sent, by cause, and shows a few; no topic is made."""
    stage.bury([(b"k", b"v", [])] * 9)
    preview = stage.job().preview(stage.everything())
    assert preview.tally == Tally(sent=9)
    assert preview.causes == {("bill", "exhausted", "shop.Boom"): 9}
    assert [(s.partition, s.offset) for s in preview.samples] == [(0, n) for n in range(5)]
    assert stage.read(stage.tier) == []
    assert stage.dispositions not in stage.admin.list_topics(timeout=60).topics


def test_whatever_is_asked_for_is_accounted_for(stage: Stage) -> None:
    """Gone, at the cap, without our headers: each counted under its reason, the rest is sent."""
    stage.bury([(None, b"v", [])] * 4)
    stage.bury([(None, b"v", [])], replays=5)
    stage.bury([(None, b"foreign", [("h", b"1")])], foreign=True)
    wanted = select([*stage.places, (0, 1_000), (7, 3)])
    tally = stage.job().run(wanted)
    assert tally.sent == 4
    assert tally.left == {Left.GONE: 2, Left.CAPPED: 1, Left.FOREIGN: 1}
    assert not tally.complete
    named = stage.job(to=stage.source).run(wanted)
    assert named.sent == 1
    [message] = stage.read(stage.source)
    assert message.headers() == [("h", b"1"), ("ackfloor.replays", b"1")]


def test_far_offsets_are_sought_and_holes_are_gone(stage: Stage) -> None:
    """Seeking over what nobody asked for misses nothing; a transaction's marker is no record."""
    stage.bury([(b"k", b"v", [])] * 6_000, partition=0)
    stage.bury_in_transaction(3)
    wanted = {0: array("q", [0, 1, 5_900, 5_999]), 1: array("q", [0, 1, 2, 3])}
    tally = stage.job().run(wanted)
    assert (tally.sent, tally.left) == (7, {Left.GONE: 1})


def test_a_record_that_is_too_large_holds_up_no_other(stage: Stage) -> None:
    """A topic with a small limit takes what fits; the broker's refusal of a batch is not theirs."""
    small = stage.topic("small", **{"max.message.bytes": "2000"})
    large = random.Random(1).randbytes(3_000)
    stage.bury([(b"k", large if n == 4 else b"v", []) for n in range(9)])
    tally = stage.job(to=small).run(stage.everything())
    assert (tally.sent, tally.left) == (8, {Left.TOO_LARGE: 1})
    assert len(stage.read(small)) == len(stage.notes()) == 8


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each transaction was to have."""
    seen: list[int] = []
    write = RedriveWriter.write

    def counted_write(self: RedriveWriter, records: Sequence[NewRecord]) -> None:
        seen.append(len(records))
        write(self, records)

    monkeypatch.setattr(RedriveWriter, "write", counted_write)
    return seen


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time that a job takes its id, after which it reads all dispositions on."""
    seen: list[str] = []
    take = RedriveWriter.take

    def counted_take(self: RedriveWriter) -> None:
        seen.append(self._id)
        take(self)

    monkeypatch.setattr(RedriveWriter, "take", counted_take)
    return seen


def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker does not say what a topic allows."""
    monkeypatch.setattr(redrive_topics, "size_limits", lambda *_: SizeLimits())


@pytest.mark.parametrize("known", [True, False])
def test_what_fits_is_not_sent_one_by_one(
    stage: Stage,
    writes: list[int],
    takes: list[str],
    monkeypatch: pytest.MonkeyPatch,
    known: bool,
) -> None:
    """What may be too large goes alone; where the limit is not known, its batch is halved."""
    if not known:
        unknown(monkeypatch)
    small = stage.topic("small", **{"max.message.bytes": "2000"})
    large = random.Random(1).randbytes(3_000)
    stage.bury([(b"k", large if n in {10, 77, 78} else b"v", []) for n in range(100)], partition=0)
    tally = stage.job(to=small).run(stage.everything())
    assert (tally.sent, tally.left) == (97, {Left.TOO_LARGE: 3})
    assert len(stage.read(small)) == len(stage.notes()) == 97
    if known:
        # Three batches, the large ones, and the note of the end.
        assert (len(writes), len(takes)) == (7, 4)
    else:
        assert len(writes) < 40


def test_letters_too_large_are_found_first_and_do_not_slow_the_others(
    stage: Stage, writes: list[int], takes: list[str]
) -> None:
    """Of 2 MB: what compression makes fit is sent; the rest is counted, and costs a try each."""
    stage.allow(stage.dlq, 4_000_000)
    large = random.Random(1).randbytes(2_000_000)
    values = {7: large, 8: bytes(2_000_000), 30: large, 49: large}
    stage.bury([(b"k", values.get(n, b"v"), []) for n in range(60)], partition=0)
    preview = stage.job().preview(stage.everything())
    assert (preview.tally.sent, preview.perhaps) == (60, 4)
    limit = preview.target.limits.topic
    assert f"larger than the {limit:,} bytes that {stage.tier} allows" in preview.perhaps_text
    tally = stage.job().run(stage.everything())
    assert (tally.sent, tally.left) == (57, {Left.TOO_LARGE: 3})
    assert stage.sent_once() == 57
    # Four batches of small ones, four large ones, and the note of the end.
    assert (len(writes), len(takes)) == (9, 4)


@pytest.mark.parametrize(
    "properties", [{"compression.type": "none"}, {"message.max.bytes": 1_500_000}]
)
def test_letters_that_never_fit_are_not_tried(
    stage: Stage, writes: list[int], properties: dict[str, object]
) -> None:
    """Without compression, or over what the client itself takes: a dry run leaves them out too."""
    stage.allow(stage.dlq, 4_000_000)
    values = {7: bytes(2_000_000), 30: bytes(2_000_000)}
    stage.bury([(b"k", values.get(n, b"v"), []) for n in range(60)], partition=0)
    made = options(stage.servers)
    made = replace(made, producer={**made.producer, **properties})
    preview = RedriveJob(made, stage.order(limit=59)).preview(stage.everything())
    assert (preview.tally.sent, preview.perhaps) == (58, 0)
    assert preview.tally.left == {Left.TOO_LARGE: 2}
    tally = RedriveJob(made, stage.order()).run(stage.everything())
    assert (tally.sent, tally.left) == (58, {Left.TOO_LARGE: 2})
    assert len(writes) == 2


def test_what_is_left_out_untried_is_what_the_broker_refuses(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte by byte around the limit: as many are sent as where each is tried."""
    small = stage.topic("small", **{"max.message.bytes": "2000"})
    stage.bury([(b"k", bytes(n), [("own", b"v")]) for n in range(1_600, 1_800, 3)], partition=0)
    made = options(stage.servers)
    made = replace(made, producer={**made.producer, "compression.type": "none"})
    foretold = RedriveJob(made, stage.order(small)).preview(stage.everything())
    tally = RedriveJob(made, stage.order(small)).run(stage.everything())
    monkeypatch.setattr(redrive_job, "redriven_fit", lambda *_: Fit.PERHAPS)
    other = stage.topic("other", **{"max.message.bytes": "2000"})
    order = replace(stage.order(other), dlq=stage.copy_of_dlq())
    tried = RedriveJob(made, order).run(stage.everything())
    assert (tally.sent, tally.left) == (tried.sent, tried.left)
    assert 0 < tally.sent < len(stage.places)
    assert (foretold.tally, foretold.perhaps) == (Tally(tally.sent, tally.left), 0)


def test_what_another_job_sent_after_a_refusal_is_not_sent_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is refused, and the note with it, so another job sees none and begins."""
    unknown(monkeypatch)
    small = stage.topic("small", **{"max.message.bytes": "2000"})
    large = random.Random(1).randbytes(3_000)
    stage.bury([(b"k", large if n == 4 else b"v", []) for n in range(9)], partition=0)
    order = replace(stage.order(small), job="other", by="ann")
    others = [RedriveJob(options(stage.servers), order)]
    write = RedriveWriter.write

    def interrupted(self: RedriveWriter, records: Sequence[NewRecord]) -> None:
        try:
            write(self, records)
        except TooLarge:
            while others:
                assert others.pop().run(select([(0, 0), (0, 7)])).sent == 2
            raise

    monkeypatch.setattr(RedriveWriter, "write", interrupted)
    ended = stage.job(to=small).run(stage.everything())
    assert ended.left == {Left.TOO_LARGE: 1}
    assert len(stage.read(small)) == len(stage.notes()) == 8


def test_the_younger_job_ends_the_older_one(stage: Stage) -> None:
    """Two jobs at once: the older one says who ended it, and nothing goes twice."""
    stage.bury([(b"k", b"v", [])] * 40)
    begun, go_on = threading.Event(), threading.Event()
    results: list[Tally] = []

    def slow(_tally: Tally) -> None:
        begun.set()
        assert go_on.wait(60)

    older = stage.job(rate_per_s=20.0)
    thread = threading.Thread(
        target=lambda: results.append(older.run(stage.everything(), progress=slow))
    )
    thread.start()
    assert begun.wait(60)
    order = replace(stage.order(), job="younger", by="ann")
    younger = RedriveJob(options(stage.servers), order).run(stage.everything())
    go_on.set()
    thread.join(60)
    assert results[0].stopped == "job younger of ann has begun on the same dead letters"
    assert results[0].sent + younger.sent == 40
    assert results[0].remaining == younger.sent
    assert stage.sent_once() == 40


def test_a_job_that_is_resumed_twice_keeps_to_its_maximum(stage: Stage) -> None:
    """Both runs read the same note before they began; the second one sends what is left."""
    stage.bury([(b"k", b"v", [])] * 9)
    assert stage.job(limit=2).run(stage.everything()) == Tally(sent=2, remaining=0)
    left = {"before": 2, "limit": 3}
    first, second, third = (stage.job(**left) for _ in range(3))
    assert first.run(select(stage.places[:3])).sent == 1
    assert second.run(stage.everything()).sent == 2
    assert "has done its 5" in third.run(stage.everything()).stopped
    assert stage.sent_once() == 5
    [note] = third.jobs()
    assert (note.state, note.done, note.wanted) == (JobState.DONE, 5, 5)


def test_a_cancelled_job_says_who_cancelled_it(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own words, and none of the client's about fences."""
    stage.bury([(b"k", b"v", [])] * 40)
    cancels: list[JobNote] = []

    def cancel(_tally: Tally) -> None:
        if not cancels:
            cancels.append(cancelled(options(stage.servers), stage.dlq, "job", "ann@desk"))

    tally = stage.job(rate_per_s=20.0).run(stage.everything(), progress=cancel)
    assert (tally.stopped, tally.sent, tally.remaining) == ("cancelled by ann@desk", 10, 30)
    assert (cancels[0].state, cancels[0].done, cancels[0].wanted) == (JobState.STOPPED, 10, 40)
    assert stage.sent_once() == 10
    gc.collect()
    assert "FENCED" not in caplog.text


def test_a_job_that_was_cancelled_while_it_began_anew_stays_so(stage: Stage) -> None:
    """Who takes the id back after an error finds what was said of the job meanwhile."""
    stage.bury([(b"k", b"v", [])] * 40)
    job = stage.job(rate_per_s=20.0)

    def cancel(_tally: Tally) -> None:
        cancelled(options(stage.servers), stage.dlq, "job", "ann@desk")
        job._begin()

    tally = job.run(stage.everything(), progress=cancel)
    assert (tally.stopped, tally.sent) == ("cancelled by ann@desk", 10)


def test_it_stops_when_told_and_keeps_to_its_rate(stage: Stage) -> None:
    """Between transactions; what was sent is sent. A rate is an upper bound."""
    stage.bury([(b"k", b"v", [])] * 30)
    seen: list[int] = []
    tally = stage.job(rate_per_s=10.0).run(
        stage.everything(),
        progress=lambda tally: seen.append(tally.sent),
        stopping=lambda: bool(seen) and seen[-1] >= 10,
    )
    assert (tally.sent, tally.stopped, tally.remaining) == (10, "it was told to stop", 20)
    assert seen == [5, 10]


def test_what_is_missing_or_recreated_is_refused(stage: Stage, bootstrap_servers: str) -> None:
    """No target, no dead-letter topic: a sentence, before anything is written."""
    stage.bury([(b"k", b"v", [])])
    with pytest.raises(RedriveRefused, match="does not exist"):
        stage.job(to=fresh("nowhere"))
    with pytest.raises(RedriveRefused, match=r"dead-letter topic .* does not exist"):
        RedriveJob(options(bootstrap_servers), replace(stage.order(), dlq=fresh("no") + "--g--dlq"))
    assert stage.job().run(stage.everything()).sent == 1
    recreate(bootstrap_servers, stage.dlq)
    stage.places.clear()
    stage.bury([(b"k", b"new", [])], partition=0)
    assert stage.job().run(stage.everything()).sent == 1


def test_a_topic_that_is_created_anew_before_the_job_begins_is_left_alone(stage: Stage) -> None:
    """While somebody reads what would be done: other dead letters are at these places by now."""
    stage.bury([(b"k", b"v", [])] * 2, partition=0)
    job = stage.job()
    assert job.preview(stage.everything()).tally.sent == 2
    recreate(stage.servers, stage.dlq)
    stage.bury([(b"k", b"new", [])] * 2, partition=0)
    tally = job.run(stage.everything())
    assert (tally.sent, "was deleted and created anew" in tally.stopped) == (0, True), tally
    assert (stage.read(stage.tier), stage.notes()) == ([], {})


def test_without_a_broker_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens: an error that names the address."""
    monkeypatch.setattr("ackfloor.kafka.client.admin_client.PATIENCE_S", 0.5)
    nobody = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(KafkaUnreachable, match=r"127\.0\.0\.1:1"):
        RedriveJob(
            KafkaOptions(consumer=nobody, producer=nobody, admin=nobody),
            Order("t--g--dlq", "retry", "j", "me"),
        )
