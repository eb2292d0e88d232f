"""IndexFile: the SQLite file of an index, made anew where it does not fit.

It is a copy of what Kafka has. So a file of another version, another cluster or other rules of
redaction is not converted, and one that is damaged not mended: it is thrown away.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from ackfloor.core.records.redaction import Redaction

#: Counts changes of the tables below, and of what is kept of a record.
VERSION: Final = 6
HOUR_MS: Final = 3_600_000
#: How long one who reads waits for one who writes, in seconds.
PATIENCE_S: Final = 5.0

#: A source topic that was deleted and created anew is there twice; the earlier one is gone.
#: What all rows are read for comes first in them: a column is found by going over those before it.
#: The sums per hour count open dead letters. Triggers keep them, whatever adds or removes rows.
_TABLES: Final = f"""
pragma journal_mode = wal;
create table meta(name text primary key, value text not null) without rowid;
create table topic(
    id integer primary key, name text not null unique, topic_id text not null,
    consumer_group text not null, kind text not null);
create table source(
    id integer primary key, name text not null, topic_id text not null,
    gone integer not null default 0, unique (name, topic_id));
create table progress(
    topic integer not null, partition integer not null, start integer not null,
    position integer not null, log_end integer not null,
    left_out integer not null default 0, left_out_below integer not null default 0,
    primary key (topic, partition)) without rowid;
create table cause(
    id integer primary key, topic integer not null, handler text not null, cause text not null,
    error_type text not null, reason text not null, release text not null,
    unique (topic, handler, cause, error_type, reason, release));
create table dead_letter(
    topic integer not null, partition integer not null, offset integer not null,
    disposed integer not null, header_bits integer not null,
    message text not null, headers text not null,
    cause integer not null, at_ms integer not null, first_ms integer not null,
    attempt integer not null, replays integer not null, key blob, headers_cut integer not null,
    source integer, source_partition integer, source_offset integer, source_ms integer,
    primary key (topic, partition, offset)) without rowid;
create index by_source on dead_letter(source, source_partition, source_offset)
    where source is not null;
create table retry_record(
    topic integer not null, partition integer not null, offset integer not null,
    cause integer not null, at_ms integer not null, due_ms integer,
    attempt integer not null, replays integer not null,
    source integer, source_partition integer, source_offset integer, source_ms integer,
    primary key (topic, partition, offset)) without rowid;
create index retry_by_source on retry_record(source, source_partition, source_offset)
    where source is not null;
create table act(
    id integer primary key, topic integer not null, disposition text not null,
    who text not null, job text not null, target text not null,
    unique (topic, disposition, who, job, target));
create table disposition(
    topic integer not null, partition integer not null, offset integer not null,
    act integer not null, at_ms integer not null,
    primary key (topic, partition, offset)) without rowid;
create trigger forgotten after delete on dead_letter when old.disposed = 1 begin
    delete from disposition
        where topic = old.topic and partition = old.partition and offset = old.offset;
end;
create index by_time on dead_letter(disposed, at_ms);
create index by_cause on dead_letter(cause, disposed, at_ms);
create index by_key on dead_letter(key) where key is not null;
create index with_more_headers on dead_letter(disposed) where headers_cut = 1;
create table hourly(
    cause integer not null, hour integer not null, count integer not null,
    first_ms integer not null, last_ms integer not null,
    primary key (cause, hour)) without rowid;
create trigger counted after insert on dead_letter when new.disposed = 0 begin
    insert into hourly values (new.cause, new.at_ms / {HOUR_MS}, 1, new.first_ms, new.at_ms)
    on conflict do update set count = count + 1,
        first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms);
end;
create trigger uncounted after delete on dead_letter when old.disposed = 0 begin
    update hourly set count = count - 1
        where cause = old.cause and hour = old.at_ms / {HOUR_MS};
    delete from hourly
        where cause = old.cause and hour = old.at_ms / {HOUR_MS} and count = 0;
end;
create trigger closed after update of disposed on dead_letter
        when old.disposed = 0 and new.disposed = 1 begin
    update hourly set count = count - 1
        where cause = old.cause and hour = old.at_ms / {HOUR_MS};
    delete from hourly
        where cause = old.cause and hour = old.at_ms / {HOUR_MS} and count = 0;
end;
create trigger reopened after update of disposed on dead_letter
        when old.disposed = 1 and new.disposed = 0 begin
    insert into hourly values (new.cause, new.at_ms / {HOUR_MS}, 1, new.first_ms, new.at_ms)
    on conflict do update set count = count + 1,
        first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms);
end;
"""  # noqa: S608 -- a number of ours


#: Of a file so many bytes are mapped into memory by who reads it: two million dead letters.
MAPPED_BYTES: Final = 1 << 30


class IndexFile:
    """One file.

    Args:
        path: where it is or will be; its folder exists.
        rules: what is taken away from what it keeps.
    """

    def __init__(self, path: Path, rules: Redaction) -> None:
        self.path = path
        self._rules = hashlib.sha256(repr(rules).encode()).hexdigest()

    def to_write(self, cluster_id: str) -> sqlite3.Connection:
        """A connection that writes, to a file of this cluster; made anew where it is another's.

        Raises:
            OSError, sqlite3.Error: it can't be written.
        """
        wanted = {"version": str(VERSION), "cluster": cluster_id, "rules": self._rules}
        if not wanted.items() <= self._said().items():
            self.throw_away()
            self._create(wanted)
        found = sqlite3.connect(self.path, timeout=PATIENCE_S, isolation_level=None)
        # What a crash of the machine loses is read again.
        return _prepared(found, "pragma synchronous = off", "pragma cache_size = -65536")

    def to_read(self) -> sqlite3.Connection:
        """A connection that only reads; raises sqlite3.Error where there is nothing to read yet."""
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        found = sqlite3.connect(uri, timeout=PATIENCE_S, isolation_level=None, uri=True)
        return _prepared(
            found,
            "pragma query_only = on",
            # Reading all takes half the time where pages are not copied first.
            f"pragma mmap_size = {MAPPED_BYTES}",
        )

    def throw_away(self) -> None:
        """Remove the file and those that SQLite keeps beside it."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _said(self) -> dict[str, str]:
        """What the file says that it is; nothing where it can't be read."""
        if not self.path.exists():
            return {}
        try:
            with closing(sqlite3.connect(self.path, timeout=PATIENCE_S)) as connection:
                return dict(connection.execute("select name, value from meta"))
        except sqlite3.DatabaseError:
            return {}

    def _create(self, said: dict[str, str]) -> None:
        # SQLite gives the files beside it the same permissions.
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(self.path, timeout=PATIENCE_S)) as connection:
            connection.executescript(_TABLES)
            with connection:
                connection.executemany("insert into meta values (?, ?)", said.items())


def _prepared(connection: sqlite3.Connection, *pragmas: str) -> sqlite3.Connection:
    """The same connection; closed where SQLite takes one of these not, as of a damaged file."""
    try:
        for pragma in pragmas:
            connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection
