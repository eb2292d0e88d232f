"""The engine against a naive model: invariants 1, 2, 3, 4, 6, 7 and 8 under any interleaving.

The machine plays the executors, the broker and the clock: it reads records (with holes), starts
and ends handlers in any order and with any outcome, lets deadlines pass, answers twice and late,
confirms and refuses parks, answers commits late or with errors, changes settings, moves the heads
of blocked lanes, pauses and resumes the handler as an operator would, lets it pause itself, and
takes partitions away and gives them back in the middle of all that.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.messages.commands import Cancel, Pause, Resume, TakeBack
from ackfloor.core.messages.lane_order import Action, LaneOrder
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.outcomes import ACKED, Discarded, Failed, Outcome, Rejected
from ackfloor.core.records.record import CommitPosition, Failure, TopicPartition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.rule_changes import Reloaded
from tests.examples import examples
from tests.framework.core.worlds import HeldWorld, MemoryRecord, deliveries_in

pytestmark = pytest.mark.usefixtures("without_coverage")

PARTITIONS = 2
OUTCOMES: tuple[Outcome, ...] = (
    ACKED,
    Discarded("told to"),
    Failed(Failure("Boom", "x")),
    Rejected(Failure("Hopeless", "x")),
)
Key = tuple[int, int]
LIMITED = FlowLimits(max_open=12, max_open_bytes=60, partition_span=20)


class EngineMachine(RuleBasedStateMachine):
    """One handler, two partitions, small limits."""

    ordering = "unordered"
    manual = False
    in_place = False
    transactional = False
    breaker = CircuitBreaker(enabled=False)
    batch: int | None = None

    @initialize()
    def begin(self) -> None:
        """Assign both partitions."""
        self.world = HeldWorld(
            rules=HandlerRules(
                "bill",
                self.ordering,
                concurrency=4,
                consume_timeout_s=5.0,
                policy=RetryPolicy("1s", 1, "1s", 2, 0),
                manual=self.manual,
                in_place=self.in_place,
                breaker=self.breaker,
                batch=self.batch,
                batch_wait_s=0.5,
            ),
            limits=LIMITED,
            transactional=self.transactional,
        )
        #: The offsets each partition's log holds, ascending; holes are there for good.
        self.log: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        #: Durable: what is settled for good, and what was committed.
        self.settled: set[Key] = set()
        self.delivered: set[Key] = set()
        self.stored = dict.fromkeys(range(PARTITIONS), 0)
        self.floors = dict.fromkeys(range(PARTITIONS), 0)
        self.owned: set[int] = set()
        self.keys: dict[Key, bytes | None] = {}
        self.running: list[tuple[TrackedDelivery, Work | None]] = []
        self.ended: list[TrackedDelivery] = []
        self.commits: list[CommitPosition] = []
        self.paused: set[int] = set()
        #: How often everything was asked back; a slot ends a work that it took before.
        self.recalls = 0
        for partition in range(PARTITIONS):
            self.gain(partition)

    # What the world does.

    def gain(self, partition: int) -> None:
        """A partition comes, from its stored position."""
        self.world.assign(partition, self.stored[partition])
        self.owned.add(partition)
        self.floors[partition] = self.stored[partition]
        self.paused.discard(partition)
        self.next_offset = getattr(self, "next_offset", {}) | {partition: self.stored[partition]}

    def follow(self) -> None:
        """Do what was commanded, as the shell would."""
        for command in self.world.commands:
            if isinstance(command, Pause):
                self.paused.update(p.partition for p in command.partitions)
            elif isinstance(command, TakeBack):
                self.recalls += 1
            elif isinstance(command, Resume):
                for partition, position in command.positions:
                    self.paused.discard(partition.partition)
                    self.next_offset[partition.partition] = position
            elif isinstance(command, Cancel):
                self.give_up(command.delivery)
        self.world.commands.clear()
        for commit in self.world.commits:
            self.commits.extend(commit.positions)
        self.world.commits.clear()

    def give_up(self, delivery: TrackedDelivery) -> None:
        """Its worker goes on with something else."""
        self.running = [pair for pair in self.running if pair[0] is not delivery]
        self.ended.append(delivery)

    def in_flight(self) -> list[TrackedDelivery]:
        """The deliveries whose handlers run."""
        return [delivery for delivery, _ in self.running]

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        holes=st.lists(st.integers(0, 2), min_size=1, max_size=6),
        key=st.sampled_from([b"a", b"b", None]),
    )
    def read(self, partition: int, holes: list[int], key: bytes | None) -> None:
        """A batch arrives, unless fetching is paused."""
        if partition not in self.owned or partition in self.paused:
            return
        position = self.next_offset[partition]
        log = self.log[partition]
        unread = [offset for offset in log if offset >= position][: len(holes)]
        for hole in holes[len(unread) :]:
            unread.append((log[-1] + 1 if log else 0) + hole)
            log.append(unread[-1])
        records = [
            MemoryRecord(
                "orders", partition, o, b"12345", self.keys.setdefault((partition, o), key)
            )
            for o in unread
        ]
        self.delivered.update((partition, offset) for offset in unread)
        self.next_offset[partition] = unread[-1] + 1
        self.world.engine.polled(records, self.world.now)
        self.world.take()
        self.follow()

    @precondition(lambda self: self.world.ready and len(self.running) < 4)
    @rule()
    def start(self) -> None:
        """A worker takes the next item and starts its handler."""
        item = self.world.ready.popleft()
        run = item if isinstance(item, Work) else None
        if isinstance(item, Work):
            if not item:
                self.world.engine.unit_ended("bill", item, self.world.now)
                self.world.take()
                self.follow()
                return
            delivery = item.popleft()
            item.recalls = self.recalls
        else:
            delivery = item
        if delivery.closed or delivery.assignment.stopping:
            return
        if self.manual:
            delivery.arm(None)
        delivery.started_s = self.world.now_s
        if self.in_place:
            self.check_turn(delivery)
        self.running.append((delivery, run))

    def check_turn(self, delivery: TrackedDelivery, beside: frozenset[Key] = frozenset()) -> None:
        """Nothing of a lane is started before all that precedes it is settled, or in its batch."""
        partition, offset = delivery.partition, delivery.offset
        key = self.keys[partition, offset]
        if self.ordering == "unordered" or (self.ordering == "key" and key is None):
            return
        before = {
            place
            for place in self.delivered
            if place < (partition, offset)
            and place[0] == partition
            and (self.ordering == "partition" or self.keys[place] == key)
        }
        assert before <= self.settled | beside

    @precondition(lambda self: self.world.ready)
    @rule()
    def take_back(self) -> None:
        """The executor gives back what nobody has started; that is what it is given next."""
        world = self.world
        before = self.startable()
        world.give_back("bill")
        world.take()
        self.follow()
        if self.batch is None:
            again = self.startable()
            assert all(old == new for old, new in zip(before, again, strict=False))
            assert bool(before) <= bool(again)

    def startable(self) -> list[TrackedDelivery]:
        """What the executor may start first of each: of what a partition took along, nothing."""
        found = [deliveries_in(item) for item in self.world.ready]
        return [d[0] for d in found if d and not d[0].closed]

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        """A handler ends, in any order."""
        self.finish(data.draw(st.sampled_from(self.running)), outcome)

    def finish(self, pair: tuple[TrackedDelivery, Work | None], outcome: Outcome) -> None:
        """One of those that run ends."""
        self.running.remove(pair)
        delivery, run = pair
        was_closed = delivery.closed
        self.ended.append(delivery)
        if self.manual:
            assert self.answer(delivery, outcome) is (not was_closed)
            assert delivery.ack() is False
            answered = list(self.world.inbox)
            self.world.inbox.clear()
            self.world.engine.answered(answered, self.world.now)
            self.world.take()
        else:
            self.world.finish(delivery, outcome)
        if run is not None and not delivery.keeps_lane():
            self.go_on_with(run)
        if not was_closed and (outcome is ACKED or isinstance(outcome, Discarded)):
            self.note_settled(delivery)
        self.follow()

    def go_on_with(self, run: Work) -> None:
        """The worker goes on with its lane, or finds it empty and leaves; or was asked to end."""
        if run.recalls == self.recalls:
            self.world.ready.append(run)
        else:
            self.world.engine.unit_ended("bill", run, self.world.now)
            self.world.take()

    @staticmethod
    def answer(delivery: TrackedDelivery, outcome: Outcome) -> bool:
        """Answer by hand."""
        if isinstance(outcome, Failed):
            return delivery.retry()
        if isinstance(outcome, Rejected):
            return delivery.dead_letter("x")
        return delivery.discard("x") if isinstance(outcome, Discarded) else delivery.ack()

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def answer_again(self, data: st.DataObject) -> None:
        """A second or late answer changes nothing."""
        delivery = data.draw(st.sampled_from(self.ended))
        before = (self.world.engine.flow.open_count, dict(self.floors))
        if self.manual:
            assert delivery.ack() is False
        else:
            self.world.engine.answered([delivery], self.world.now)
        self.world.take()
        self.follow()
        assert (self.world.engine.flow.open_count, dict(self.floors)) == before

    @rule(seconds=st.sampled_from([0.3, 1.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        """Deadlines pass, commits fall due, refused parks are tried again."""
        self.world.now_s += seconds
        engine = self.world.engine
        if self.world.now_s >= engine.next_scan_s:
            engine.expire(self.in_flight(), self.world.now)
        engine.tick(self.world.now)
        self.world.take()
        self.follow()

    @rule(
        timeout_s=st.sampled_from([None, 0.5, 5.0]),
        budget=st.sampled_from([0, 2, None]),
        limits=st.sampled_from([LIMITED, FlowLimits(4, 1000, 1000), FlowLimits(1000, 1000, 6)]),
    )
    def reload(self, timeout_s: float | None, budget: int | None, limits: FlowLimits) -> None:
        """Settings change, whatever is going on."""
        if timeout_s is None and self.manual:
            return
        rules = replace(
            self.world.rules,
            consume_timeout_s=timeout_s,
            policy=RetryPolicy("1s", 1, "1s", budget, 0),
        )
        reloaded = Reloaded((rules,), limits, 0.5 if budget else 2.0, 3 if budget else 100)
        self.world.engine.reload(reloaded, self.world.now)
        self.world.take()
        self.follow()

    @precondition(lambda self: self.world.writes)
    @rule(data=st.data(), fate=st.sampled_from(["confirmed", "refused", "too large"]))
    def report(self, data: st.DataObject, fate: str) -> None:
        """A delivery report comes back."""
        write: PendingWrite = data.draw(st.sampled_from(self.world.writes))
        self.world.writes.remove(write)
        if fate == "confirmed":
            self.note_settled(write.delivery)
            self.world.engine.published((write,), self.world.now)
        else:
            self.world.engine.publish_failed(
                write, "no", too_large=fate == "too large", now=self.world.now
            )
        self.world.take()
        self.follow()

    def note_settled(self, delivery: TrackedDelivery) -> None:
        """Handled, confirmed or discarded: durable whatever happens to the assignment."""
        self.settled.add((delivery.partition, delivery.offset))

    @precondition(lambda self: self.commits)
    @rule(data=st.data(), error=st.sampled_from([None, "REBALANCE_IN_PROGRESS"]))
    def commit_answered(self, data: st.DataObject, error: str | None) -> None:
        """A commit is stored and confirmed, or refused."""
        position: CommitPosition = data.draw(st.sampled_from(self.commits))
        self.commits.remove(position)
        assignment = self.world.engine.assignments.get(("orders", position.partition))
        current = assignment is not None and assignment.epoch == position.epoch
        if error is None and current:
            self.stored[position.partition] = position.position
        self.world.engine.committed([(position, error)], self.world.now)
        self.world.take()
        self.follow()

    @precondition(lambda self: self.world.engine.state.handlers["bill"].lanes.holding)
    @rule(action=st.sampled_from(Action), wanted=st.sampled_from([(), (b"a",), (b"b",)]))
    def operate(self, action: Action, wanted: tuple[bytes, ...]) -> None:
        """An operator moves the heads of blocked lanes; what is discarded is settled by that."""
        before = self.open_records()
        order = LaneOrder(action, "bill", wanted, delay_s=3.0, reason="a test")
        answer = self.world.engine.lane_orders.carry_out(order, self.world.now)
        gone = before - self.open_records()
        assert len(gone) == (answer.done if action is Action.DISCARD else 0)
        self.settled |= gone
        self.world.take()
        self.follow()

    @rule(for_s=st.sampled_from([0.2, 3.0, inf]))
    def pause(self, for_s: float) -> None:
        """An operator pauses the handler, for a while or until further notice."""
        self.world.engine.pause("bill", self.world.now_s + for_s, "a test", self.world.now)
        self.world.take()
        self.follow()
        assert not self.startable()

    @rule(for_s=st.sampled_from([0.2, 3.0]))
    def hold(self, for_s: float) -> None:
        """The handler asks for a pause itself."""
        self.world.engine.hold("bill", for_s, "away", self.world.now)
        self.world.take()
        self.follow()
        assert not self.startable()

    @rule()
    def resume(self) -> None:
        """An operator resumes the handler, paused or not."""
        self.world.engine.resume("bill", self.world.now)
        self.world.take()
        self.follow()

    def open_records(self) -> set[Key]:
        """What is open of the partitions that are owned."""
        assigned = self.world.engine.assignments.values()
        return {(a.partition, offset) for a in assigned for offset in a.tracker.open}

    @rule(partition=st.integers(0, PARTITIONS - 1), lost=st.booleans())
    def rebalance(self, partition: int, lost: bool) -> None:
        """A partition leaves, with its floor committed or lost; or it comes back."""
        if partition not in self.owned:
            self.gain(partition)
            return
        key = TopicPartition("orders", partition)
        self.world.engine.stop([key])
        if not lost:
            for final in self.world.engine.final_positions([key]):
                self.stored[partition] = final.position
        self.world.engine.drop([key], lost=lost)
        self.owned.discard(partition)
        self.world.take()
        self.follow()

    def may_start(self) -> bool:
        """Whether a worker is free and finds something to do."""
        return bool(self.world.ready) and len(self.running) < 4

    def teardown(self) -> None:
        """In the end everything that is open can be handled: nothing is stranded."""
        world = self.world
        self.resume()
        for _ in range(200):
            while self.may_start():
                self.start()
            for delivery, run in self.running:
                if self.manual:
                    delivery.ack()
                    world.inbox.clear()
                if not delivery.closed:
                    self.note_settled(delivery)
                world.finish(delivery, delivery.outcome or ACKED)
                if run is not None:
                    self.go_on_with(run)
            self.running.clear()
            for write in world.writes:
                self.note_settled(write.delivery)
                world.engine.published((write,), world.now)
            world.writes.clear()
            self.time_passes(20.0)
            if not world.engine.flow.open_count:
                assert all(a.held == a.held_bytes == 0 for a in world.engine.assignments.values())
                return
        raise AssertionError(f"{world.engine.flow.open_count} records are stranded")

    # What must hold.

    @invariant()
    def committed_positions_pass_nothing_unsettled(self) -> None:
        """Invariants 1, 2 and 6: below a stored position everything delivered is settled."""
        pending = {(c.partition, c.position) for c in self.commits}
        for partition, position in (*self.stored.items(), *pending):
            missing = {
                (p, offset)
                for p, offset in self.delivered
                if p == partition and offset < position and (p, offset) not in self.settled
            }
            assert not missing

    @invariant()
    def floors_never_go_back(self) -> None:
        """Invariant 3."""
        for partition in self.owned:
            floor = self.world.floor(partition)
            assert floor >= self.floors[partition]
            self.floors[partition] = floor

    @invariant()
    def levels_match_the_open_records(self) -> None:
        """Invariant 7: counts and bytes are exact, and zero once nothing is owned."""
        trackers = [a.tracker for a in self.world.engine.assignments.values()]
        assert self.world.engine.flow.open_count == sum(len(t.open) for t in trackers)
        assert self.world.engine.flow.open_bytes == sum(5 * len(t.open) for t in trackers)
        for a in self.world.engine.assignments.values():
            assert 0 <= a.held <= len(a.tracker.open)
            assert a.held_bytes == 5 * a.held
            assert a.paused == (a.partition in self.paused)
        if not (self.world.engine.flow.open_count or self.world.held):
            assert not self.paused & self.owned

    @invariant()
    def nothing_may_start_in_a_pause(self) -> None:
        """What executors have not started has come back, until the later pause has ended."""
        handler = self.world.engine.state.handlers["bill"]
        both = max(handler.asked_until_s, handler.paused_until_s)
        assert handler.held_until_s == both
        if both > self.world.now_s:
            assert not self.startable()

    @invariant()
    def one_at_a_time_in_a_lane(self) -> None:
        """Invariant 8."""
        if self.ordering == "unordered":
            return
        assert len(self.lanes()) == len(set(self.lanes()))

    def lanes(self) -> list[tuple[str, int, bytes | int | None]]:
        """The lanes that are worked at."""
        return [d.lane_key(self.ordering == "key") for d in self.in_flight() if not d.closed]


class KeyedEngineMachine(EngineMachine):
    """The same in key order."""

    ordering = "key"


class PartitionedEngineMachine(EngineMachine):
    """The same in partition order."""

    ordering = "partition"


class ManualEngineMachine(EngineMachine):
    """The same with answers by hand."""

    manual = True


class BlockedUnorderedEngineMachine(EngineMachine):
    """Retry in place without order."""

    in_place = True


class BlockedKeyedEngineMachine(KeyedEngineMachine):
    """A failed record holds its key."""

    in_place = True


class BlockedPartitionedEngineMachine(PartitionedEngineMachine):
    """A failed record holds its partition."""

    in_place = True


class BlockedManualEngineMachine(BlockedKeyedEngineMachine):
    """A record that was answered with a retry holds its key."""

    manual = True


LIMITS = examples(80)


@pytest.mark.parametrize(
    "machine",
    [
        EngineMachine,
        KeyedEngineMachine,
        PartitionedEngineMachine,
        ManualEngineMachine,
        BlockedUnorderedEngineMachine,
        BlockedKeyedEngineMachine,
        BlockedPartitionedEngineMachine,
        BlockedManualEngineMachine,
    ],
    ids=[
        "unordered",
        "key",
        "partition",
        "manual",
        "unordered, in place",
        "key, in place",
        "partition, in place",
        "manual, in place",
    ],
)
def test_invariants_hold(machine: type[EngineMachine]) -> None:
    """No interleaving of reads, answers, deadlines, reports and rebalances breaks one."""
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(machine, settings=LIMITS)
