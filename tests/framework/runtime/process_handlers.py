"""Handlers for processes of their own, in a module that such a process can import."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from pydantic import BaseModel

from ackfloor import App, Delivery, Discard, Pause, current_delivery

if os.environ.get("PROCESS_TEST_BROKEN"):
    raise RuntimeError("this module can't be imported today")

publisher = App("publisher")
_kept: list[bytes] = []


class Order(BaseModel):
    """What a record is decoded to."""

    number: int


def note(folder: Path, name: str, line: object) -> None:
    """Leave a line in a file of the test's; lines of several processes don't mix."""
    with (folder / name).open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def do(value: str, delivery: Delivery) -> None:
    """Do what the record says: a verb, a folder, and what else the verb needs."""
    verb, folder, *rest = value.split()
    path = Path(folder)
    note(path, "begun", f"{os.getpid()} {delivery.offset} {delivery.attempt} {verb}")
    VERBS[verb](path, delivery, *rest)
    note(path, "ended", f"{os.getpid()} {delivery.offset} {delivery.attempt} {verb}")


def do_all(values: list[str], deliveries: list[Delivery]) -> None:
    """Do what each record of a batch says, one after the other."""
    folder = Path(values[0].split()[1])
    note(folder, "calls", " ".join(str(delivery.offset) for delivery in deliveries))
    for value, delivery in zip(values, deliveries, strict=True):
        do(value, delivery)


def nothing(_folder: Path, _delivery: Delivery, _number: str = "") -> None:
    """Return."""


def write_for_ever(folder: Path, delivery: Delivery) -> None:
    """Never return, and never stop to have effects."""
    while True:
        note(folder, "written", delivery.attempt)


def wait_for(folder: Path, _delivery: Delivery) -> None:
    """Return when the test says so."""
    while not (folder / "open").exists():
        time.sleep(0.005)


def segfault(_folder: Path, _delivery: Delivery) -> None:
    """What broken native code does."""
    ctypes.string_at(0)


def leave(_folder: Path, _delivery: Delivery) -> None:
    """An end that looks like an orderly one."""
    os._exit(0)


def take_memory(_folder: Path, _delivery: Delivery, mebibytes: str) -> None:
    """Hold so much, and stay."""
    held = b"x" * (int(mebibytes) << 20)
    while held:
        time.sleep(0.01)


def leak(_folder: Path, _delivery: Delivery, mebibytes: str) -> None:
    """Hold so much for good."""
    _kept.append(b"x" * (int(mebibytes) << 20))


def extend(_folder: Path, delivery: Delivery) -> None:
    """Take longer than allowed, by permission."""
    for _ in range(4):
        assert delivery.extend("60s")
        time.sleep(0.6)


def ignore_signals(_folder: Path, _delivery: Delivery) -> None:
    """What a terminal or an init system sends to everybody."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
    time.sleep(0.05)


def look_around(folder: Path, delivery: Delivery) -> None:
    """What is known here."""
    current = current_delivery()
    assert current is delivery
    sockets = _sockets() if Path("/proc").exists() else [""]
    logging.getLogger("shop").warning("looking around")
    seen = (delivery.topic, delivery.key, list(delivery.headers), delivery.attempt, len(sockets))
    note(folder, "seen", repr(seen))


def _sockets() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        # Another thread may close a file between two looks.
        with suppress(FileNotFoundError):
            found.append(str(entry.readlink()))
    return [link for link in found if link.startswith("socket:")]


def rest(folder: Path, delivery: Delivery) -> None:
    """Ask for a pause, the first time."""
    asked = folder / f"rested-{delivery.offset}"
    if not asked.exists():
        asked.touch()
        raise Pause("20ms")


def publish(_folder: Path, _delivery: Delivery) -> None:
    """What is not possible here."""
    publisher.publish_sync("elsewhere", b"x")


def publish_async(_folder: Path, _delivery: Delivery) -> None:
    """The same, without anybody to wait for it."""
    publisher.publish("elsewhere", b"x")  # type: ignore[unused-coroutine]


def fail(_folder: Path, _delivery: Delivery) -> None:
    """Raise an error with a place in user code."""
    raise LookupError("no such account")


def exit_until(_folder: Path, delivery: Delivery, attempt: str) -> None:
    """End the process, the first times."""
    if delivery.attempt <= int(attempt):
        sys.exit(0)


def interrupt_until(_folder: Path, delivery: Delivery, attempt: str) -> None:
    """As if somebody had pressed Ctrl-C, the first times."""
    if delivery.attempt <= int(attempt):
        raise KeyboardInterrupt


def discard(_folder: Path, _delivery: Delivery) -> None:
    """Say that nothing is to be done."""
    raise Discard("a test order")


def answer(folder: Path, delivery: Delivery) -> None:
    """Answer by hand, and tell whether that counts."""
    note(folder, "answered", f"{delivery.offset} {delivery.ack()}")


def answer_later(folder: Path, delivery: Delivery) -> None:
    """Answer by hand, from a thread, when the test says so."""

    def wait() -> None:
        wait_for(folder, delivery)
        answer(folder, delivery)

    threading.Thread(target=wait, daemon=True).start()


def name_it(folder: Path, delivery: Delivery) -> None:
    """Note the record's key, and fail the first time."""
    note(folder, "keys", f"{delivery.offset} {delivery.idempotency_key}")
    if delivery.attempt == 1:
        raise ValueError("again")


VERBS = {
    function.__name__: function
    for function in (
        nothing, write_for_ever, wait_for, segfault, leave, take_memory, leak, extend,
        ignore_signals, look_around, rest, publish, publish_async, fail, exit_until,
        interrupt_until, discard, answer, answer_later, name_it,
    )
}  # fmt: skip


def take_order(order: Order) -> None:
    """Takes what decodes."""


def take_orders(orders: list[Order], deliveries: list[Delivery]) -> None:
    """Takes those that decode."""
    assert [order.number for order in orders] == [delivery.offset for delivery in deliveries]


class State:
    """What the lifespan yields."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = os.getpid()


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[State]:
    """Notes who enters and leaves it."""
    state = State(Path(os.environ["PROCESS_TEST_FOLDER"]))
    note(state.folder, "entered", f"{os.getpid()} {app.group}")
    yield state
    note(state.folder, "left", os.getpid())


class Fragile(State):
    """What a lifespan yields that can be made to end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.loop = asyncio.get_running_loop()
        self.fails = asyncio.Event()


@asynccontextmanager
async def fragile(_: App) -> AsyncIterator[Fragile]:
    """Ends when a task of its own fails, as a task group does."""
    state = Fragile(Path(os.environ["PROCESS_TEST_FOLDER"]))

    async def fail() -> None:
        await state.fails.wait()
        raise ConnectionResetError("database away")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(fail())
        note(state.folder, "entered", os.getpid())
        yield state
        task.cancel()


def end_state(value: str, state: Fragile) -> None:
    """Makes the lifespan of its process end, where it is told to."""
    note(state.folder, "used", f"{os.getpid()} {value}")
    if value == "end":
        state.loop.call_soon_threadsafe(state.fails.set)


def use_state(value: str, state: State) -> None:
    """Takes the state of its own process."""
    note(state.folder, "used", f"{os.getpid()} {state.pid} {value}")


def double(value: str) -> str:
    """A result."""
    return 2 * value


def fail_one(value: str) -> None:
    """Fail, with what must not be logged."""
    raise ValueError(f"no card 4242-4242: {value}")


def fail_all(values: list[str]) -> None:
    """Fail with a batch."""
    raise ValueError(f"no card 4242-4242: {values[0]}")
