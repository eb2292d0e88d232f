"""What the tests of the core share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.untraced import untraced


@pytest.fixture
def without_coverage() -> Iterator[None]:
    """For models that play thousands of steps: traced they take three times as long, and every line
    has a test of its own beside them."""
    with untraced():
        yield
