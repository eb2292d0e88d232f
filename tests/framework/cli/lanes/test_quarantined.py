"""`ackfloor lanes` for quarantined keys: what an operator reads, and what each word does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ackfloor import App, DeadLetter, Delivery, RetryPolicy
from ackfloor.cli.progress.partition_rows import lanes_note, live_partitions
from ackfloor.cli.retry import retry_commands
from ackfloor.cli.shared.run_address import read_state
from ackfloor.core.scheduling.blocked_lanes import blocked_lanes
from ackfloor.core.scheduling.quarantine_orders import quarantined_lanes
from ackfloor.core.state.snapshot import BlockedLane, BlockedLanes, HandlerSnapshot
from ackfloor.live.lane_requests import PATH, LaneRequests, carry_out_lane_order
from ackfloor.live.worker_orders import Answers, Tree
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.testing import Harness
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.metrics.worker_metrics import WorkerMetrics
from tests.framework.cli.lanes.test_lanes import TOKEN, done
from tests.monitoring.samples import handler, partition, snapshot

app = App("shop")


@app.handler(
    "orders",
    ordering="key",
    on_failure="quarantine",
    after_dead_letter="hold",
    retry=RetryPolicy(delays=["10m"]),
)
async def bill(value: str, delivery: Delivery) -> None:
    """What is bad is dead-lettered, what is early fails once."""
    if value == "bad":
        raise DeadLetter("no such order")
    if value == "early" and delivery.attempt == 1:
        raise LookupError("no price")


class Shop:
    """A run with one worker: key a is held, key b waits, and each has two records behind."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.engine = harness._running()[0].loop.engine
        for key, head in (("a", "bad"), ("b", "early")):
            for value in (head, f"{key}2", f"{key}3"):
                harness.send("orders", value, key=key)
        harness.send("orders", "c", key="c")
        harness.advance("2s")
        self.metrics = RunMetrics("shop", 1, now_ms=lambda: harness.clock.now().wall_ms)
        self.metrics.control(PATH, LaneRequests(TOKEN, self.take, anywhere=False))
        self.show()
        self.listen = self.metrics.start("127.0.0.1:0")

    def take(self, order: Tree, wait_s: float) -> Answers:
        """The worker carries an order out."""
        assert wait_s > 0
        # On the server's thread: the worker's own waits for the command meanwhile.
        body, now = json.loads(json.dumps(order)), self.harness.clock.now()
        answer = carry_out_lane_order(self.engine.lane_orders, body, now)
        return Answers({0: json.loads(json.dumps(answer))}, ())

    def show(self, **changes: BlockedLanes) -> None:
        """The worker reports how it is."""
        self.metrics.update(0, self.report(self.described(**changes)))

    def described(self, **changes: BlockedLanes) -> HandlerSnapshot:
        state, now = self.engine.state, self.harness.clock.now()
        each = state.handlers["bill"]
        blocked, quarantined = blocked_lanes(each, state, now), quarantined_lanes(each, state, now)
        sample = handler(on_failure="quarantine", blocked=blocked, quarantined=quarantined)
        return replace(sample, **changes)  # type: ignore[arg-type]

    def report(self, described: HandlerSnapshot) -> bytes:
        worker = WorkerMetrics()
        parts = (replace(partition(), topic="orders", handler="bill"),)
        report = snapshot(handlers=(described,), partitions=parts)
        worker.snapshot(replace(report, taken_ms=self.harness.clock.now().wall_ms))
        return worker.report()

    def values(self) -> list[bytes | None]:
        """What was handled, in order."""
        self.harness.settle()
        return [record.value for record in self.harness.handled("orders")]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A run at an address, and its token."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    with Harness(app) as harness:
        shop = Shop(harness)
        yield shop
        shop.metrics.stop()


def listed(shop: Shop) -> list[dict[str, object]]:
    """The rows of `lanes ls`."""
    shop.show()
    rows: list[dict[str, object]]
    rows = json.loads(done("lanes ls", "-o", "json", on=(shop,), token=False).stdout)
    return rows


def test_quarantined_keys_keep_their_age_over_a_restart(shop: Shop) -> None:
    """The next worker has it from the retry topics, and says that it may be more."""
    shop.harness.restart()
    shop.engine = shop.harness._running()[0].loop.engine
    shop.harness.advance("3s")
    held, waiting = listed(shop)
    assert (held["record"], held["blocked_s"], held["at_least"]) == ("orders/0/0", 5.0, True)
    assert (waiting["record"], waiting["blocked_s"], waiting["at_least"]) == (
        "orders/0/3", 5.0, True,
    )  # fmt: skip


def test_quarantined_keys_are_listed(shop: Shop) -> None:
    """By the place of the failed record in its source, with what it is doing."""
    held, waiting = listed(shop)
    assert held == {
        "record": "orders/0/0", "handler": "bill", "key": "a", "state": "quarantined",
        "head": "held", "attempt": 1, "error": "DeadLetter: no such order", "blocked_s": 2.0,
        "at_least": False, "next_try_s": None, "behind": 2, "worker": 0, "run": shop.listen,
    }  # fmt: skip
    assert waiting == {
        **held, "record": "orders/0/3", "key": "b", "head": "waiting",
        "error": "LookupError: no price", "next_try_s": 598.0,
    }  # fmt: skip
    table = done("lanes ls", on=(shop,), token=False).stdout
    assert "quarantined" in table


def test_a_head_that_is_not_read_yet_has_no_place(shop: Shop) -> None:
    """And no attempt; what is not named is counted."""
    now_ms = shop.harness.clock.now().wall_ms
    lane = BlockedLane("orders", 3, -1, "z", "moving", 0, "", now_ms, None, 4)
    shop.show(quarantined=BlockedLanes(9, 40, now_ms, (lane,)))
    ended = done("lanes ls", "-o", "json", on=(shop,), token=False)
    (row,) = json.loads(ended.stdout)
    assert (row["record"], row["attempt"], row["head"]) == ("orders/3", None, "moving")
    assert "worker 0: 8 more keys of bill are quarantined, each for less" in ended.stderr


def test_a_held_key_is_freed_and_a_waiting_head_is_tried(shop: Shop) -> None:
    """Both by `retry`; each is said for what it is."""
    dry = done("lanes retry", "bill", "--all", "--dry-run", on=(shop,))
    assert dry.stdout == (
        "bill: would be tried now: the heads of 1 lane\n"
        "bill: would be freed: 1 key that a dead-lettered record held\n"
    )
    assert shop.values() == [b"c"]
    freed = done("lanes retry", "bill", "orders/0/0", "--yes", on=(shop,))
    assert freed.stdout == "bill: freed: 1 key that a dead-lettered record held\n"
    assert (freed.exit_code, freed.stderr) == (Exit.OK, "")
    assert shop.values() == [b"c", b"a2", b"a3"]
    tried = done("lanes retry", "bill", "--key", "b", "-y", "-o", "json", on=(shop,))
    assert (json.loads(tried.stdout)["done"], json.loads(tried.stdout)["freed"]) == (1, 0)
    assert shop.values()[3:] == [b"early", b"b2", b"b3"]
    assert listed(shop) == []


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (["delay", "bill", "1h", "--key", "a"], "1 is dead-lettered already and holds its key"),
        (["dead-letter", "bill", "--key", "a"], "1 is dead-lettered already and holds its key"),
        (["park", "bill", "--all"], "2 is quarantined, so it is in a retry topic already"),
    ],
)
def test_what_is_left_as_it_was_is_said(shop: Shop, command: list[str], left: str) -> None:
    """With its reason, and what to do; nothing changes."""
    before = listed(shop)
    ended = done("lanes", *command, "--yes", on=(shop,))
    assert (ended.exit_code, ended.stderr.startswith(left)) == (Exit.FAILURE, True), ended.stderr
    shop.harness.settle()
    assert listed(shop) == before


def test_followers_go_with_their_head_or_go_on(shop: Shop) -> None:
    """As the operator says, whatever the handler says."""
    gone = done("lanes dead-letter", "bill", "--key", "a", "--followers", "--yes", on=(shop,))
    assert gone.stdout == (
        "bill: on the way to the dead-letter topic, with what waits behind: the heads of 1 lane\n"
    )
    shop.harness.settle()
    on = done("lanes dead-letter", "bill", "orders/0/3", "--no-followers", "--yes", on=(shop,))
    assert (on.exit_code, on.stderr) == (Exit.OK, "")
    assert shop.values() == [b"c", b"b2", b"b3"]
    dead = [record.value for record in shop.harness.dlq("orders")]
    assert dead == [b"bad", b"a2", b"a3", b"early"]
    assert listed(shop) == []


def test_a_head_is_skipped(shop: Shop) -> None:
    """It is settled, and those behind it are handled."""
    ended = done("lanes discard", "bill", "--key", "b", "--reason", "a test", "-y", on=(shop,))
    assert ended.stdout == "bill: discarded: the heads of 1 lane\n"
    assert shop.values() == [b"c", b"b2", b"b3"]


def test_other_commands_point_at_quarantined_keys(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`inflight`, `retry ls`, `handlers ls`, and the note of `acks`."""
    text = "bill: 2 quarantined keys, 4 records behind: see `ackfloor lanes ls`\n"
    assert text in done("inflight", on=(shop,), token=False).stderr

    class NoTopics:
        def names(self, _group: str | None) -> list[str]:
            return []

    monkeypatch.setattr(retry_commands, "_open", lambda _: (NoTopics(), None))
    assert text in done("retry ls", on=(shop,), token=False).stderr
    (row,) = json.loads(done("handlers ls", "-o", "json", on=(shop,), token=False).stdout)
    assert (row["on_failure"], row["blocked_lanes"], row["quarantined_keys"]) == (
        "quarantine", 0, 2,
    )  # fmt: skip
    (live,) = live_partitions(read_state(shop.listen, None))
    assert lanes_note(live) == "quarantined behind 0, 3: see `lanes ls`"
