"""FairKey: what a function returns that is no text, whatever it says that it is."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.declare.fair_key import FairKey
from ackfloor.testing.memory.memory_log import MemoryRecord
from tests.contracts.sink_contract import assignment_of


class Untold:
    """An object that does not tell what it is."""

    @property
    def __class__(self) -> type:
        raise RuntimeError("no class")


@pytest.mark.parametrize(
    "make", [lambda: Mock(spec=str), lambda: Mock(spec=bytes), Untold], ids=["text", "bytes", "?"]
)
def test_what_only_says_that_it_is_text_is_in_no_group(
    make: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    """As proxies do, such as those of a request's values: its methods would end the worker."""
    record = MemoryRecord("orders", 3, 8, b"key", b"", (), 0)
    fair_key = FairKey("bill", lambda _: make())
    with caplog.at_level("WARNING", "ackfloor.fairness"):
        assert fair_key(TrackedDelivery(assignment_of(), record, 8, 0, 0.0)) is None
    (line,) = caplog.messages
    assert "not str, bytes or None" in line
