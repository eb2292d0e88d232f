"""Channel: the pipe between a worker process and its supervisor.

Frames of one kind byte and a body, both ways. A worker that reads end-of-file has lost its
supervisor and drains, so that no worker outlives a killed `run`.

The owner thread sends the reports. A supervisor that does not read (it is stopped, or busy) must
not make that thread wait, so a report that finds no room is dropped: the next one holds all of it.
The same holds the other way: a stopped worker must not block the supervisor of the others, so a
frame that finds no room is sent again later.

In a worker a separate thread reads (`listen`), from before the app is imported, and puts frames
into a mailbox: the owner thread takes them out at its next turn. A frame of unknown kind comes from
a supervisor of another version; it is logged and ignored.
"""

from __future__ import annotations

import json
import logging
import select
import socket
from collections import deque
from enum import Enum
from multiprocessing.connection import Connection

log = logging.getLogger("ackfloor.channel")


class Kind(Enum):
    """What a frame is about."""

    # To the supervisor.

    #: A monitoring report; the body is the plugin's own.
    REPORT = b"R"
    #: JSON: {"status": "running", ...}.
    STATUS = b"S"
    #: JSON: whether it accepted the settings that were sent.
    SETTINGS_TAKEN = b"T"
    #: JSON: records that are no longer suspects, [[topic, partition, offset], ...].
    OVER = b"O"
    #: JSON: what it did about waiting records.
    RETRY_NOW_DONE = b"D"
    #: JSON: what it did about blocked lanes.
    LANES_DONE = b"M"
    #: JSON: what became of an operator's order on circuit breakers.
    BREAKERS_TAKEN = b"B"
    #: JSON: what became of an operator's order to pause or resume handlers.
    PAUSES_TAKEN = b"K"
    #: JSON: the circuit breakers that are open, and not forced by an operator.
    BREAKERS_OPEN = b"N"

    # To the worker.

    #: JSON: settings that changed while it runs.
    SETTINGS = b"C"
    #: JSON: the records that were in flight when workers died; see `crashes`.
    SUSPECTS = b"P"
    #: JSON: waiting records of a retry topic that are to be due, or dead-lettered.
    RETRY_NOW = b"E"
    #: JSON: what an operator wants done about blocked lanes.
    LANES = b"L"
    #: JSON: the circuit breakers that operators force, all of them.
    BREAKERS = b"F"
    #: JSON: the handlers that operators have paused, all of them.
    PAUSES = b"H"
    #: JSON: the circuit breakers that were open in the worker that this one replaces.
    RESUME = b"A"


#: Frames that a worker has received and not handled yet.
Mailbox = deque[tuple[Kind, bytes]]


#: Socket buffer asked for, in each direction; the system may grant less.
BUFFER_BYTES = 1 << 20


def pair() -> tuple[Connection, socket.socket]:
    """The supervisor's end, and the worker's as a socket whose descriptor is handed down."""
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return Connection(ours.detach()), theirs


def send(connection: Connection, kind: Kind, body: bytes) -> bool:
    """Send one frame; False where the other side is gone."""
    try:
        connection.send_bytes(kind.value + body)
    except OSError:
        return False
    return True


def send_if_room(connection: Connection, kind: Kind, body: bytes) -> bool:
    """Send one frame; False where the pipe is full, or the other side is gone."""
    room = select.poll()
    try:
        room.register(connection, select.POLLOUT)
    except OSError:
        return False
    # Writable means that most of the buffer is free, not that one byte is.
    writable = any(event & select.POLLOUT for _, event in room.poll(0))
    return writable and send(connection, kind, body)


def send_report(connection: Connection, body: bytes) -> bool:
    """Send a report; False where the pipe is full, or the supervisor is gone."""
    return send_if_room(connection, Kind.REPORT, body)


def send_status(connection: Connection, **status: object) -> bool:
    """Send the supervisor the worker's status."""
    return send(connection, Kind.STATUS, json.dumps(status).encode())


def receive(connection: Connection) -> tuple[Kind, bytes] | None:
    """Read one frame; None where this version does not know its kind.

    Raises:
        EOFError: the other side is gone.
        OSError: likewise.
    """
    frame = connection.recv_bytes()
    try:
        return Kind(frame[:1]), frame[1:]
    except ValueError:
        log.warning("ignored a frame of unknown kind %r", frame[:1])
        return None


def listen(connection: Connection, mail: Mailbox) -> None:
    """Put the supervisor's frames into the mailbox; returns when the supervisor is gone."""
    while True:
        try:
            frame = receive(connection)
        except (EOFError, OSError):
            return
        if frame is not None:
            mail.append(frame)
