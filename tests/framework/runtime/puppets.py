"""Handlers in processes of their own that do what a script in the test's process says.

The contract of the executors is told in scripts: closures that note what they see and wait at
gates. A process handler can't be a closure. So the one here is a puppet: it asks the test's
process, over a socket, what to do with its delivery, and does that. The script sees the worker's
own delivery, and waits in a thread of the test's process while the puppet waits for it.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from ackfloor import Delivery

#: Not named as a setting is: tests of settings in the same process would be refused.
_ADDRESS = "TEST_PUPPETS"
_connection: list[Connection] = []

Play = Callable[[Delivery], None]
#: Source topic -> the script that its deliveries play.
_plays: dict[str, Play] = {}
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


def play(topic: str, what: Play) -> None:
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
            where: tuple[str, int, int] = connection.recv()
            raised: Any = None
            try:
                _plays[where[0].partition("--")[0]](_found(where))
            except BaseException as exc:  # noqa: BLE001 -- it is raised in the puppet
                raised = pickle.dumps(exc)
            connection.send(raised)


def _found(where: tuple[str, int, int]) -> Delivery:
    for stage in _stages:
        for delivery in stage():
            if (delivery.topic, delivery.partition, delivery.offset) == where:
                return delivery
    raise LookupError(f"no worker runs a delivery of {where}")
