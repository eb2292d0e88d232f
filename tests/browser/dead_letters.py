"""A console whose index follows the dead letters of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ackfloor.core.records.redaction import Redaction
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from tests.framework.kafka.wire import options
from tests.monitoring.console.served_console import Console, console_of


@contextmanager
def console_with_index(
    servers: str, folder: Path, *runs: str, role: Role = Role.operator, **more: Any
) -> Iterator[Console]:
    """Serve one of these runs, to an operator unless told; the index is in a folder."""
    index = DeadLetterIndex(options(servers), folder / "i.sqlite", Redaction(), 100_000)
    with (
        index.following(),
        console_of(*runs, servers=servers, index=index, role=role, **more) as served,
    ):
        yield served
