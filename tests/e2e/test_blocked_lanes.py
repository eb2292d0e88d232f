"""`ackfloor lanes` beside two runs: blocked lanes are seen, and moved as it is said."""

from __future__ import annotations

import json
import random
import signal
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, NamedTuple

import pytest

from ackfloor.core.records.envelope import read_envelope
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.e2e.stage import Stage, page, ready
from tests.framework.cli.command import Running, ackfloor
from tests.framework.kafka.wire import committed_records
from tests.written import whole_lines

pytestmark = [pytest.mark.kafka, pytest.mark.e2e]

#: A bad record fails until somebody says that its key is mended, or that all are.
BLOCKING = """
app = App("GROUP")


@app.handler("TOPIC", ordering="key", retry=RetryPolicy.fixed("10m", None), breaker=None)
async def bill(delivery: Delivery) -> None:
    key = delivery.key.decode()
    if delivery.value == b"bad" and not (opened(f"mended-{key}") or opened("mended")):
        raise RuntimeError(f"no price for {key}")
    note(handled, delivery)
"""
PARTITIONS = 4


class Place(NamedTuple):
    """A record of the source topic."""

    partition: int
    offset: int


class Shop:
    """Two runs of one group, and an operator beside them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs = [stage.run(), stage.run()]
        for run in self.runs:
            run.until(ready(run), "ready")
        first, second = self.runs
        first.until(lambda: [_owned(r) for r in self.runs] == [2, 2], "each has its partitions")
        self.listens = [_listen(first), _listen(second)]

    def starts_another(self) -> None:
        """A third run takes some of the partitions over."""
        self.runs.append(self.stage.run())
        self.runs[-1].until(lambda: _owned(self.runs[-1]) > 0, "partitions")
        self.listens.append(_listen(self.runs[-1]))

    def command(self, *arguments: str) -> tuple[int, Any, str]:
        """Exit code, JSON and remarks of a command that asks all runs."""
        listens = [text for listen in self.listens for text in ("--listen", listen)]
        ended = ackfloor(
            *arguments, "-o", "json", *listens, cwd=self.stage.folder,
            ACKFLOOR_BOOTSTRAP_SERVERS=self.stage.servers,
        )  # fmt: skip
        return ended.returncode, json.loads(ended.stdout or "null"), ended.stderr

    def done(self, *arguments: str) -> int:
        """How many lanes a command moved; nothing was left."""
        code, told, remarks = self.command(*arguments)
        assert (code, remarks) == (Exit.OK, ""), (arguments, told, remarks)
        return int(told["done"])

    def blocked(self) -> dict[str, Mapping[str, Any]]:
        """Key -> its row of `lanes ls`."""
        code, rows, _ = self.command("lanes", "ls", "bill")
        assert code == Exit.OK
        return {row["key"]: row for row in rows}

    def ends(self) -> None:
        """The runs end in order."""
        for run in self.runs:
            run.signal(signal.SIGTERM)
        assert [run.wait() for run in self.runs] == [Exit.OK] * len(self.runs)

    def places(self) -> dict[str, list[Place]]:
        """Key -> its records in their order."""
        found: dict[str, list[Place]] = defaultdict(list)
        for message in committed_records(self.stage.servers, self.stage.topic):
            found[message.key().decode()].append(Place(message.partition(), message.offset()))
        return found

    def handled(self) -> list[tuple[Place, int]]:
        """Places and attempts of what was handled, in that order."""
        return [_noted(line) for line in whole_lines(self.stage.folder / "handled")]

    def dead(self) -> list[Place]:
        """Where the dead letters come from; an operator's word made each of them one."""
        found = []
        for message in committed_records(
            self.stage.servers, f"{self.stage.topic}--{self.stage.group}--dlq"
        ):
            envelope = read_envelope(message.headers())
            assert (envelope.reason, envelope.error_type) == ("dead_letter", "RuntimeError")
            found.append(Place(envelope.origin_partition or 0, envelope.origin_offset or 0))
        return found


def _place(record: str) -> Place:
    _, partition, offset = record.rsplit("/", 2)
    return Place(int(partition), int(offset))


def _owned(run: Running) -> int:
    """How many partitions of the source topic a run has."""
    _, state = page(run, "/state")
    parts = [
        part for worker in state["workers"].values() if worker for part in worker["partitions"]
    ]
    return sum(part["tier_s"] is None for part in parts)


def _listen(run: Running) -> str:
    return run.logged("metrics and health on ").rpartition("http://")[2]


def _noted(line: str) -> tuple[Place, int]:
    place, _, attempt = line.partition("#")
    partition, _, offset = place.partition("/")
    return Place(int(partition), int(offset)), int(attempt)


def _of_key(handled: Sequence[tuple[Place, int]], places: Sequence[Place]) -> list[Place]:
    """What was handled of a key, in that order."""
    return [place for place, _ in handled if place in places]


KEYS = [f"k{n}" for n in range(9)]


def test_each_action_moves_the_lanes_that_are_meant(make_stage: Callable[..., Stage]) -> None:
    """By key, by record and all; shown before and after; nothing is lost or out of order."""
    shop = Shop(make_stage(BLOCKING, partitions=PARTITIONS))
    _write_with_seven_bad(shop.stage)
    places = shop.places()
    shop.runs[0].until(lambda: len(shop.blocked()) == 7, "seven keys are blocked")
    heads = _seen(shop, places)
    _nothing_changes(shop)
    _moved_one_by_one(shop, heads)
    shop.runs[0].until(lambda: shop.blocked().keys() == {"k6"}, "one key is left")
    assert shop.done("lanes", "retry", "bill", "--all", "--yes") == 1
    shop.runs[0].until(lambda: shop.blocked()["k6"]["attempt"] == 2, "it has failed again")
    (shop.stage.folder / "mended").touch()
    assert shop.done("lanes", "retry", "bill", "--all", "--yes") == 1
    shop.runs[0].until(lambda: shop.blocked() == {}, "nothing is blocked")
    total = sum(map(len, places.values()))
    shop.runs[0].until(lambda: shop.stage.committed() == total, "all is settled")
    shop.ends()
    handled = shop.handled()
    assert sorted(shop.dead()) == sorted([heads["k2"], heads["k5"]])
    gone = {heads[key] for key in ("k2", "k3", "k5")}
    for key in KEYS:
        assert _of_key(handled, places[key]) == [p for p in places[key] if p not in gone]
    attempts = {place: attempt for place, attempt in handled if attempt > 1}
    assert attempts == {heads["k0"]: 2, heads["k1"]: 2, heads["k4"]: 2, heads["k6"]: 3}
    logs = "\n".join(line for run in shop.runs for line in run.drain())
    assert f"an operator discarded offset {heads['k3'].offset}: a test" in logs


def _write_with_seven_bad(stage: Stage) -> None:
    """One record each of all keys but two is bad; the first of each key is good."""
    rest = [(key, b"good") for key in KEYS for _ in range(10)]
    rest += [(key, b"bad") for key in KEYS[:7]]
    random.Random(31).shuffle(rest)
    for key, value in [(key, b"good") for key in KEYS] + rest:
        stage.produce(1, value, key.encode())


def _seen(shop: Shop, places: Mapping[str, Sequence[Place]]) -> dict[str, Place]:
    """Key -> the record that blocks it, as it is shown, with all that is behind it."""

    def all_seen() -> bool:
        blocked = shop.blocked()
        seen = len(blocked) + sum(row["behind"] for row in blocked.values())
        return len(shop.handled()) + seen == sum(map(len, places.values()))

    shop.runs[0].until(all_seen, "each record is handled, or a head, or behind one")
    blocked = shop.blocked()
    heads = {key: _place(row["record"]) for key, row in blocked.items()}
    for key, row in blocked.items():
        assert (row["head"], row["attempt"]) == ("waiting", 1)
        assert row["error"] == f"RuntimeError: no price for {key}"
        assert row["behind"] == len(places[key]) - places[key].index(heads[key]) - 1
        assert 0 < row["next_try_s"] <= 900
    for run in shop.runs:
        status, told = page(run, "/readyz")
        assert (status, [note["check"] for note in told["notes"]]) == (200, ["lanes"])
    return heads


def _nothing_changes(shop: Shop) -> None:
    """A dry run, and an action that the handler has no topics for."""
    before = shop.blocked().keys()
    assert shop.done("lanes", "dead-letter", "bill", "--all", "--dry-run") == 7
    code, told, remarks = shop.command("lanes", "park", "bill", "--all", "--yes")
    assert (code, told["done"], len(told["refused"])) == (Exit.FAILURE, 0, 2)
    assert "on_failure='block'" in remarks
    assert shop.blocked().keys() == before


def _moved_one_by_one(shop: Shop, heads: Mapping[str, Place]) -> None:
    """Six lanes go on, each by another word."""
    record = {key: f"{shop.stage.topic}/{at.partition}/{at.offset}" for key, at in heads.items()}
    for key in ("k0", "k1", "k4"):
        (shop.stage.folder / f"mended-{key}").touch()
    for words in (
        ("lanes", "retry", "bill", "--key", "k0"),
        ("lanes", "delay", "bill", "1s", "--key", "k1"),
        ("lanes", "dead-letter", "bill", record["k2"]),
        ("lanes", "discard", "bill", "--key", "k3", "--reason", "a test"),
        ("retry", "promote", record["k4"]),
        ("retry", "bury", record["k5"]),
    ):
        assert shop.done(*words, "--yes") == 1
    code, told, _ = shop.command("lanes", "retry", "bill", "--key", "k7", "--key", "k8", "--yes")
    assert (code, told["missing"]) == (Exit.FAILURE, ["k7", "k8"])


def test_two_operators_at_once_lose_nothing(make_stage: Callable[..., Stage]) -> None:
    """One tries all again and again, one dead-letters keys, and partitions change their owners."""
    shop = Shop(make_stage(BLOCKING, partitions=PARTITIONS))
    stage, noise = shop.stage, random.Random(4711)
    keys = [f"k{n}" for n in range(12)]
    for _ in range(480):
        value = b"bad" if noise.random() < 0.25 else b"good"
        stage.produce(1, value, noise.choice(keys).encode())
    places = shop.places()
    shop.runs[0].until(lambda: len(shop.blocked()) == len(keys), "all keys are blocked")
    over, moved = Event(), list[int]()

    def retries() -> None:
        while not over.is_set():
            shop.command("lanes", "retry", "bill", "--all", "--yes")

    def dead_letters() -> None:
        while not over.is_set():
            chosen = [text for key in noise.sample(keys, 4) for text in ("--key", key)]
            _, told, _ = shop.command("lanes", "dead-letter", "bill", *chosen, "--yes")
            moved.append(told["done"])

    with ThreadPoolExecutor() as people:
        both = [people.submit(retries), people.submit(dead_letters)]
        try:
            shop.runs[0].until(lambda: sum(moved) >= 5, "some are dead-lettered")
            shop.starts_another()
            before = sum(moved)
            shop.runs[0].until(lambda: sum(moved) >= before + 5, "more are dead-lettered")
            # The second leaves while both go on asking it.
            shop.runs[1].signal(signal.SIGTERM)
            assert shop.runs[1].wait() == Exit.OK
            before = sum(moved)
            shop.runs[0].until(lambda: sum(moved) >= before + 5, "and more")
        finally:
            over.set()
    for each in both:
        each.result()
    (stage.folder / "mended").touch()
    del shop.runs[1], shop.listens[1]
    total = sum(map(len, places.values()))

    def all_settled() -> bool:
        shop.command("lanes", "retry", "bill", "--all", "--yes")
        return stage.committed() == total

    shop.runs[0].until(all_settled, "all is settled")
    shop.ends()
    handled, dead = shop.handled(), shop.dead()
    assert len(dead) == len(set(dead)) == sum(moved)
    for key in keys:
        # Each ends once, and one way; what is handled is so in its order.
        assert _of_key(handled, places[key]) == [p for p in places[key] if p not in dead]
