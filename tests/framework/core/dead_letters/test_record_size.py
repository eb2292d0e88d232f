"""Whether a record fits into its topic, before it is sent."""

from __future__ import annotations

import pytest

from ackfloor.dead_letters.rules.record_size import BROKER_DEFAULT, Fit, SizeLimits


@pytest.mark.parametrize(
    ("size", "limits", "fit"),
    [
        (1_000, SizeLimits(2_000), Fit.YES),
        (3_000, SizeLimits(2_000), Fit.PERHAPS),
        (3_000, SizeLimits(2_000, compressed=False), Fit.NO),
        (3_000, SizeLimits(4_000, client=2_500), Fit.NO),
        (1_000, SizeLimits(4_000, client=2_500), Fit.YES),
        # The client counts some bytes more.
        (2_400, SizeLimits(4_000, client=2_500), Fit.PERHAPS),
        # What the topic allows is not known.
        (BROKER_DEFAULT - 200, SizeLimits(), Fit.YES),
        (BROKER_DEFAULT, SizeLimits(compressed=False), Fit.PERHAPS),
    ],
)
def test_a_record_is_measured_against_both_limits(size: int, limits: SizeLimits, fit: Fit) -> None:
    """The topic's counts after compression, the client's before; a doubt is told as one."""
    assert limits.fit(None, bytes(size), ()) is fit
    assert limits.fit(bytes(size), None, ()) is fit
    assert limits.fit(None, None, [("h", bytes(size - 20))]) is fit
