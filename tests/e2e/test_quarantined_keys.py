"""`ackfloor lanes` beside two runs: quarantined keys are seen, and moved as it is said."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from ackfloor.core.records.envelope import read_envelope
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, page
from tests.e2e.test_blocked_lanes import Place, Shop
from tests.framework.kafka.wire import committed_records

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

#: A bad record fails until somebody says that its key is mended; a hopeless one is given up.
QUARANTINING = """
from ackfloor import DeadLetter

app = App("GROUP")


@app.handler(
    "TOPIC",
    ordering="key",
    on_failure="quarantine",
    after_dead_letter="hold",
    retry=RetryPolicy.fixed("10m", None),
    breaker=None,
)
async def bill(delivery: Delivery) -> None:
    key = delivery.key.decode()
    if delivery.value == b"hopeless":
        raise DeadLetter("no such order")
    if delivery.value == b"bad" and not opened(f"mended-{key}"):
        raise RuntimeError(f"no price for {key}")
    note(handled, delivery)
"""
#: One record of each of these fails: k0 to k4 by a price, k5 and k6 for good.
BAD, HOPELESS, GOOD = [f"k{n}" for n in range(5)], ["k5", "k6"], ["k7", "k8"]
PARTITIONS = 4


def _write(stage: Stage) -> None:
    """The first of each key is good, the others follow in any order."""
    rest = [(key, b"good") for key in (*BAD, *HOPELESS, *GOOD) for _ in range(8)]
    rest += [(key, b"bad") for key in BAD] + [(key, b"hopeless") for key in HOPELESS]
    random.Random(31).shuffle(rest)
    for key, value in [(key, b"good") for key in (*BAD, *HOPELESS, *GOOD)] + rest:
        stage.produce(1, value, key.encode())


def _failing(shop: Shop) -> dict[str, Place]:
    """Key -> its record that fails."""
    return {
        message.key().decode(): Place(message.partition(), message.offset())
        for message in committed_records(shop.stage.servers, shop.stage.topic)
        if message.value() != b"good"
    }


def _dead(shop: Shop) -> list[tuple[Place, str]]:
    """Where the dead letters come from, and their reasons, in their order."""
    found = []
    for message in committed_records(
        shop.stage.servers, f"{shop.stage.topic}--{shop.stage.group}--dlq"
    ):
        envelope = read_envelope(message.headers())
        place = Place(envelope.origin_partition or 0, envelope.origin_offset or 0)
        found.append((place, str(envelope.reason)))
    return found


def _settled(shop: Shop) -> bool:
    """Whether nothing is open, in the source and in the retry topics."""
    code, rows, _ = shop.command("lanes", "ls", "bill")
    assert code == Exit.OK
    states = [page(run, "/state")[1] for run in shop.runs]
    workers = [worker for state in states for worker in state["workers"].values() if worker]
    return not rows and not any(worker["open_count"] for worker in workers)


def test_an_operator_moves_quarantined_keys(make_stage: Callable[..., Stage]) -> None:
    """Tried, freed, given up with and without what follows, and skipped: nothing else is lost."""
    shop = Shop(make_stage(QUARANTINING, partitions=PARTITIONS))
    _write(shop.stage)
    places, heads = shop.places(), _failing(shop)
    _seen(shop, places, heads)
    _left(shop)
    (shop.stage.folder / "mended-k0").touch()
    (shop.stage.folder / "mended-k4").touch()
    topic = shop.stage.topic
    record = {key: f"{topic}/{at.partition}/{at.offset}" for key, at in heads.items()}
    for words in (
        ("lanes", "retry", "bill", "--key", "k0"),
        ("lanes", "dead-letter", "bill", record["k1"], "--followers"),
        ("lanes", "dead-letter", "bill", "--key", "k2", "--no-followers"),
        ("lanes", "discard", "bill", "--key", "k3", "--reason", "a test"),
        ("lanes", "delay", "bill", "1s", "--key", "k4"),
        ("lanes", "retry", "bill", record["k5"]),
        ("lanes", "dead-letter", "bill", "--key", "k6", "--followers"),
    ):
        assert shop.done(*words, "--yes") == 1
    shop.runs[0].until(lambda: _settled(shop), "all is settled")
    shop.ends()
    _check(shop, places, heads)


def _seen(shop: Shop, places: Mapping[str, Sequence[Place]], heads: Mapping[str, Place]) -> None:
    """Each failed record is shown, with all that is behind it; the runs stay ready."""

    def all_seen() -> bool:
        waiting = shop.blocked()
        seen = len(waiting) + sum(row["behind"] for row in waiting.values())
        doing = {row["head"] for row in waiting.values()}
        total = sum(map(len, places.values()))
        return len(shop.handled()) + seen == total and doing == {"waiting", "held"}

    shop.runs[0].until(all_seen, "each record is handled, or a head, or behind one")
    waiting = shop.blocked()
    assert waiting.keys() == heads.keys()
    for key, row in waiting.items():
        at = heads[key]
        assert row["record"] == f"{shop.stage.topic}/{at.partition}/{at.offset}"
        assert row["state"] == "quarantined"
        assert row["head"] == ("held" if key in HOPELESS else "waiting")
        assert row["behind"] == len(places[key]) - places[key].index(at) - 1
    notes = [page(run, "/readyz") for run in shop.runs]
    assert [(code, told["ready"]) for code, told in notes] == [(200, True)] * 2
    told = [note["message"] for _, page in notes for note in page["notes"]]
    assert all("quarantined, with" in each for each in told)
    assert told


def _left(shop: Shop) -> None:
    """What can't be done is said, and changes nothing."""
    before = shop.blocked().keys()
    code, told, remarks = shop.command("lanes", "park", "bill", "--key", "k0", "--yes")
    assert (code, told["left"]) == (Exit.FAILURE, {"parked": 1}), remarks
    code, told, _ = shop.command("lanes", "delay", "bill", "1s", "--key", "k5", "--yes")
    assert (code, told["left"]) == (Exit.FAILURE, {"held": 1})
    code, told, _ = shop.command("lanes", "retry", "bill", "--key", "k7", "--yes")
    assert (code, told["missing"]) == (Exit.FAILURE, ["k7"])
    assert shop.blocked().keys() == before


def _check(shop: Shop, places: Mapping[str, Sequence[Place]], heads: Mapping[str, Place]) -> None:
    """Each record ended once, the way that it was told to, and in the order of its key."""
    rest = {key: list(at[at.index(heads[key]) + 1 :]) for key, at in places.items() if key in heads}
    dead, handled = _dead(shop), [place for place, _ in shop.handled()]
    by_key = {key: [(at, why) for at, why in dead if at in places[key]] for key in places}
    given_up = [(heads[key], "dead_letter") for key in ("k1", "k6")]
    for key, head in zip(("k1", "k6"), given_up, strict=True):
        assert by_key[key] == [head, *((at, "behind") for at in rest[key])]
    assert by_key["k2"] == [(heads["k2"], "dead_letter")]
    assert by_key["k5"] == [(heads["k5"], "dead_letter")]
    gone = {at for at, _ in dead} | {heads["k3"]}
    assert len(dead) == len({at for at, _ in dead})
    for key, at in places.items():
        assert [one for one in handled if one in at] == [one for one in at if one not in gone], key
    logs = [line for run in shop.runs for line in run.drain()]
    at = heads["k3"]
    first = f"({shop.stage.topic}/{at.partition}/{at.offset}): "
    assert any("an operator discarded offset " in line and first in line for line in logs)
