"""InFlightMemory: what a process was handling is found when it is gone, whatever way it went."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackfloor.runtime.supervision import in_flight_memory as module
from ackfloor.runtime.supervision.in_flight_memory import MOST_SLOTS, Area, InFlightMemory, RecordId

PROGRAM = """
import os, sys
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory

memory = InFlightMemory(int(sys.argv[1]))
place = memory.take_place()
memory.cells[place] = memory.of("orders", 7) | 123_456_789_012
other = memory.take_place()
memory.cells[other] = memory.of("orders--shop--retry-1s", 0) | 0
memory.cells[memory.take_place()] = memory.of("orders", 7) | 5
memory.give_back(other + 1)
if sys.argv[2] == "in order":
    memory.exited_cleanly()
elif sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
os._exit(1)
"""


@pytest.fixture
def area() -> Iterator[Area]:
    """An area, let go at the end."""
    made = Area()
    yield made
    made.close()


def memory_of(area: Area) -> InFlightMemory:
    """The worker's side, in this process."""
    return InFlightMemory(os.dup(area.descriptor))


@pytest.mark.parametrize("end", ["killed", "os._exit"])
def test_a_dead_process_has_left_what_it_was_handling(area: Area, end: str) -> None:
    """Sorted; what had ended is not there."""
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(area.descriptor), end],
        pass_fds=(area.descriptor,),
        check=False,
    )
    assert area.in_flight() == [
        RecordId("orders", 7, 123_456_789_012),
        RecordId("orders--shop--retry-1s", 0, 0),
    ]


def test_a_process_that_ended_in_order_leaves_nothing(area: Area) -> None:
    """Handlers that it abandoned may still have been running."""
    argv = [sys.executable, "-c", PROGRAM, str(area.descriptor), "in order"]
    subprocess.run(argv, pass_fds=(area.descriptor,), check=False)
    assert area.in_flight() == []


def test_a_place_that_is_given_back_is_cleared_and_used_again(area: Area) -> None:
    """So that slots may come and go for as long as the process lives."""
    memory = memory_of(area)
    place = memory.take_place()
    memory.cells[place] = memory.of("orders", 0) | 1
    memory.give_back(place)
    assert area.in_flight() == []
    assert memory.take_place() == place


def test_a_process_that_had_a_partition_is_known(area: Area) -> None:
    """Whatever has become of it, and of what it handled."""
    assert not area.assigned()
    memory = memory_of(area)
    memory.turned()
    assert not area.assigned()
    memory.of("orders", 0)
    memory.exited_cleanly()
    assert area.assigned()


def test_signs_of_life_are_seen_while_the_process_runs(area: Area) -> None:
    """How many turns, and in which the clock was set back; no mark is taken for either."""
    memory = memory_of(area)
    memory.cells[memory.take_place()] = memory.of("orders", 0) | 1
    assert area.signs() == (0, 0)
    memory.turned()
    memory.turned()
    memory.set_back()
    assert area.signs() == (2, 2)
    memory.turned()
    assert area.signs() == (3, 2)
    assert area.in_flight() == [RecordId("orders", 0, 1)]


def test_slots_beyond_the_room_are_not_watched_and_harm_nobody(area: Area) -> None:
    """Late rather than wrong: their records are never suspects."""
    memory = memory_of(area)
    places = [memory.take_place() for _ in range(MOST_SLOTS + 2)]
    assert len(set(places)) == MOST_SLOTS + 1
    memory.cells[places[-1]] = memory.of("orders", 0) | 1
    assert area.in_flight() == []
    memory.give_back(places[-1])
    assert memory.take_place() == places[-1]
    memory.cells[places[-3]] = memory.of("orders", 0) | 2
    assert area.in_flight() == [RecordId("orders", 0, 2)]


def test_partitions_beyond_the_room_are_not_watched(
    area: Area, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those without an index nor those whose name does not fit."""
    monkeypatch.setattr(module, "MOST_PARTITIONS", 3)
    memory = memory_of(area)
    first, second, third = (memory.of("orders", n) for n in range(3))
    assert memory.of("orders", 0) == first != second
    assert third == 0
    memory.cells[memory.take_place()] = third | 9
    assert area.in_flight() == []
    monkeypatch.setattr(module, "NAMES_BYTES", 4)
    assert memory_of(area).of("orders", 0) == 0


def test_a_mark_whose_name_was_not_written_is_left_out(area: Area) -> None:
    """The process may have died anywhere."""
    memory = memory_of(area)
    memory.cells[memory.take_place()] = 9 << module.OFFSET_BITS
    assert area.in_flight() == []


def test_without_a_supervisor_marks_go_nowhere() -> None:
    """And cost as good as nothing."""
    memory = InFlightMemory()
    place = memory.take_place()
    assert memory.of("orders", 0) == 0
    memory.cells[place] = 1
    memory.give_back(place)
    memory.turned()
    memory.set_back()
    memory.exited_cleanly()


def test_without_memfd_a_file_that_has_no_name_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the system has none (macOS)."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    # Not the system's folder, where other processes make files of theirs.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    area = Area()
    memory = memory_of(area)
    memory.cells[memory.take_place()] = memory.of("orders", 0) | 1
    assert area.in_flight() == [RecordId("orders", 0, 1)]
    area.close()
    assert list(tmp_path.iterdir()) == []
