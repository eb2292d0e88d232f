"""The causes that an index keeps: bounded, and none that nothing has any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor_monitoring.console.index import known_causes
from ackfloor_monitoring.console.index.index_file import IndexFile
from ackfloor_monitoring.console.index.index_rows import index_row
from ackfloor_monitoring.console.index.index_search import Conditions
from ackfloor_monitoring.console.index.index_writer import IndexWriter
from ackfloor_monitoring.console.index.known_causes import OTHER
from tests.monitoring.console.dead_letter_source import DLQ, DeadLetterSource
from tests.monitoring.console.test_index import Index, indexes


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> DeadLetterSource:
    """An empty topic, of which three causes are kept."""
    monkeypatch.setattr(known_causes, "MOST_CAUSES", 3)
    return DeadLetterSource()


@pytest.fixture
def index(source: DeadLetterSource, tmp_path: Path) -> Iterator[Index]:
    """Of that topic."""
    with indexes(tmp_path, source) as made:
        yield made()


def bury(source: DeadLetterSource, *causes: int) -> None:
    """Write a dead letter of each cause."""
    for n in causes:
        source.bury(error_type=f"shop.E{n}", error_fingerprint=f"f{n}", release=f"r{n}")


def kept(index: Index) -> list[str]:
    """The causes in the file, in order."""
    return sorted(cause for (cause,) in index.search().ask("select cause from cause"))


def test_causes_are_bounded(source: DeadLetterSource, index: Index) -> None:
    """Headers may name any: the first ones are kept, and no record is missing."""
    bury(source, *range(10))
    source.park(error_fingerprint="f10")
    for _ in range(2):
        index.read_on()
        assert kept(index) == ["f0", "f1", "f2", OTHER.cause, OTHER.cause]
        assert len(index.places()) == index.search().progress().open == 10
        assert index.search().progress().uncaused == 7
        assert index.places(Conditions(error="f2")) == index.places(Conditions(release="r2"))
        assert index.places(Conditions(error="f2")) == [(0, 2)]
        assert index.places(Conditions(error="f3")) == []
        assert len(index.places(Conditions(error=OTHER.cause))) == 7


def test_causes_that_nothing_has_any_more_make_room(source: DeadLetterSource, index: Index) -> None:
    """Retention has removed their dead letters; that of a record which waits is still there."""
    source.park(error_fingerprint="f0")
    bury(source, 1, 2)
    index.read_on()
    source.starts[0] = 2
    bury(source, 3, 4, 5)
    index.read_on()
    assert kept(index) == ["f0", "f3", "f4", OTHER.cause]
    for cause, place in (("f3", (0, 2)), ("f4", (0, 3)), (OTHER.cause, (0, 4))):
        assert index.places(Conditions(error=cause)) == [place]
    assert index.search().progress().uncaused == 1


def test_room_is_made_while_the_console_runs(source: DeadLetterSource, index: Index) -> None:
    """As soon as a part of all rows is gone; not again before that, since all are looked at."""
    bury(source, *range(12))
    rows = [index_row(each, Redaction()) for each in source.logs[0] if each is not None]
    file = IndexFile(index.path, index.rules)
    with closing(file.to_write(source.cluster_id)) as connection:
        writer = IndexWriter(connection, 200)
        number = writer.add_topic(DLQ, "id-1", "billing", "dlq")
        for start, part, causes in (
            (0, rows[:3], ["f0", "f1", "f2"]),
            (0, rows[3:4], ["f0", "f1", "f2", OTHER.cause]),
            (1, rows[4:5], ["f0", "f1", "f2", OTHER.cause]),
            (2, rows[5:6], ["f2", OTHER.cause, "f5"]),
        ):
            writer.keep(number, {0: (start, 12)})
            writer.add(number, part, {0: part[-1].offset + 1}, Disposed("id-1"))
            assert kept(index) == sorted(causes)
