"""The user's code in a simulated worker: handlers that do what the plan says, and tell the watch.

A coroutine waits with `asyncio.sleep`, a plain function by pausing its strand. The value of a
record is its uid; how often it was started says which of its acts is next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent

from ackfloor import DeadLetter, Delivery, Discard, Pause, Retry
from tests.simulation.hub import FIRST_S, Hub, Killed
from tests.simulation.life import Life
from tests.simulation.outputs import outputs_of
from tests.simulation.plan import Act, HandlerPlan

if TYPE_CHECKING:
    from tests.simulation.watch import Watch

#: Longer than any run.
FOR_EVER_S = 1e6


class Odd(BaseException):
    """What code may raise that is no `Exception`."""


class Plain(Exception):
    """What fails a delivery by the policy."""


def exits(name: str) -> BaseException:
    """The exception of that name."""
    kinds: dict[str, BaseException] = {
        "SystemExit": SystemExit(0),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "GeneratorExit": GeneratorExit(),
        "CancelledError": asyncio.CancelledError(),
        "Odd": Odd("odd"),
    }
    return kinds[name]


def raised_by(act: Act, now_s: float) -> BaseException | None:
    """What an act raises at its end, so many seconds after the beginning."""
    match act.kind:
        case "down" if now_s < act.after_s:
            return Plain("the service is down")
        case "fail":
            return Plain("no")
        case "retry":
            return Retry(after=timedelta(seconds=act.after_s) if act.after_s else None)
        case "dead_letter":
            return DeadLetter("sick")
        case "discard":
            return Discard("not wanted")
        case "pause":
            return Pause(timedelta(seconds=act.after_s))
        case "exit":
            return exits(act.raises)
    return None


def in_process(value: int, delivery: Delivery) -> None:
    """A process handler, which has to be a function of a module: plays that of its process."""
    life: Life = getcurrent().life
    life.functions[delivery.assignment.handler.rules.name](value, delivery)


class Handlers:
    """The handlers of one worker process.

    Args:
        hub: time.
        life: the process.
        watch: who is told.
    """

    def __init__(self, hub: Hub, life: Life, watch: Watch) -> None:
        self._hub = hub
        self._life = life
        self._watch = watch

    def make(self, plan: HandlerPlan) -> Callable[..., Any]:
        """The function of one handler."""
        if plan.batch is not None:
            return self._batch_async(plan) if plan.kind == "async" else self._batch_plain(plan)
        return self._one_async(plan) if plan.kind == "async" else self._one_plain(plan)

    def _started(self, plan: HandlerPlan, delivery: Delivery) -> Act:
        """A handler begins, and publishes; returns what it is to do."""
        act = self._watch.started(self._life, delivery)
        uid = self._watch.uid_of(delivery)
        for output in outputs_of(plan, uid, self._watch.starts[uid], delivery.key):
            delivery.publish(output.topic, output.value, key=output.key, headers=output.headers)
        return act

    def _takes_s(self, act: Act) -> float:
        """How long an act runs; a dependency that is back answers at once."""
        back = act.kind == "down" and self._hub.now_s - FIRST_S >= act.after_s
        return 0.0 if back else act.takes_s

    # One record.

    def _one_async(self, plan: HandlerPlan) -> Callable[..., Any]:
        async def handle(value: int, delivery: Delivery) -> None:
            act = self._started(plan, delivery)
            try:
                await self._sleep(self._takes_s(act))
                if act.kind == "stubborn":
                    await self._stubborn(act.after_s)
                elif act.kind == "extend":
                    delivery.extend(timedelta(seconds=act.after_s))
                    await self._sleep(act.after_s * 0.9)
                elif act.kind == "hang" and not plan.manual:
                    await self._sleep(FOR_EVER_S)
                self._finish(plan, delivery, act)
            except BaseException as exc:
                self._watch.ended(self._life, delivery, exc)
                raise
            self._watch.ended(self._life, delivery, None)

        return handle

    def _one_plain(self, plan: HandlerPlan) -> Callable[..., Any]:
        def handle(value: int, delivery: Delivery) -> None:
            act = self._started(plan, delivery)
            try:
                self._hub.pause(self._takes_s(act))
                if act.kind == "extend":
                    delivery.extend(timedelta(seconds=act.after_s))
                    self._hub.pause(act.after_s * 0.9)
                elif act.kind == "stubborn":
                    self._hub.pause(act.after_s)
                elif act.kind == "hang" and not plan.manual:
                    self._hub.pause(FOR_EVER_S)
                self._finish(plan, delivery, act)
            except Killed:
                raise
            except BaseException as exc:
                self._watch.ended(self._life, delivery, exc)
                raise
            self._watch.ended(self._life, delivery, None)

        return handle

    async def _sleep(self, seconds: float) -> None:
        if seconds:
            await asyncio.sleep(seconds)

    async def _stubborn(self, seconds: float) -> None:
        """Go on for so long, whatever asks it to stop."""
        until_s = self._hub.now_s + seconds
        while self._hub.now_s < until_s:
            try:
                await asyncio.sleep(until_s - self._hub.now_s)
            except asyncio.CancelledError:
                continue

    def _finish(self, plan: HandlerPlan, delivery: Delivery, act: Act) -> None:
        if act.kind == "crash":
            self._life.die("in a handler")
            raise Killed
        exc = raised_by(act, self._hub.now_s - FIRST_S)
        if plan.manual:
            self._answer(delivery, act, exc)
        elif exc is not None:
            raise exc

    # By hand.

    def _answer(self, delivery: Delivery, act: Act, exc: BaseException | None) -> None:
        watch, life = self._watch, self._life
        match act.kind:
            case "silent" | "hang":
                return
            case "late" | "thread":
                # Somebody else answers, after the handler has returned.
                self._hub.after(act.after_s, lambda: watch.ack(life, delivery))
            case "twice":
                watch.ack(life, delivery)
                watch.ack(life, delivery)
            case "retry":
                after = timedelta(seconds=act.after_s) if act.after_s else None
                watch.answered(life, delivery, "retry", delivery.retry(after))
            case "dead_letter":
                watch.answered(life, delivery, "dead_letter", delivery.dead_letter("sick"))
            case "discard":
                watch.answered(life, delivery, "discard", delivery.discard("not wanted"))
            case _ if exc is not None:
                raise exc
            case _:
                watch.ack(life, delivery)

    # Batches.

    def _batch_async(self, plan: HandlerPlan) -> Callable[..., Any]:
        async def handle(items: list[int], deliveries: list[Delivery]) -> None:
            acts = [self._started(plan, d) for d in deliveries]
            try:
                await self._sleep(max(map(self._takes_s, acts)))
                wait_s = self._batch_wait_s(acts)
                await self._sleep(wait_s)
                self._finish_batch(deliveries, acts)
            except BaseException as exc:
                for delivery in deliveries:
                    self._watch.ended(self._life, delivery, exc)
                raise
            for delivery in deliveries:
                self._watch.ended(self._life, delivery, None)

        return handle

    def _batch_plain(self, plan: HandlerPlan) -> Callable[..., Any]:
        def handle(items: list[int], deliveries: list[Delivery]) -> None:
            acts = [self._started(plan, d) for d in deliveries]
            try:
                self._hub.pause(max(map(self._takes_s, acts)))
                self._hub.pause(self._batch_wait_s(acts))
                self._finish_batch(deliveries, acts)
            except Killed:
                raise
            except BaseException as exc:
                for delivery in deliveries:
                    self._watch.ended(self._life, delivery, exc)
                raise
            for delivery in deliveries:
                self._watch.ended(self._life, delivery, None)

        return handle

    @staticmethod
    def _batch_wait_s(acts: list[Act]) -> float:
        kinds = {act.kind for act in acts}
        if kinds & {"hang", "silent"}:
            return FOR_EVER_S
        return max((a.after_s for a in acts if a.kind in ("stubborn", "late")), default=0.0)

    def _finish_batch(self, deliveries: list[Delivery], acts: list[Act]) -> None:
        failed: BaseException | None = None
        for delivery, act in zip(deliveries, acts, strict=True):
            if act.kind == "crash":
                self._life.die("in a handler")
                raise Killed
            if act.kind in ("discard", "dead_letter", "retry", "twice", "thread"):
                self._answer(delivery, act, None)
            else:
                failed = failed or raised_by(act, self._hub.now_s - FIRST_S)
        if failed is not None:
            raise failed
