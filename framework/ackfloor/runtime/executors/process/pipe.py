"""Pipe: frames between a worker and one handler process, over a pair of connected sockets.

A frame is its length in four bytes and that many bytes. The worker's end never blocks: what a
process does not read waits here, so that one that is stuck holds up none of the others. The
process's end blocks, and reads in a thread of its own.

What the worker says is pickled. What the process says is JSON: code that is let run in a process of
its own because it may do harm must not choose what the worker unpickles.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

_LENGTH = struct.Struct("!I")
_CHUNK = 1 << 18
#: Bytes of what a process may say at once; outcomes are capped far below that.
_MOST_SAID = 1 << 26


class PipeEnd:
    """The worker's end.

    Attributes:
        over: the other end was closed, and everything that came before was taken.
    """

    __slots__ = ("_in", "_out", "over", "socket")

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self.over = False
        self._in = bytearray()
        self._out = bytearray()

    def send(self, body: bytes) -> None:
        """Send a frame, now or as soon as there is room."""
        self._out += _LENGTH.pack(len(body)) + body
        self.flush()

    def flush(self) -> None:
        """Write as much as there is room for."""
        try:
            while self._out:
                del self._out[: self.socket.send(memoryview(bytes(self._out[:_CHUNK])))]
        except BlockingIOError:
            return
        except OSError:
            # It has died, which `take` finds out.
            self._out.clear()

    def unsent(self) -> int:
        """Bytes that wait for room."""
        return len(self._out)

    def take(self) -> Iterator[dict[str, Any]]:
        """What has arrived.

        Raises:
            ValueError: it is no frame of ours.
        """
        while not self.over:
            try:
                data = self.socket.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.over = not data
            self._in += data
        while len(self._in) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._in)[0]
            if end > _MOST_SAID:
                raise ValueError(f"a frame of {end} bytes")
            if len(self._in) < end:
                return
            body = bytes(self._in[_LENGTH.size : end])
            del self._in[:end]
            yield json.loads(body)

    def close(self) -> None:
        """Close this end."""
        self.over = True
        self.socket.close()


def receive(end: socket.socket) -> bytes | None:
    """The process's end: the next frame, None at the end."""
    head = _exactly(end, _LENGTH.size)
    return None if head is None else _exactly(end, _LENGTH.unpack(head)[0])


def _exactly(end: socket.socket, count: int) -> bytes | None:
    body = bytearray(count)
    view, at = memoryview(body), 0
    while at < count:
        try:
            got = end.recv_into(view[at:])
        except OSError:
            return None
        if not got:
            return None
        at += got
    return bytes(body)


def send(end: socket.socket, message: dict[str, Any]) -> None:
    """The process's end: send one frame."""
    body = json.dumps(message).encode()
    end.sendall(_LENGTH.pack(len(body)) + body)
