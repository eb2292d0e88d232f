"""The fixtures' types as type checkers see them; checked by mypy and pyright, never run."""

from __future__ import annotations

from typing import assert_type

from ackfloor import App
from ackfloor.testing import Harness, HarnessFactory

app = App("shop")


def test_a_harness(ackfloor_harness: HarnessFactory) -> None:
    assert_type(ackfloor_harness(app, partitions=3, jitter=True), Harness)
    ackfloor_harness(app, partition=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ackfloor_harness(app, jitter="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
