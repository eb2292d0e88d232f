"""The channel between a worker and its supervisor: frames, and who has gone."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from ackfloor.runtime.supervision import channel
from ackfloor.runtime.supervision.channel import Kind

Ends = tuple[Connection, Connection]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The supervisor's end and the worker's, in one process."""
    ours, theirs = channel.pair()
    worker = Connection(theirs.detach())
    yield ours, worker
    ours.close()
    worker.close()


def test_frames_arrive_whole_and_in_order(ends: Ends) -> None:
    """Large ones, empty ones and status in JSON, whatever their bytes."""
    ours, worker = ends
    bodies = [b"", b"x", bytes(range(256)) * 4000, b"\n\0R"]

    def send() -> None:
        for body in bodies:
            assert channel.send(worker, Kind.REPORT, body)
        assert channel.send_status(worker, status="running", pid=7)

    sending = threading.Thread(target=send)
    sending.start()
    assert [channel.receive(ours) for _ in bodies] == [(Kind.REPORT, body) for body in bodies]
    assert channel.receive(ours) == (Kind.STATUS, b'{"status": "running", "pid": 7}')
    sending.join()


def test_a_supervisor_that_is_gone_is_no_error_to_the_worker(ends: Ends) -> None:
    """Sending says so, and reading finds the end, which is what the worker waits for."""
    ours, worker = ends
    ours.close()
    assert not channel.send_status(worker, status="running")
    assert not channel.send_report(worker, b"report")
    with pytest.raises((EOFError, OSError)):
        worker.recv_bytes()


def test_a_worker_that_is_gone_ends_what_it_was_saying(ends: Ends) -> None:
    """What it had sent is read, then comes the end; half a frame is the end as well."""
    ours, worker = ends
    channel.send_status(worker, status="running")
    os.write(worker.fileno(), b"\0\0\1\0half")
    worker.close()
    assert channel.receive(ours) == (Kind.STATUS, b'{"status": "running"}')
    with pytest.raises((EOFError, OSError)):
        channel.receive(ours)


def test_reports_never_wait_for_a_supervisor_that_does_not_read(ends: Ends) -> None:
    """They are left out while there is no room, and go on when there is."""
    ours, worker = ends
    report = b"x" * 20_000
    sent = [channel.send_report(worker, report) for _ in range(200)]
    assert sent[0]
    assert not sent[-1]
    for _ in range(sum(sent)):
        assert channel.receive(ours) == (Kind.REPORT, report)
    assert channel.send_report(worker, b"fresh")
    assert channel.receive(ours) == (Kind.REPORT, b"fresh")


def test_what_a_worker_is_told_waits_in_its_mailbox(ends: Ends) -> None:
    """In order, until the supervisor is gone; a kind of another version is left out."""
    ours, worker = ends
    assert channel.send_if_room(ours, Kind.SETTINGS, b"first")
    ours.send_bytes(b"\xffof another version")
    assert channel.send_if_room(ours, Kind.SETTINGS, b"")
    ours.close()
    mail: channel.Mailbox = deque()
    channel.listen(worker, mail)
    assert list(mail) == [(Kind.SETTINGS, b"first"), (Kind.SETTINGS, b"")]


def test_a_worker_that_does_not_read_keeps_nobody(ends: Ends) -> None:
    """What it is told finds room or is left out; a closed end is no room."""
    ours, worker = ends
    sent = [channel.send_if_room(ours, Kind.SETTINGS, b"x" * 20_000) for _ in range(200)]
    assert sent[0]
    assert not sent[-1]
    worker.close()
    assert not channel.send_if_room(ours, Kind.SETTINGS, b"")
    ours.close()
    assert not channel.send_if_room(ours, Kind.SETTINGS, b"")


def test_the_workers_end_is_inherited_and_the_supervisors_is_not() -> None:
    """A worker that held another's end open would keep it from noticing the supervisor's."""
    ours, theirs = channel.pair()
    with theirs:
        assert os.get_inheritable(theirs.fileno())
        assert not os.get_inheritable(ours.fileno())
    ours.close()
