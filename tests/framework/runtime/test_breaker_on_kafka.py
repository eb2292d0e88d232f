"""The flood guard on a real broker: an outage leaves the retry and dead-letter topics alone.

ACKFLOOR_OUTAGE_SECONDS and ACKFLOOR_OUTAGE_RATE (records a second) make it longer; the share that
may leak is one of a full minute at 1,000 a second, so it does not depend on them.
"""

from __future__ import annotations

import os

import pytest

from tests.framework.runtime.outage import outage

pytestmark = pytest.mark.kafka

SECONDS = float(os.environ.get("ACKFLOOR_OUTAGE_SECONDS", "6"))
RATE = float(os.environ.get("ACKFLOOR_OUTAGE_RATE", "500"))
#: One percent of a minute's records at 1,000 a second.
LEAK = 600


@pytest.mark.parametrize("kind", ["park", "dlq", "hang"])
def test_an_outage_does_not_drain_the_topic(bootstrap_servers: str, kind: str) -> None:
    """Next to nothing is parked or dead-lettered, work goes on by itself, all is handled."""
    found = outage(bootstrap_servers, SECONDS, RATE, kind)
    assert found.during > LEAK, found.told()
    assert found.refused < LEAK
    assert found.parked + found.dead_in_the_end < LEAK / 4
    assert found.trips == found.resets >= 1
    assert found.handled + found.dead_in_the_end == found.sent
    if kind != "dlq":
        assert found.dead_in_the_end == 0
