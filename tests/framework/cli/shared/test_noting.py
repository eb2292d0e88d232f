"""What a command notes of itself, before it does anything."""

from __future__ import annotations

import pytest

from ackfloor.cli.shared.noting import Noting
from ackfloor.core.values.setting_error import SettingError
from ackfloor.live.kept_orders import LONGEST_REASON


@pytest.mark.parametrize(
    ("action", "option"),
    [
        ("lanes retry", "--reason"),
        ("config set", "--reason"),
        ("dlq replay", "--because"),
        ("retry promote", "--because"),
        ("spark replay", "--because"),
    ],
)
def test_a_reason_that_is_too_long_names_the_commands_own_option(action: str, option: str) -> None:
    """Where `--reason` is a condition on dead letters, it is another one."""
    with pytest.raises(SettingError) as refused:
        Noting(None, action, "x" * (LONGEST_REASON + 1))
    assert refused.value.field == option
    Noting(None, action, "x" * LONGEST_REASON)
