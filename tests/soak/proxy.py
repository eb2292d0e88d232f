"""A loopback proxy in front of each broker: delays, cuts, half-closes and holds connections.

It can also hold only the connections through which members talk to their group's coordinator: those
that have carried a heartbeat.

All of it runs on one event loop on a thread of its own; the methods may be called from any other.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ackfloor.testing.local_kafka.node import HOST, free_ports

_CHUNK = 1 << 16
#: The numbers of the two requests Heartbeat and ConsumerGroupHeartbeat.
_HEARTBEATS = (12, 68)


@dataclass(eq=False, slots=True)
class _Link:
    """One client's connection and ours to the broker."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    #: Says nothing any more towards the broker, or towards the client.
    mute: set[str] = field(default_factory=set)
    #: Has carried a heartbeat.
    to_coordinator: bool = False

    def abort(self) -> None:
        """Both ends are reset."""
        for end in (self.client, self.broker):
            end.transport.abort()


@dataclass(eq=False, slots=True)
class _Door:
    """The proxy of one broker."""

    port: int
    broker_port: int = 0
    delay_s: float = 0.0
    #: What the broker says goes nowhere.
    silent: bool = False
    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    heartbeats_flowing: asyncio.Event = field(default_factory=asyncio.Event)
    links: set[_Link] = field(default_factory=set)


class Proxy:
    """A door for each node; `ports` is what the brokers are to advertise."""

    def __init__(self, nodes: int) -> None:
        self._doors = {node: _Door(port) for node, port in enumerate(free_ports(nodes), 1)}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def ports(self) -> dict[int, int]:
        """The ports of the doors, by node."""
        return {node: door.port for node, door in self._doors.items()}

    @property
    def servers(self) -> str:
        """What clients connect to."""
        return ",".join(f"{HOST}:{door.port}" for door in self._doors.values())

    def start(self) -> None:
        """Listen; until `aim` has said where the brokers are, connections are turned away."""
        self._thread.start()
        for door in self._doors.values():
            door.flowing.set()
            door.heartbeats_flowing.set()
            serve = asyncio.start_server(lambda r, w, d=door: self._serve(d, r, w), HOST, door.port)
            self._servers.append(asyncio.run_coroutine_threadsafe(serve, self._loop).result(10))

    def aim(self, ports: Mapping[int, int]) -> None:
        """Say where the brokers are."""
        for node, port in ports.items():
            self._doors[node].broker_port = port

    def delay(self, node: int, seconds: float) -> None:
        """Everything through this door takes longer, in both directions; 0 for not."""
        self._doors[node].delay_s = seconds

    def hold(self, node: int) -> None:
        """Nothing goes through any more, and nobody is told."""
        self._do(self._doors[node].flowing.clear)

    def release(self, node: int) -> None:
        """What was held goes on."""
        self._do(self._doors[node].flowing.set)

    def hold_heartbeats(self, node: int) -> None:
        """Nothing goes through the connections to the coordinator any more; the others work."""
        self._do(self._doors[node].heartbeats_flowing.clear)

    def release_heartbeats(self, node: int) -> None:
        """What was held there goes on."""
        self._do(self._doors[node].heartbeats_flowing.set)

    def silence(self, node: int) -> None:
        """Requests arrive and are carried out, and no answer comes back, until `clear`."""
        self._doors[node].silent = True

    def cut(self, node: int) -> int:
        """Reset every connection; returns how many."""
        return self._each(node, _Link.abort)

    def half_close(self, node: int, *, towards: str) -> int:
        """End one direction of every connection and leave the other open; returns how many.

        Args:
            towards: "client": it reads the end and may still write; "broker": the broker reads
                the end, and what the client still writes goes nowhere.
        """

        def half(link: _Link) -> None:
            end = link.client if towards == "client" else link.broker
            link.mute.add(towards)
            with suppress(OSError, RuntimeError):
                end.write_eof()

        return self._each(node, half)

    def clear(self) -> None:
        """Undo whatever goes on; connections that were left half open, or lost some, are reset."""
        for node, door in self._doors.items():
            door.delay_s = 0
            self.release(node)
            self.release_heartbeats(node)
            cut, door.silent = door.silent, False
            self._each(node, lambda link, cut=cut: link.abort() if cut or link.mute else None)

    def stop(self) -> None:
        """Close every door."""
        # Their serving tasks end with the connections; asyncio complains of cancelled ones.
        for node in self._doors:
            self.cut(node)
            self.release(node)
            self.release_heartbeats(node)
        asyncio.run_coroutine_threadsafe(self._all_ended(), self._loop).result(10)
        self._do(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _all_ended(self) -> None:
        """Take no further connections, and wait for the end of those that are there."""
        for server in self._servers:
            server.close()
        for door in self._doors.values():
            for link in list(door.links):
                link.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=5)

    def _each(self, node: int, do: Callable[[_Link], object]) -> int:
        links = list(self._doors[node].links)
        for link in links:
            self._do(lambda link=link: do(link))  # type: ignore[misc]
        return len(links)

    def _do(self, action: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(action)

    async def _serve(
        self, door: _Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            broker_reader, broker = await asyncio.open_connection(HOST, door.broker_port)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, broker)
        door.links.add(link)
        try:
            await asyncio.gather(
                _carry(door, link, reader, broker, "broker"),
                _carry(door, link, broker_reader, writer, "client"),
            )
        except OSError:
            pass
        finally:
            link.abort()
            door.links.discard(link)


async def _carry(
    door: _Door,
    link: _Link,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    towards: str,
) -> None:
    """One direction, until its source ends."""
    requests = _Requests() if towards == "broker" else None
    while data := await reader.read(_CHUNK):
        if requests is not None and requests.have_heartbeat(data):
            link.to_coordinator = True
        if link.to_coordinator:
            await door.heartbeats_flowing.wait()
        if door.delay_s:
            await asyncio.sleep(door.delay_s)
        await door.flowing.wait()
        if towards in link.mute or (door.silent and towards == "client"):
            continue
        writer.write(data)
        await writer.drain()
    if not link.mute:
        # The other end is told at once: Kafka's peers never half-close on their own.
        link.abort()


class _Requests:
    """Where each request begins in a client's bytes, however they are cut."""

    def __init__(self) -> None:
        #: What has come of the next request's first six bytes: its size, and its number.
        self._head = b""
        #: How many bytes of the present request are still to come.
        self._left = 0

    def have_heartbeat(self, data: bytes) -> bool:
        """Whether a heartbeat begins in the next bytes."""
        found = False
        while data:
            skipped = min(self._left, len(data))
            self._left, data = self._left - skipped, data[skipped:]
            if not data:
                break
            wanted = 6 - len(self._head)
            self._head, data = self._head + data[:wanted], data[wanted:]
            if len(self._head) == 6:
                size, number = struct.unpack(">ih", self._head)
                self._head, self._left = b"", size - 2
                found = found or number in _HEARTBEATS
        return found
