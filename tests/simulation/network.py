"""Network: how long what a client sends and gets takes, and what of it is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ackfloor.core.parking.transaction import TransactionOutcome
from tests.simulation.hub import Hub
from tests.simulation.life import Life

#: Seconds between two things on one connection: never at one moment, where the dice would order
#: them.
NEXT_S = 1e-9


class Weather:
    """What the network does at present; a plan's faults change it.

    Attributes:
        refuse: kind of request ("commit", "publish") -> share that the broker refuses.
        lose_request: kind -> share that never arrives.
        lose_answer: kind -> share whose answer never arrives.
        slow_s: added to every way.
        abort: the share of transactions that are aborted.
        late_s: how long a transaction may be on its way to the broker.
        unclear_s: how long it takes to find out how a transaction ended.
        unread: topics that can't be read.
    """

    def __init__(self) -> None:
        self.refuse: dict[str, float] = {}
        self.lose_request: dict[str, float] = {}
        self.lose_answer: dict[str, float] = {}
        self.slow_s = 0.0
        self.abort = 0.0
        self.late_s = 0.0
        self.unclear_s = 0.0
        self.unread: set[str] = set()


class Network:
    """The network of one run.

    Args:
        hub: time, and the dice.
        session_s: seconds after which a silent member is expelled.
        batch: most records of one poll.
    """

    def __init__(self, hub: Hub, *, session_s: float, batch: int) -> None:
        self.hub = hub
        self.session_s = session_s
        self.batch = batch
        self.weather = Weather()
        #: Called with the worker for which there is news.
        self.on_news: Callable[[Life], None] = lambda _: None
        #: Called with the partition whose log has grown.
        self.on_append: Callable[[str, int], None] = lambda _topic, _partition: None

    def line(self, life: Life) -> Line:
        """A connection of one client."""
        return Line(self, life)


class Line:
    """One client's connection: what is sent over it arrives in the order of sending."""

    def __init__(self, network: Network, life: Life) -> None:
        self._network = network
        self._hub = network.hub
        self._life = life
        self._arrived_s = 0.0
        self._answered_s = 0.0

    @property
    def in_transit(self) -> bool:
        """Whether something is on its way: what is asked now is answered after it has arrived."""
        return self._hub.now_s < self._arrived_s

    def turn_s(self) -> float:
        """What a turn of the owner thread takes."""
        dice = self._hub.random.random()
        return dice * 0.0005 if dice < 0.95 else dice * 0.02

    def latency_s(self) -> float:
        """One way."""
        dice = self._hub.random.random()
        quick = dice * 0.004 if dice < 0.9 else dice * 0.05
        return quick + self._network.weather.slow_s

    def news(self) -> None:
        """There is something for the worker to take."""
        self._network.on_news(self._life)

    def appended(self, topic: str, partition: int) -> None:
        """A log has grown."""
        self._network.on_append(topic, partition)

    def _happens(self, shares: dict[str, float], kind: str) -> bool:
        return bool(shares) and self._hub.random.random() < shares.get(kind, 0.0)

    def request(
        self,
        kind: str,
        arrive: Callable[[], Any],
        answer: Callable[[Any], None],
        timeout_s: float,
    ) -> None:
        """Send something.

        Args:
            kind: "commit" or "publish".
            arrive: does it at the broker; returns None or the error.
            answer: is given that, or a text where nobody answered in time.
            timeout_s: after which nobody has.
        """
        weather, hub = self._network.weather, self._hub
        if self._happens(weather.lose_request, kind):
            hub.after(timeout_s, lambda: answer("timed out: no answer"))
            return
        lost = self._happens(weather.lose_answer, kind)
        refused = self._happens(weather.refuse, kind)
        self._arrived_s = max(self._arrived_s + NEXT_S, hub.now_s + self.latency_s())

        def arrived() -> None:
            error = "refused by the broker" if refused else arrive()
            self._answered_s = max(self._answered_s + NEXT_S, hub.now_s + self.latency_s())
            if lost:
                hub.after(timeout_s, lambda: answer("timed out: no answer"))
            else:
                hub.at(self._answered_s, lambda: answer(error))

        hub.at(self._arrived_s, arrived)

    def aborted(self) -> TransactionOutcome | None:
        """Whether a transaction is aborted for no fault of its own."""
        if self._network.weather.abort and self._hub.random.random() < self._network.weather.abort:
            return TransactionOutcome("aborted: the coordinator has moved")
        return None

    def transact_s(self) -> float:
        """How long a transaction is on its way."""
        return self.latency_s() + self._hub.random.random() * self._network.weather.late_s

    @property
    def unclear(self) -> bool:
        """Whether nobody tells how a transaction ended, so that the group's commits must say."""
        return self._network.weather.unclear_s > 0.0

    def unclear_s(self) -> float:
        """How long it takes to find out how a transaction ended."""
        return self.latency_s() + self._hub.random.random() * self._network.weather.unclear_s
