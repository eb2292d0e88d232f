"""Channel: the pipe between a worker process and its supervisor.

Worker to supervisor: frames of one kind byte and a body. The other direction carries nothing;
what matters is its end: a worker that reads end-of-file has lost its supervisor and drains, so
that no worker outlives a killed `run`.
"""

from __future__ import annotations

import json
import socket
from enum import Enum
from multiprocessing.connection import Connection


class Kind(Enum):
    """What a frame is about."""

    #: A monitoring report; the body is the plugin's own.
    REPORT = b"R"
    #: JSON: {"status": "running", ...}.
    STATUS = b"S"


def pair() -> tuple[Connection, socket.socket]:
    """The supervisor's end, and the worker's as a socket whose descriptor is handed down."""
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    return Connection(ours.detach()), theirs


def send(connection: Connection, kind: Kind, body: bytes) -> bool:
    """Send one frame; False where the other side is gone."""
    try:
        connection.send_bytes(kind.value + body)
    except OSError:
        return False
    return True


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
