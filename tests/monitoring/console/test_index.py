"""The index of dead letters: it has each once, keeps its bounds, and nothing that is hidden."""

from __future__ import annotations

import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor import ConfigError
from ackfloor.core.records.envelope import write_headers
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor_monitoring.console.index import follower as following
from ackfloor_monitoring.console.index.follower import Follower
from ackfloor_monitoring.console.index.index_file import IndexFile
from ackfloor_monitoring.console.index.index_place import index_place
from ackfloor_monitoring.console.index.index_rows import (
    header_bits,
    index_row,
    named_header,
    stored_header,
)
from ackfloor_monitoring.console.index.index_search import (
    LONGEST_S,
    Conditions,
    FoundDeadLetter,
    IndexSearch,
    TooSlow,
)
from tests.monitoring.console.dead_letter_source import (
    DIED,
    DLQ,
    FIRST_MS,
    DeadLetterSource,
    StoppedReading,
)

ANY = Conditions()


class Index:
    """An index of a source, read on by hand."""

    def __init__(self, path: Path, source: DeadLetterSource, rules: Redaction, most: int) -> None:
        self.path = path
        self.source = source
        self.rules = rules
        self.most = most
        self.opened: list[sqlite3.Connection] = []

    def read_on(self) -> str:
        """Look once, as a console that has just started does; returns what it could not do."""
        self.source.noted = 0
        file = IndexFile(self.path, self.rules)
        once = Follower(lambda: self.source, file, self.rules, self.most, wait=lambda _s: True)
        once.follow(self.source)
        return once.error

    def search(self, longest_s: float = LONGEST_S) -> IndexSearch:
        """A new one."""
        return IndexSearch(self.connect(), longest_s)

    def connect(self) -> sqlite3.Connection:
        """A connection that reads, until this is closed."""
        self.opened.append(IndexFile(self.path, self.rules).to_read())
        return self.opened[-1]

    def close(self) -> None:
        """Nothing more is searched in it."""
        for connection in self.opened:
            connection.close()

    def places(self, wanted: Conditions = ANY) -> list[tuple[int, int]]:
        """Partition and offset of all that match, the newest first."""
        found = self.search().newest(wanted, 10_000)
        assert len(found) == self.search().count(wanted)
        # Who knows how many there are may find them in another way, and finds the same.
        assert self.search().page(wanted, 10_000) == (len(found), found)
        return [(each.place.partition, each.place.offset) for each in found]

    def bytes(self) -> bytes:
        """All that is stored on the disk."""
        return b"".join(each.read_bytes() for each in self.path.parent.iterdir())


@pytest.fixture
def source() -> DeadLetterSource:
    """An empty topic."""
    return DeadLetterSource()


@contextmanager
def indexes(folder: Path, source: DeadLetterSource) -> Iterator[Callable[..., Index]]:
    """Makes the index of a topic, as often as it is asked; closes what was opened in it."""
    with ExitStack() as stack:

        def made(rules: Redaction | None = None, most: int = 1_000_000) -> Index:
            index = Index(folder / "kafka.sqlite", source, rules or Redaction(), most)
            stack.callback(index.close)
            return index

        yield made


@pytest.fixture
def make(tmp_path: Path, source: DeadLetterSource) -> Iterator[Callable[..., Index]]:
    """Makes the index of that topic."""
    with indexes(tmp_path, source) as made:
        yield made


def sums(index: Index) -> int:
    """The sum of the sums per hour."""
    return index.search().progress().open


def test_each_dead_letter_is_found_with_its_cause(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """By topic, handler, error, reason, key, text and time; the newest first."""
    source.bury(3)
    source.bury(2, partition=1, handler="ship", error_type="shop.Late", error_fingerprint="f2",
                error_message="Too LATE 100%", key=b"order-9", release="r2")  # fmt: skip
    index = make()
    index.read_on()
    both, ships = [(1, 1), (1, 0), (0, 2), (0, 1), (0, 0)], [(1, 1), (1, 0)]
    assert index.places() == both
    for wanted in (
        Conditions(handler="ship"), Conditions(error="shop.Late"), Conditions(error="Late"),
        Conditions(error="f2"), Conditions(key=b"order-9"), Conditions(text="late 100%"),
        Conditions(since_ms=FIRST_MS + 3000), Conditions(release="r2"),
        Conditions(topic=DLQ, group="billing", reason="exhausted", handler="ship", text="too"),
    ):  # fmt: skip
        assert index.places(wanted) == ships, wanted
    assert index.places(Conditions(until_ms=FIRST_MS + 1000)) == [(0, 0)]
    for wanted in (
        Conditions(handler="shi"), Conditions(error="ate"), Conditions(text="late_100"),
        Conditions(topic="other"), Conditions(key=b"order"), Conditions(error="%"),
    ):  # fmt: skip
        assert index.places(wanted) == [], wanted
    causes, count = index.search().causes(ANY, 10, FIRST_MS + 4000)
    assert [(each.handler, each.cause, each.count) for each in causes] == [
        ("bill", "f1", 3), ("ship", "f2", 2),
    ]  # fmt: skip
    assert count == 2
    assert causes[0].trend[-1] == 3
    assert causes[0].first_ms == FIRST_MS - 30_000
    assert causes[0].last_ms == FIRST_MS + 2000
    assert causes[1].latest is not None
    assert causes[1].latest.place[2:] == (1, 1)


def test_headers_are_found_by_name_and_value(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """By the whole of either; none looks like another; those that are left out are counted."""
    source.bury(own=[("tenant", b"acme"), ("region", b"eu")])
    source.bury(own=[("tenant", b"acme2"), ("none", None)])
    source.bury(own=[("x", b"1\x1e\x1etenant\x1facme\x1e"), ("odd", b"\xff")])
    source.bury(own=[("first", b"1"), ("large", b"x" * 5000), ("tenant", b"acme")])
    index = make()
    index.read_on()
    for header, places in (
        (stored_header("tenant", b"acme"), [(0, 0)]), (stored_header("none", None), [(0, 1)]),
        (named_header("tenant"), [(0, 1), (0, 0)]), (named_header("ten"), []),
        (stored_header("tenant", b"acm"), []), (stored_header("first", b"1"), [(0, 3)]),
        (named_header("odd"), [(0, 2)]), (named_header("ackfloor.handler"), []),
    ):  # fmt: skip
        assert index.places(Conditions(header=header)) == places, header
    assert index.search().with_more_headers() == 1


def test_pages_of_a_list_have_each_once(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """Also where many failed in the same millisecond, and of one cause as of all."""
    source.bury(25, failed_at_ms=FIRST_MS)
    source.bury(25, partition=1, failed_at_ms=FIRST_MS, release="r2")
    index = make()
    index.read_on()
    for wanted in (ANY, Conditions(handler="bill"), Conditions(key=b"k"), Conditions(text="o")):
        seen, behind = [], None
        while found := index.search().page(wanted, 7, behind)[1]:
            seen += [each.place for each in found]
            behind = found[-1].place
        assert len(seen) == len(set(seen)) == 50
        assert seen == sorted(seen, reverse=True)


def test_what_is_stopped_in_the_middle_loses_and_doubles_nothing(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """At each batch; what was written before is not read again."""
    source.bury(160)
    source.bury(120, partition=1)
    source.batch = 20
    index = make()
    for stop in range(0, 280, 20):
        source.stop_after = stop
        with pytest.raises(StoppedReading):
            index.read_on()
        progress = index.search().progress()
        assert progress.read == progress.open == sums(index) == stop
        assert progress.total == 280
        assert progress.taken_ms is None
    source.stop_after = None
    index.read_on()
    assert len(source.reads) == len(set(source.reads)) == 280
    assert len(index.places()) == sums(index) == 280
    assert index.search().progress().taken_ms is not None


def test_a_batch_that_can_not_be_written_leaves_its_position(
    make: Callable[..., Index], source: DeadLetterSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and position are written together or not at all."""
    source.bury(30)
    index = make()
    writer = following.IndexWriter
    monkeypatch.setattr(writer, "_keep_bound", lambda _self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        index.read_on()
    monkeypatch.undo()
    assert index.places() == []
    assert index.search().progress().read == 0
    index.read_on()
    assert len(index.places()) == sums(index) == 30


def test_markers_of_transactions_do_not_hold_it_up(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """They take offsets at the end of a log; all is read all the same."""
    source.bury(2)
    source.mark()
    index = make()
    index.read_on()
    progress = index.search().progress()
    assert (progress.read, progress.total, progress.open) == (3, 3, 2)


def test_what_retention_removes_goes(make: Callable[..., Index], source: DeadLetterSource) -> None:
    """Below a log's start nothing is left, also of what was not read yet."""
    source.bury(10)
    source.bury(5, partition=1)
    index = make()
    index.read_on()
    source.starts[0] = 8
    index.read_on()
    assert len(index.places()) == sums(index) == 7
    source.bury(10)
    source.starts[0] = 15
    index.read_on()
    newest = [(0, n) for n in range(19, 14, -1)]
    assert index.places(Conditions(since_ms=FIRST_MS + 10_000))[:5] == newest
    progress = index.search().progress()
    assert progress.read == progress.total == 10
    assert progress.left_out == 0


def test_it_is_bounded_and_the_oldest_go_first(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """It says how many are left out; what is disposed of goes before what is open."""
    source.bury(300)
    source.dispose(0, 299)
    index = make(most=200)
    index.read_on()
    found = index.places()
    assert 190 <= len(found) == sums(index) <= 200
    assert found == [(0, n) for n in range(298, 298 - len(found), -1)]
    assert index.search().progress().left_out == 299 - len(found)
    # Retention reaches them: nothing that is there is left out.
    source.starts[0] = 298 - len(found)
    index.read_on()
    assert index.search().progress().left_out == 299 - len(found)
    source.starts[0] = 299 - len(found)
    index.read_on()
    assert index.search().progress().left_out == 0
    assert index.places() == found


def test_what_is_disposed_of_is_not_open(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """Said before or after it was read, and taken back, while it looked and while it did not."""
    source.bury(5)
    source.dispose(0, 1)
    index = make()
    index.read_on()
    assert index.places() == [(0, 4), (0, 3), (0, 2), (0, 0)]
    source.dispose(0, 4)
    index.read_on()
    assert index.places() == [(0, 3), (0, 2), (0, 0)]
    assert sums(index) == 3
    assert index.search().is_disposed(DLQ, 0, 4) is True
    assert index.search().is_disposed(DLQ, 0, 3) is False
    assert index.search().is_disposed(DLQ, 0, 9) is None
    source.take_back(0, 4)
    index.read_on()
    assert (0, 4) in index.places()
    # Compaction leaves no trace of a disposition that was taken back.
    source.notes.clear()
    index.read_on()
    assert len(index.places()) == sums(index) == 5


def test_a_topic_that_may_not_be_read_keeps_no_other_from_it(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """It is named."""
    source.bury(3)
    source.denied = "a--billing--dlq"
    index = make()
    assert index.read_on() == "no permission to read a--billing--dlq: grant READ"
    assert len(index.places()) == 3
    source.denied = ""
    assert index.read_on() == ""


@pytest.mark.parametrize("change", ["topic", "cluster", "rules", "version"])
def test_what_is_another_is_thrown_away(
    make: Callable[..., Index],
    source: DeadLetterSource,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic created anew, another cluster, other rules, another version: read from its start."""
    source.bury(9)
    index = make()
    index.read_on()
    source.reads.clear()
    source.logs[0] = source.logs[0][:4]
    if change == "topic":
        source.topic_id = "id-2"
    elif change == "cluster":
        source.cluster_id = "cluster-2"
    elif change == "rules":
        index.rules = Redaction(key="drop")
    else:
        monkeypatch.setattr("ackfloor_monitoring.console.index.index_file.VERSION", 999)
    index.read_on()
    assert len(source.reads) == len(index.places()) == sums(index) == 4


def test_a_topic_that_is_gone_goes(make: Callable[..., Index], source: DeadLetterSource) -> None:
    """With its sums and causes."""
    source.bury(3)
    index = make()
    index.read_on()
    source.name, source.topic_id = "other--billing--dlq", "id-2"
    source.logs[0].clear()
    index.read_on()
    assert index.places() == []
    progress = index.search().progress()
    assert (progress.total, progress.topics) == (0, ["other--billing--dlq"])
    assert index.search().causes(ANY, 10, FIRST_MS) == ([], 0)


@pytest.mark.parametrize("damage", [b"", b"not a database" * 100])
def test_a_damaged_file_is_made_anew(
    make: Callable[..., Index], source: DeadLetterSource, damage: bytes
) -> None:
    """Nobody has to mend it."""
    source.bury(3)
    index = make()
    index.read_on()
    index.path.write_bytes(damage)
    index.read_on()
    assert len(index.places()) == 3


def test_one_that_is_damaged_while_it_is_used_is_made_anew(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """The thread goes on with a new file, and says what happened until then."""
    source.bury(3)
    index = make()
    index.read_on()
    with sqlite3.connect(index.path) as connection:
        connection.execute("drop table hourly")
    connection.close()
    file = IndexFile(index.path, index.rules)
    said: list[str] = []

    def made() -> DeadLetterSource:
        said.append(follower.error)
        source.noted = 0
        return source

    follower = Follower(made, file, index.rules, 100, wait=lambda _s: len(said) > 1)
    source.dispose(0, 0)
    follower.run()
    assert "is made anew" in said[1]
    assert follower.error == ""
    assert index.places() == [(0, 2), (0, 1)]


def test_what_redaction_hides_is_not_in_the_file(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """Nor is a payload or a stack, whatever the rules."""
    source.bury(
        50, key=b"card 4111111111111111", value=b"the payload",
        own=[("auth", b"a secret"), ("x", b"for 4111111111111111")],
        error_message="card 4111111111111111 refused", error_stack="the stack",
    )  # fmt: skip
    index = make(Redaction(headers=("auth",), patterns=(r"\d{16}",)))
    index.read_on()
    stored = index.bytes()
    assert b"for ***" in stored
    assert b"card *** refused" in stored
    assert index.places(Conditions(key=b"card ***"))
    for hidden in (b"4111", b"the payload", b"a secret", b"the stack"):
        assert hidden not in stored
    index = make(Redaction(key="hash"))
    index.read_on()
    assert b"card 4111111111111111 refused" in index.bytes()
    [found, *_] = index.search().newest(ANY, 50)
    assert found.key is not None
    assert len(found.key) == 16
    assert found.key != b"card 4111111111111111"


def test_a_row_is_bounded(make: Callable[..., Index], source: DeadLetterSource) -> None:
    """A long key is found all the same; a time that no calendar has is that of the record."""
    source.bury(key=b"\xc3\xa4" * 300_000, error_message="m" * 2000, failed_at_ms=10**17)
    source.bury(key=b"\xc3\xa4" * 300_001)
    index = make()
    index.read_on()
    [_, found] = index.search().newest(ANY, 10)
    assert found.key is not None
    assert len(found.key) < 300
    found.key.decode()
    assert index.places(Conditions(key=found.key)) == [(0, 0)]
    assert len(found.message) == 200
    assert found.place.at_ms == FIRST_MS


def test_a_key_is_looked_up(make: Callable[..., Index], source: DeadLetterSource) -> None:
    """Counted and listed, without going through all dead letters."""
    source.bury(10)
    index = make()
    index.read_on()
    connection, asked = index.connect(), list[str]()
    search = IndexSearch(connection)
    connection.set_trace_callback(asked.append)
    search.count(Conditions(key=b"k"))
    search.newest(Conditions(key=b"k", handler="bill"), 5)
    of_keys = [each for each in asked if "d.key =" in each]
    assert len(of_keys) == 2
    for each in of_keys:
        plan = connection.execute(f"explain query plan {each}").fetchall()
        assert "USING INDEX by_key" in str(plan)


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "1", "2"])))),
    st.tuples(st.sampled_from("abc"), st.sampled_from(["", "1", "2", None])),
)
def test_the_bits_of_headers_hide_none(rows: list[list[tuple[str, str]]], asked: Any) -> None:
    """Whoever has the header has its bits; those of a whole header also stand for its name."""
    name, value = asked
    wanted = named_header(name) if value is None else stored_header(name, value.encode())
    bits = header_bits(wanted)
    assert 0 < bits < 2**63
    for row in rows:
        headers = write_headers(DIED, [(name, value.encode()) for name, value in row])
        kept = index_row(DeadLetter(DLQ, 0, 0, b"k", b"v", headers, FIRST_MS), Redaction())
        if wanted in kept.headers:
            assert kept.header_bits & bits == bits


def test_what_matches_goes_on_behind_each_page(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """Whatever way it is found in: the same count, and each dead letter once."""
    for n in range(30):
        source.bury(error_message="no stock", failed_at_ms=FIRST_MS + n // 4, partition=n % 2)
    index = make()
    index.read_on()
    wanted, behind, found = Conditions(text="STOCK"), None, list[FoundDeadLetter]()
    for _ in range(5):
        count, page = index.search().page(wanted, 7, behind)
        assert count == 30
        found += page
        behind = page[-1].place
    assert index.search().page(wanted, 7, behind) == (30, [])
    assert found == index.search().newest(ANY, 100)


def test_a_search_that_takes_too_long_is_ended(
    make: Callable[..., Index], source: DeadLetterSource
) -> None:
    """And says so, instead of keeping others waiting."""
    source.bury(20_000, failed_at_ms=FIRST_MS)
    source.batch = 5000
    index = make()
    index.read_on()
    slow = index.search(longest_s=-1.0)
    with pytest.raises(TooSlow):
        slow.count(Conditions(text="nowhere"))


def test_a_partition_that_nobody_answers_for_holds_back_the_time(
    make: Callable[..., Index], source: DeadLetterSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is new there may be missing; it is named, and the others are read."""
    source.bury()
    source.bury(partition=1)
    index = make()
    index.read_on()
    taken_ms = index.search().progress().taken_ms
    assert taken_ms is not None
    monkeypatch.setattr(time, "time_ns", lambda: (taken_ms + 5_000) * 1_000_000)
    source.bury(2, partition=0)
    source.late = {1}
    why = index.read_on()
    assert why == f"no broker has answered for {DLQ}/1: what is new there is missing"
    assert index.search().progress().taken_ms == taken_ms
    assert index.search().count(ANY) == 4
    source.late = set()
    assert index.read_on() == ""
    assert index.search().progress().taken_ms == taken_ms + 5_000


def test_the_file_is_its_owners(
    make: Callable[..., Index], source: DeadLetterSource, tmp_path: Path
) -> None:
    """So are those that SQLite keeps beside it, while it is written."""
    source.bury(3)
    modes = set()

    def seen() -> None:
        modes.update(stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir())

    source.note_disposed = lambda *_: seen()  # type: ignore[method-assign]
    make().read_on()
    assert modes == {0o600}


def test_two_consoles_have_two_files(tmp_path: Path) -> None:
    """The second one's ends with it."""
    with index_place(tmp_path / "new", "kafka") as first:
        with index_place(tmp_path / "new", "kafka") as second:
            assert first.parent == tmp_path / "new"
            assert second.parent != first.parent
            second.write_text("x")
        assert not second.parent.exists()
        assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    with index_place(tmp_path / "new", "kafka") as again:
        assert again == first


def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    """Whoever can write there decides what the console shows."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").write_text("")
    for folder, why in (("open", "others can write there"), ("file", "File exists")):
        with (
            pytest.raises(ConfigError, match=f"--index-folder=.*{why}"),
            index_place(tmp_path / folder, "kafka"),
        ):
            pass


def test_no_placeholder_has_a_number() -> None:
    """With values in an order Python takes those no longer; from 3.14 it raises."""
    folder = Path(following.__file__).parent
    numbered = {
        file.name: line
        for file in folder.glob("*.py")
        for line in file.read_text().splitlines()
        if re.search(r"\?\d", line)
    }
    assert numbered == {}
