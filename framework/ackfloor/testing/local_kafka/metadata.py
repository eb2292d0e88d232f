"""Asking one broker which brokers it knows: Kafka's Metadata request, version 7, by hand.

A client library would retry, log and start threads while a broker comes up, and only
`ackfloor.kafka` may load one. This asks once, in a millisecond, and raises OSError for anything
but an answer. It speaks plaintext only.
"""

from __future__ import annotations

import socket
import struct

_METADATA, _VERSION = 3, 7
_NO_TOPICS = struct.pack(">ib", 0, 0)  # an empty list of topics; create none
_LARGEST_ANSWER = 1 << 20


def known_brokers(host: str, port: int, timeout_s: float = 1.0) -> frozenset[int]:
    """The ids of the live brokers that the one at `host:port` knows.

    Raises:
        OSError: it does not answer within `timeout_s` per step, or with something else.
    """
    header = struct.pack(">hhih", _METADATA, _VERSION, 1, -1)
    request = header + _NO_TOPICS
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 12 <= size <= _LARGEST_ANSWER:
            raise OSError(f"{host}:{port} does not speak Kafka")
        return _broker_ids(_exactly(connection, size))


def _broker_ids(answer: bytes) -> frozenset[int]:
    try:
        (count,) = struct.unpack_from(">i", answer, 8)  # after correlation id and throttle time
        ids, at = [], 12
        for _ in range(count):
            node, host_length = struct.unpack_from(">ih", answer, at)
            at += 6 + host_length + 4
            (rack_length,) = struct.unpack_from(">h", answer, at)
            at += 2 + max(rack_length, 0)
            ids.append(node)
    except struct.error:
        raise OSError("a broken answer to the Metadata request") from None
    return frozenset(ids)


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise OSError("the broker closed the connection")
        received += part
    return received
