"""Export files of dead letters: lines of JSON, CSV, or Parquet.

The lines hold everything, see `json_lines`. CSV and Parquet have the same fields as columns,
with the headers as text of JSON; CSV does not distinguish an empty value from a missing one. The
file appears when it is complete: until then it is written under `.part`.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, get_type_hints

from ackfloor.core.records.envelope import Envelope
from ackfloor.dead_letters.commands.json_lines import (
    DISPOSITION,
    dead_letter_facts,
    dead_letter_line,
)
from ackfloor.errors import AckfloorError, RedriveRefused

if TYPE_CHECKING:
    from ackfloor.core.records.redaction import Redaction
    from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter

COLUMNS: Final = (
    *("topic", "partition", "offset", "timestamp_ms", "disposed"),
    *DISPOSITION,
    *("key", "key_base64", "value", "value_base64", "headers", "headers_readable"),
    *Envelope._fields,
)
_BOOLEANS: Final = frozenset({"disposed", "headers_readable"})
_NUMBERS: Final = frozenset(
    {
        *("partition", "offset", "timestamp_ms", "disposed_at_ms"),
        *(name for name, kind in get_type_hints(Envelope).items() if kind in {int, int | None}),
    }
)
#: Rows of Parquet that are in memory before they are written.
_ROWS = 1_000


class ExportFormat(StrEnum):
    """What an export is written as."""

    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


class ExportWriter(Protocol):
    """Writes one dead letter after the other."""

    def write(self, found: StoredDeadLetter) -> None:
        """Add one."""
        ...

    def close(self) -> None:
        """Finish the file."""
        ...


@contextmanager
def written(format_: ExportFormat, path: Path | None, rules: Redaction) -> Iterator[ExportWriter]:
    """A writer to a new file, or to standard output where none is named.

    Raises:
        RedriveRefused: the file exists, can't be created, or pyarrow is not installed.
        AckfloorError: it can't be written.
    """
    make = _WRITERS[format_]
    if path is None:
        writer = make(sys.stdout.buffer, rules)
        try:
            yield writer
        finally:
            writer.close()
        return
    shown = f"--file={str(path)!r}"
    if path.exists():
        raise RedriveRefused(f"{shown}: is there already; name a new file")
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            writer = make(file, rules)
            try:
                yield writer
            finally:
                writer.close()
        part.replace(path)
    except OSError as exc:
        raise AckfloorError(f"{shown}: can't be written: {exc.strerror or exc}") from exc
    finally:
        part.unlink(missing_ok=True)


def dead_letter_row(found: StoredDeadLetter, rules: Redaction) -> dict[str, Any]:
    """One dead letter by columns."""
    facts = dead_letter_facts(found, rules)
    facts["headers"] = json.dumps(facts["headers"])
    facts["unreadable"] = "; ".join(facts["unreadable"])
    return {name: facts.get(name) for name in COLUMNS}


class _Lines:
    def __init__(self, file: BinaryIO, rules: Redaction) -> None:
        self._file, self._rules = file, rules

    def write(self, found: StoredDeadLetter) -> None:
        self._file.write(dead_letter_line(found, self._rules).encode())

    def close(self) -> None:
        self._file.flush()


class _Utf8:
    """Text to bytes: the same in every locale."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(text.encode())


class _Csv:
    def __init__(self, file: BinaryIO, rules: Redaction) -> None:
        self._rules = rules
        self._file = file
        self._rows = csv.DictWriter(_Utf8(file), COLUMNS, lineterminator="\n")
        self._rows.writeheader()

    def write(self, found: StoredDeadLetter) -> None:
        self._rows.writerow(dead_letter_row(found, self._rules))

    def close(self) -> None:
        self._file.flush()


class _Parquet:
    def __init__(self, file: BinaryIO, rules: Redaction) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as exc:
            raise RedriveRefused(
                "--format=parquet: pyarrow is not installed; pip install 'ackfloor[spark]', or "
                "take csv"
            ) from exc
        types = {
            **dict.fromkeys(_NUMBERS, pa.int64()),
            **dict.fromkeys(_BOOLEANS, pa.bool_()),
        }
        self._schema = pa.schema([(name, types.get(name, pa.string())) for name in COLUMNS])
        self._table = pa.Table
        self._writer = parquet.ParquetWriter(file, self._schema)
        self._rules = rules
        self._rows: list[dict[str, Any]] = []

    def write(self, found: StoredDeadLetter) -> None:
        self._rows.append(dead_letter_row(found, self._rules))
        if len(self._rows) == _ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        self._writer.write_table(self._table.from_pylist(self._rows, self._schema))
        self._rows = []


_WRITERS: Final[dict[ExportFormat, Callable[[BinaryIO, Redaction], ExportWriter]]] = {
    ExportFormat.jsonl: _Lines,
    ExportFormat.csv: _Csv,
    ExportFormat.parquet: _Parquet,
}
