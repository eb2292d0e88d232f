"""SchemaLookups: requests each new schema from the registry once, on a thread of its own.

Decoding runs on the event loop of async handlers, or within the deadline of the others, so it must
not wait for a registry for long. The first delivery that needs a schema starts a lookup; this and
later deliveries wait until the lookup ends or `wait_s` after its start, whichever comes first. Then
they raise DecoderUnavailable: their records stay open and are redelivered, and by that time the
answer has often arrived. So a registry that hangs costs one thread, and handlers `wait_s` for each
lookup.

Unknown schemas are remembered for a while, so that many records with an unknown schema do not cause
as many requests.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from time import monotonic

from ackfloor.errors import DecodeError, DecoderUnavailable

#: Seconds for which an unknown schema is not requested again.
UNKNOWN_S = 30.0
#: How many known and how many unknown schemas are remembered.
MOST = 4_000


class SchemaLookups:
    """The schemas that a decoder knows, and the lookups in progress.

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
            schema: its id.
            ask: loads it into the client's cache; called on another thread.

        Raises:
            DecodeError: the registry does not know it.
            DecoderUnavailable: the registry is away, or has not answered yet.
        """
        if schema in self._known:
            return
        with self._lock:
            self._refuse_unknown(schema)
            started_s, answer = self._under_way.get(schema) or self._begin(schema, ask)
            # Since the oldest lookup: else several lookups would delay a handler one by one.
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
            # The schema has been loaded; each record's own decoding finds that it does not fit.
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
