"""Handlers in processes of their own that do what a script in the test's process says.

The contract of the executors is told in scripts: closures that note what they see and wait at
gates. A process handler can't be a closure. So the one here is a puppet: it asks the test's
process, over a socket, what to do with its delivery, and does that. The script sees the worker's
own delivery, and waits in a thread of the test's process while the puppet waits for it.

A batch is played with strings: what the script calls on a delivery is called on the one that the
puppet has, and the script gets what that returned.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from ackfloor import Delivery, current_delivery

#: Not named as a setting is: tests of settings in the same process would be refused.
_ADDRESS = "TEST_PUPPETS"
_connection: list[Connection] = []

#: Source topic -> the script that its deliveries play.
_plays: dict[str, Callable[..., None]] = {}
#: What finds the worker's own deliveries.
_stages: list[Callable[[], Iterator[Delivery]]] = []


def puppet(delivery: Delivery) -> None:
    """The handler: plays what it is told."""
    if not _connection:
        _connection.append(Client(os.environ[_ADDRESS], "AF_UNIX"))
    _connection[0].send((delivery.topic, delivery.partition, delivery.offset))
    raised = _connection[0].recv()
    if raised is not None:
        raise pickle.loads(raised)


def loose(deliveries: list[Delivery]) -> None:
    """The same where values are not decoded."""
    puppets([], deliveries)


class Stringed:
    """A delivery of a batch as its script has it."""

    def __init__(self, connection: Connection, index: int, told: Mapping[str, Any]) -> None:
        self._connection = connection
        self._index = index
        self.__dict__.update(told)

    def _pull(self, method: str, *args: Any) -> Any:
        self._connection.send((self._index, method, args))
        return self._connection.recv()

    def ack(self) -> bool:
        """See `Delivery.ack`."""
        return bool(self._pull("ack"))

    def retry(self, *args: Any) -> bool:
        """See `Delivery.retry`."""
        return bool(self._pull("retry", *args))

    def dead_letter(self, reason: str) -> bool:
        """See `Delivery.dead_letter`."""
        return bool(self._pull("dead_letter", reason))

    def discard(self, reason: str) -> bool:
        """See `Delivery.discard`."""
        return bool(self._pull("discard", reason))

    def extend(self, by: str) -> bool:
        """See `Delivery.extend`."""
        return bool(self._pull("extend", by))

    @property
    def deadline_s(self) -> float | None:
        """See `Delivery.deadline_s`."""
        said: float | None = self._pull("deadline_s")
        return said


def puppets(items: list[str], deliveries: list[Delivery]) -> None:
    """The handler of batches: does what is asked of its deliveries until the play is over."""
    assert current_delivery() is None
    if not _connection:
        _connection.append(Client(os.environ[_ADDRESS], "AF_UNIX"))
    connection = _connection[0]
    names = ("topic", "partition", "offset", "attempt", "value")
    told = [{name: getattr(delivery, name) for name in names} for delivery in deliveries]
    connection.send((deliveries[0].topic, items, told))
    while True:
        index, what, args = connection.recv()
        if index is None:
            if args is not None:
                raise pickle.loads(args)
            return
        said = getattr(deliveries[index], what)
        connection.send(said(*args) if callable(said) else said)


def play(topic: str, what: Callable[..., None]) -> None:
    """Have the puppets of a topic play something, in the test's process."""
    if _ADDRESS not in os.environ:
        listener = Listener(None, "AF_UNIX", backlog=64)
        os.environ[_ADDRESS] = str(listener.address)
        threading.Thread(target=_accept, args=(listener,), daemon=True).start()
    _plays[topic] = what


def enter(stage: Callable[[], Iterator[Delivery]]) -> None:
    """A worker runs: where its deliveries are found."""
    _stages.append(stage)


def leave(stage: Callable[[], Iterator[Delivery]]) -> None:
    """It has ended."""
    _stages.remove(stage)


def _accept(listener: Listener) -> None:
    while True:
        connection = listener.accept()
        threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: Connection) -> None:
    """Play for one puppet until it is gone."""
    # A puppet may be killed at any moment.
    with suppress(EOFError, OSError):
        while True:
            topic, *rest = connection.recv()
            what = _plays[topic.partition("--")[0]]
            if isinstance(rest[0], list):
                items, told = rest
                stringed = [Stringed(connection, n, one) for n, one in enumerate(told)]
                connection.send((None, "", _played(what, items, stringed)))
            else:
                partition, offset = rest
                connection.send(_played(_on_one, what, (topic, partition, offset)))


def _played(what: Callable[..., None], *args: Any) -> bytes | None:
    """What a script raised; it is raised in the puppet."""
    try:
        what(*args)
    except BaseException as exc:  # noqa: BLE001
        return pickle.dumps(exc)
    return None


def _on_one(what: Callable[[Delivery], None], where: tuple[str, int, int]) -> None:
    what(found(where))


def found(where: tuple[str, int, int]) -> Delivery:
    """The worker's own delivery."""
    # Scripts run in threads of their own, while workers come and go.
    for stage in tuple(_stages):
        for delivery in stage():
            if (delivery.topic, delivery.partition, delivery.offset) == where:
                return delivery
    raise LookupError(f"no worker runs a delivery of {where}")
