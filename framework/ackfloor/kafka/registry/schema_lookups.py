"""SchemaLookups: a schema that was not seen before is asked for once, on a thread of its own.

Decoding happens on the event loop of the async handlers, or within the deadline of the others, so
nobody may wait for a registry for long. The first delivery that needs a schema starts a lookup;
it, and those that come meanwhile, wait until the lookup ends or `wait_s` after its start, whichever
is first. Then they are told that the registry is away: their records stay open and come again, and
by that time the answer is often there. So a registry that hangs costs a thread, and the handlers
`wait_s` for each lookup.

What the registry does not know is remembered for a while: a storm of records of an unknown schema
is no storm of questions.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from time import monotonic

from ackfloor.errors import DecodeError, DecoderUnavailable

#: Seconds for which an unknown schema counts as unknown without being asked for.
UNKNOWN_S = 30.0
#: How many known, and how many unknown ones are remembered.
MOST = 4_000


class SchemaLookups:
    """Which schemas a decoder knows, and the questions that are under way.

    Args:
        wait_s: how long a delivery waits for a lookup.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._known: set[Hashable] = set()
        self._unknown: OrderedDict[Hashable, tuple[float, str]] = OrderedDict()
        self._under_way: dict[Hashable, tuple[float, Future[None]]] = {}

    def require(self, schema: Hashable, ask: Callable[[], object]) -> None:
        """Return once the schema is known.

        Args:
            schema: what names it.
            ask: brings it into the caches of the client; called on another thread.

        Raises:
            DecodeError: the registry does not know it.
            DecoderUnavailable: the registry is away, or has not answered yet.
        """
        if schema in self._known:
            return
        with self._lock:
            self._refuse_unknown(schema)
            started_s, answer = self._under_way.get(schema) or self._begin(schema, ask)
            # Of all lookups: one after the other, each would hold its delivery up.
            first_s = min((other for other, _ in self._under_way.values()), default=started_s)
        try:
            answer.result(max(0.0, first_s + self._wait_s - monotonic()))
        except TimeoutError:
            raise DecoderUnavailable("the schema registry has not answered yet") from None

    def _refuse_unknown(self, schema: Hashable) -> None:
        until_s, why = self._unknown.get(schema, (0.0, ""))
        if monotonic() < until_s:
            raise DecodeError(why, error_type="UnknownSchema")
        self._unknown.pop(schema, None)

    def _begin(self, schema: Hashable, ask: Callable[[], object]) -> tuple[float, Future[None]]:
        answer: Future[None] = Future()
        self._under_way[schema] = begun = (monotonic(), answer)
        threading.Thread(
            target=self._look_up, args=(schema, ask, answer), name="ackfloor:schema", daemon=True
        ).start()
        return begun

    def _look_up(self, schema: Hashable, ask: Callable[[], object], answer: Future[None]) -> None:
        refusal: BaseException | None = None
        try:
            ask()
        except (DecodeError, DecoderUnavailable) as exc:
            refusal = exc
        except Exception:  # noqa: BLE001
            # The schema is here; that this record is none of its values is for each to find.
            refusal = None
        with self._lock:
            del self._under_way[schema]
            if isinstance(refusal, DecodeError):
                _remember(self._unknown, schema, (monotonic() + UNKNOWN_S, str(refusal)))
            elif refusal is None:
                if len(self._known) >= MOST:
                    self._known.clear()
                self._known.add(schema)
        if refusal is None:
            answer.set_result(None)
        else:
            answer.set_exception(refusal)


def _remember(
    unknown: OrderedDict[Hashable, tuple[float, str]], schema: Hashable, why: tuple[float, str]
) -> None:
    unknown[schema] = why
    while len(unknown) > MOST:
        unknown.popitem(last=False)
