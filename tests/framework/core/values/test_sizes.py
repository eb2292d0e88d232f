"""Sizes as people write them."""

from __future__ import annotations

import pytest

from ackfloor.core.values.setting_error import SettingError
from ackfloor.core.values.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MiB", 512 << 20), (" 2 GiB ", 2 << 30), ("5kb", 5_000), ("1MB", 1_000_000), ("77", 77)],
)
def test_units_are_binary_or_decimal(text: str, size: int) -> None:
    """As their names say; without one it is bytes."""
    assert parse_size(text, field="limit") == size


@pytest.mark.parametrize("text", ["", "much", "-1MiB", "1.5GiB", "1 TiB", "9" * 19, "٣"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """With the field, the value and an example."""
    with pytest.raises(SettingError, match=r'limit=.*not a size; write one such as "256MiB"'):
        parse_size(text, field="limit")
