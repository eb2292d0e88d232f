"""Order that survives failures, on a real broker: key order, random failures, a rebalance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.e2e.stage import Stage
from tests.written import whole_lines

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

KEYS, RECORDS = 16, 480

APP = """
from zlib import crc32

from ackfloor import Retry

app = App("GROUP")


@app.handler(
    "TOPIC",
    ordering="key",
    concurrency=8,
    consume_timeout="250ms",
    retry=RetryPolicy.fixed("20ms", None),
    breaker=None,
)
async def bill(delivery: Delivery) -> None:
    text = f"{delivery.key.decode()} {delivery.value.decode()} {delivery.attempt}"
    os.write(started, f"{text}\\n".encode())
    await asyncio.sleep(0.002)
    # A third of the deliveries fails, each in a way of its own; the last way outlives the deadline.
    match crc32(text.encode()) % 24:
        case 0 | 1 | 2 | 3 | 4:
            raise ConnectionError("away")
        case 5 | 6:
            raise Retry("5ms")
        case 7:
            await asyncio.sleep(60)
    os.write(handled, f"{text}\\n".encode())
"""


def test_order_per_key_holds_across_failures_and_a_rebalance(
    make_stage: Callable[..., Stage],
) -> None:
    """Each key's records are first handled in their order, none is lost, no retry topic is made."""
    stage = make_stage(APP, partitions=4)
    for number in range(RECORDS // 2):
        stage.produce(1, b"%d" % (number // KEYS), b"k%d" % (number % KEYS))
    first = stage.run()
    first.until(stage.noted, "some are handled")
    # A second worker takes over half of the partitions in the middle of the waits.
    second = stage.run()
    for number in range(RECORDS // 2, RECORDS):
        stage.produce(1, b"%d" % (number // KEYS), b"k%d" % (number % KEYS))
    second.until(lambda: handled_pairs(stage) == RECORDS, "all handled")
    seen: dict[str, list[int]] = defaultdict(list)
    for line in whole_lines(stage.folder / "handled"):
        key, number, _ = line.split()
        seen[key].append(int(number))
    assert len(seen) == KEYS
    for numbers in seen.values():
        # What the rebalance repeats it repeats in order: a run that goes back and comes again.
        assert list(dict.fromkeys(numbers)) == list(range(RECORDS // KEYS))
    attempts = [int(line.split()[2]) for line in stage.noted("started")]
    assert max(attempts) > 1
    assert not [name for name in stage.topics() if "--retry-" in name]


def handled_pairs(stage: Stage) -> int:
    """How many different records were handled."""
    return len({tuple(line.split()[:2]) for line in stage.noted()})
