"""Life: whether a simulated worker process is alive, runs or stands still, and when it dies.

A process can die wherever it touches the outside: before a call has its effect, or after. Every
port asks `reach` at both moments; a death that was planned for the n-th of them comes there, in the
middle of whatever the worker was doing.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.hub import Hub, Killed, Strand


class Life:
    """One worker process.

    Args:
        hub: whose time it lives in.
        number: which process of the run it is; each start has another.
        on_death: called once, when it dies.

    Attributes:
        alive: whether it is.
        thaws_s: until when it stands still (monotonic seconds).
        dies_in: touches of the outside until it dies; 0 for never.
    """

    def __init__(self, hub: Hub, number: int, on_death: Callable[[], None]) -> None:
        self._hub = hub
        self._on_death = on_death
        self.number = number
        self.alive = True
        self.thaws_s = 0.0
        self.dies_in = 0
        #: Whatever waits in it.
        self.strands: list[Strand] = []
        #: Handler -> its function, where it is found by the process it runs in.
        self.functions: dict[str, Callable[..., None]] = {}

    def __repr__(self) -> str:
        return f"worker {self.number}"

    def is_alive(self) -> bool:
        """Whether it is alive."""
        return self.alive

    def thaws(self) -> float:
        """Until when it stands still."""
        return self.thaws_s

    def reach(self) -> None:
        """It touches the outside.

        Raises:
            Killed: it is dead, or dies here.
        """
        if not self.alive:
            raise Killed
        if self.dies_in:
            self.dies_in -= 1
            if not self.dies_in:
                self.die("at a call")
                raise Killed

    def die(self, why: str) -> None:
        """It is gone, in the middle of whatever it was doing."""
        if self.alive:
            self.alive = False
            self._hub.note(f"{self} dies {why}")
            self._on_death()
            for strand in self.strands:
                strand.kill()
