"""Faults: what goes wrong in a run, and how it ends.

Each is named in `plan.FAULTS`. What lasts is undone after its time, and all of it before the world
is given time to come to rest. Each notes in which states it found the run's records: the table of
the docs comes from that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ackfloor.core.messages.lane_order import Action, LaneOrder
from ackfloor.core.parking.topic_names import dlq_topic, parse_topic
from tests.simulation.outputs import FEW, TOPICS
from tests.simulation.plan import Fault
from tests.simulation.process import GROUP, Process, topic_of
from tests.simulation.watch import Place

if TYPE_CHECKING:
    from tests.simulation.world import World

LANE_ACTIONS = (Action.RETRY, Action.DELAY, Action.DEAD_LETTER, Action.PARK, Action.DISCARD)
#: What a share of is set while a fault lasts: attribute of the weather, kind of request.
_SHARES = {
    "commits_refused": ("refuse", "commit"),
    "commits_lost": ("lose_request", "commit"),
    "commit_answers_lost": ("lose_answer", "commit"),
    "publishes_refused": ("refuse", "publish"),
    "publishes_lost": ("lose_request", "publish"),
    "publish_answers_lost": ("lose_answer", "publish"),
}


class FaultMaker:
    """Makes the faults of a plan.

    Attributes:
        seen: (fault, state of a record) that came together.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._undo: dict[Fault, Callable[[], None]] = {}
        self.seen: set[tuple[str, str]] = set()

    def begin(self, fault: Fault) -> None:
        """A fault comes."""
        world = self._world
        world.hub.note(f"fault {fault.kind}")
        self.seen.update((fault.kind, state) for state in world.watch.states())
        if fault.kind in _SHARES:
            undo: Callable[[], None] | None = self._share(fault)
        else:
            undo = getattr(self, f"_{fault.kind}")(fault)
        if undo is not None:
            self._undo[fault] = undo
            world.hub.after(fault.lasts_s, lambda: self._end(fault))
        world.news()

    def _end(self, fault: Fault) -> None:
        undo = self._undo.pop(fault, None)
        if undo is not None:
            self._world.hub.note(f"end of {fault.kind}")
            undo()
            self._world.news()

    def end_all(self) -> None:
        """Undo whatever lasts."""
        for fault in list(self._undo):
            self._end(fault)

    def _share(self, fault: Fault) -> Callable[[], None]:
        attribute, kind = _SHARES[fault.kind]
        shares: dict[str, float] = getattr(self._world.network.weather, attribute)
        shares[kind] = fault.share
        return lambda: _ignore(shares.pop(kind, None))

    def _chosen(self, fault: Fault) -> Process | None:
        alive = self._world.alive()
        return alive[fault.number % len(alive)] if alive else None

    # Workers.

    def _rebalance(self, fault: Fault) -> None:
        self._world.broker.rebalance(GROUP)

    def _join(self, fault: Fault) -> Callable[[], None]:
        self._world.wanted += 1
        self._world.spawn()
        return lambda: self._leave(fault)

    def _leave(self, fault: Fault) -> None:
        world, process = self._world, self._chosen(fault)
        world.wanted = max(1, world.wanted - 1)
        if process is not None:
            process.stop()
            if fault.number > 9:
                # A second signal: at once.
                world.hub.after(0.3, process.stop)

    def _expel(self, fault: Fault) -> None:
        process = self._chosen(fault)
        if process is not None:
            process.source.outlive_session()

    def _freeze(self, fault: Fault) -> None:
        process = self._chosen(fault)
        if process is not None:
            process.freeze(fault.lasts_s, owner_only=False)

    def _freeze_owner(self, fault: Fault) -> None:
        process = self._chosen(fault)
        if process is not None:
            process.freeze(fault.lasts_s, owner_only=True)

    def _crash(self, fault: Fault) -> None:
        process = self._chosen(fault)
        if process is not None:
            process.life.die("by SIGKILL")

    def _crash_at_call(self, fault: Fault) -> None:
        process = self._chosen(fault)
        if process is not None:
            process.life.dies_in = 1 + fault.number * 3

    def _silence(self, fault: Fault) -> Callable[[], None] | None:
        """The group's coordinator is silent towards one worker, and where transactions go is slow.

        In some the session is over before it is heard again: others get the partitions.
        """
        process, network = self._chosen(fault), self._world.network
        if process is None:
            return None
        network.weather.late_s = 3.0
        silent_s, over = fault.lasts_s * 0.4, list[bool]()

        def begin() -> None:
            if over:
                return
            process.source.coordinator_is_silent = True
            self._world.news()
            if fault.number % 3 == 0:
                self._world.hub.after(silent_s / 2, process.session_over)

        def undo() -> None:
            over.append(True)
            process.source.coordinator_is_silent = False
            network.weather.late_s = 0.0

        # Transactions are under way when it begins.
        self._world.hub.after(fault.lasts_s - silent_s, begin)
        return undo

    # The network and the broker.

    def _aborts(self, fault: Fault) -> Callable[[], None]:
        weather = self._world.network.weather
        weather.abort = fault.share
        return lambda: setattr(weather, "abort", 0.0)

    def _unclear(self, fault: Fault) -> Callable[[], None]:
        weather = self._world.network.weather
        weather.unclear_s = fault.lasts_s
        return lambda: setattr(weather, "unclear_s", 0.0)

    def _slow(self, fault: Fault) -> Callable[[], None]:
        weather = self._world.network.weather
        weather.slow_s = 0.3 * fault.share
        return lambda: setattr(weather, "slow_s", 0.0)

    def _tier(self, fault: Fault) -> str:
        """A topic that records are parked in."""
        targets = sorted(t for t in self._world.broker.topics if parse_topic(t))
        return targets[fault.number % len(targets)]

    def _tier_forbidden(self, fault: Fault) -> Callable[[], None]:
        broker, tier = self._world.broker, self._tier(fault)
        broker.fail_publish(tier, "TOPIC_AUTHORIZATION_FAILED")
        return broker.heal

    def _too_small(self, fault: Fault) -> Callable[[], None]:
        broker, tier = self._world.broker, self._tier(fault)
        broker.limit_size(tier, 80)
        return lambda: broker.limit_size(tier, None)

    def _dlq_missing(self, fault: Fault) -> Callable[[], None]:
        broker = self._world.broker
        dlq = dlq_topic(topic_of(fault.number % len(self._world.plan.handlers)), GROUP)
        broker.fail_publish(dlq, "UNKNOWN_TOPIC_OR_PART")
        return broker.heal

    def _output_forbidden(self, fault: Fault) -> Callable[[], None]:
        broker = self._world.broker
        broker.fail_publish(TOPICS[fault.number % len(TOPICS)], "TOPIC_AUTHORIZATION_FAILED")
        return broker.heal

    def _output_too_small(self, fault: Fault) -> Callable[[], None]:
        broker, topic = self._world.broker, TOPICS[fault.number % len(TOPICS)]
        broker.limit_size(topic, FEW)
        return lambda: broker.limit_size(topic, None)

    # Logs.

    def _place(self, fault: Fault) -> tuple[str, int]:
        plan = self._world.plan
        return topic_of(fault.number % len(plan.handlers)), fault.number % plan.partitions

    def _retention(self, fault: Fault) -> None:
        world = self._world
        topic, partition = self._place(fault)
        log = world.broker.log(topic, partition)
        self._trim(topic, partition, log.start + (log.end - log.start) // 2)

    def _trim(self, topic: str, partition: int, start: int) -> None:
        world = self._world
        for offset in range(world.broker.log(topic, partition).start, start):
            world.watch.removed(Place(topic, partition, offset), by="retention")
        world.broker.trim(topic, partition, start)

    def _retry_retention(self, fault: Fault) -> Callable[[], None] | None:
        """A retry topic of a quarantining handler can't be read for a while, and loses records."""
        world = self._world
        topics = sorted(world.quarantined_topics)
        if not topics:
            return None
        topic, unread = topics[fault.number % len(topics)], world.network.weather.unread
        unread.add(topic)

        def undo() -> None:
            unread.discard(topic)
            for partition in range(world.plan.partitions):
                self._trim_unread(topic, partition, fault.number % 2)

        return undo

    def _trim_unread(self, topic: str, partition: int, more: int) -> None:
        """Half of what its owner has not read is gone, and all before that.

        Nothing that was written so lately that its writer may not know it: no retention is so
        short.
        """
        world = self._world
        log = world.broker.log(topic, partition)
        owners = [p for p in world.processes if p.life.alive and p.source.reads(topic, partition)]
        positions = [p.source.positions()[topic, partition] for p in owners]
        position = max(log.start, *positions) if positions else log.start
        start = position + (log.end - position + more) // 2
        self._trim(topic, partition, world.watch.known_below(topic, partition, start))

    def _compaction(self, fault: Fault) -> None:
        world = self._world
        topic, partition = self._place(fault)
        log = world.broker.log(topic, partition)
        for offset in range(log.start + fault.number % 3, log.end - 1, 3):
            if world.broker.compact(topic, partition, offset):
                world.watch.removed(Place(topic, partition, offset), by="compaction")

    def _aborted_records(self, fault: Fault) -> None:
        topic, partition = self._place(fault)
        self._world.broker.skip_offsets(topic, partition, 1 + fault.number)

    # The clock, the operator.

    def _wall_back(self, fault: Fault) -> None:
        self._world.hub.wall_offset_s -= 10.0 * (1 + fault.number)

    def _wall_forward(self, fault: Fault) -> None:
        self._world.hub.wall_offset_s += 10.0 * (1 + fault.number)

    def _reload(self, fault: Fault) -> None:
        world = self._world
        handlers = {
            f"h{number}": {
                "concurrency": 1 + fault.number % 5,
                "consume_timeout": f"{plan.timeout_s * (0.5 if fault.number % 2 else 1.5)}s",
            }
            for number, plan in enumerate(world.plan.handlers)
        }
        world.settings = {"handlers": handlers}
        for process in world.alive():
            process.reload()

    def _lane_order(self, fault: Fault) -> None:
        action = LANE_ACTIONS[fault.number % len(LANE_ACTIONS)]
        for number in range(len(self._world.plan.handlers)):
            order = LaneOrder(
                action,
                f"h{number}",
                delay_s=0.5 * fault.number,
                with_behind=(None, True, False)[fault.number % 3],
                reason="a test",
            )
            for process in self._world.alive():
                process.operate(order)

    def free_held(self) -> None:
        """An operator frees the keys that are held."""
        for number, handler in enumerate(self._world.plan.handlers):
            if handler.after_dead_letter == "hold":
                for process in self._world.alive():
                    process.operate(LaneOrder(Action.RETRY, f"h{number}"))


def _ignore(_: object) -> None:
    """What was undone is of no interest."""
