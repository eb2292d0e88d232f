"""Channel: the pipe between a worker process and its supervisor.

Worker to supervisor: frames of one kind byte and a body. The other direction carries nothing;
what matters is its end: a worker that reads end-of-file has lost its supervisor and drains, so
that no worker outlives a killed `run`.

Reports come from the thread that owns the consumer. A supervisor that does not read (it is
stopped, or busy) must not make that thread wait, so a report finds room or is left out: the next
one says all it would have said.
"""

from __future__ import annotations

import json
import select
import socket
from enum import Enum
from multiprocessing.connection import Connection


class Kind(Enum):
    """What a frame is about."""

    #: A monitoring report; the body is the plugin's own.
    REPORT = b"R"
    #: JSON: {"status": "running", ...}.
    STATUS = b"S"


#: Bytes asked for on the way to the supervisor; the system may grant less.
BUFFER_BYTES = 1 << 20


def pair() -> tuple[Connection, socket.socket]:
    """The supervisor's end, and the worker's as a socket whose descriptor is handed down."""
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return Connection(ours.detach()), theirs


def send(connection: Connection, kind: Kind, body: bytes) -> bool:
    """Send one frame; False where the other side is gone."""
    try:
        connection.send_bytes(kind.value + body)
    except OSError:
        return False
    return True


def send_report(connection: Connection, body: bytes) -> bool:
    """Send a report; False where there is no room for it now, or nobody to read it."""
    room = select.poll()
    room.register(connection, select.POLLOUT)
    # Writable means that most of the buffer is free, not that one byte is.
    writable = any(event & select.POLLOUT for _, event in room.poll(0))
    return writable and send(connection, Kind.REPORT, body)


def send_status(connection: Connection, **status: object) -> bool:
    """Tell the supervisor what the worker is doing."""
    return send(connection, Kind.STATUS, json.dumps(status).encode())


def receive(connection: Connection) -> tuple[Kind, bytes]:
    """Read one frame.

    Raises:
        EOFError: the other side is gone.
        OSError: likewise.
    """
    frame = connection.recv_bytes()
    return Kind(frame[:1]), frame[1:]
