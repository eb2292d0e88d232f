"""Router and registry: `@app.handler(...)` and `app.include(router)`.

`Router` collects handlers, the app's `Registry` is one, and `include` joins them. A router
that was included stays connected: what is registered on it later reaches the app as well, so
the order of imports does not matter. Two handlers for one topic or pattern, or of one name, are
refused in the line that brings the second.

The decorator returns the function unchanged: it can be called, tested and registered again.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from ackfloor.declare.outgoing import Value
from ackfloor.declare.registration import (
    Ack,
    ExecutorKind,
    HandlerOptions,
    HandlerSpec,
    Middleware,
    OnFailure,
    Ordering,
    make_spec,
    settings_key,
)
from ackfloor.declare.result_topic import To
from ackfloor.errors import ConfigError

__all__ = [
    "Ack",
    "ExecutorKind",
    "HandlerOptions",
    "HandlerSpec",
    "Middleware",
    "OnFailure",
    "Ordering",
    "Register",
    "Registry",
    "Router",
]

#: What `to=` was: it decides what a function may return.
if TYPE_CHECKING:
    import typing_extensions

    Given = typing_extensions.TypeVar("Given", bound=str | To[Any] | None, default=None)
else:
    Given = TypeVar("Given")

AsyncFunction = TypeVar("AsyncFunction", bound=Callable[..., Coroutine[Any, Any, None]])
SyncFunction = TypeVar("SyncFunction", bound=Callable[..., None])
AsyncValue = TypeVar("AsyncValue", bound=Callable[..., Coroutine[Any, Any, Value]])
AsyncValues = TypeVar("AsyncValues", bound=Callable[..., AsyncIterable[Value]])
SyncValue = TypeVar("SyncValue", bound=Callable[..., Value | Iterable[Value]])
Encoded = TypeVar("Encoded", bound=Callable[..., object])


class Register(Generic[Given]):
    """What `.handler(...)` returns: takes the function, registers it, gives it back.

    Without `to=` a function returns nothing. With it, it returns or yields what `App.publish` takes
    (the results of a batch are a list, which is that as well), or what an encoder takes.
    """

    def __init__(
        self,
        router: Router,
        topics: tuple[str, ...],
        to: str | To[Any] | None,
        options: HandlerOptions,
    ) -> None:
        self._router = router
        self._topics = topics
        self._to = to
        self._options = options

    @overload
    def __call__(self: Register[None], function: AsyncFunction, /) -> AsyncFunction: ...

    @overload
    def __call__(self: Register[None], function: SyncFunction, /) -> SyncFunction: ...

    @overload
    def __call__(
        self: Register[str] | Register[To[Value]], function: AsyncValue, /
    ) -> AsyncValue: ...

    @overload
    def __call__(
        self: Register[str] | Register[To[Value]], function: AsyncValues, /
    ) -> AsyncValues: ...

    @overload
    def __call__(
        self: Register[str] | Register[To[Value]], function: SyncValue, /
    ) -> SyncValue: ...

    @overload
    def __call__(self: Register[To[object]], function: Encoded, /) -> Encoded: ...

    def __call__(self, function: Any, /) -> Any:
        """Register the function; see `Router.handler`."""
        spec = make_spec(function, self._topics, self._options, self._to)
        self._router.check(spec)
        self._router.add(spec)
        return function


class Router:
    """Handlers of one part of an application; `app.include(router)` adds them to the app."""

    def __init__(self) -> None:
        self._specs: dict[str, HandlerSpec] = {}
        #: The routers that take in whatever is registered here.
        self.included_in: list[Router] = []

    def handler(
        self,
        *topics: str,
        to: Given = None,  # type: ignore[assignment]
        **options: Unpack[HandlerOptions],
    ) -> Register[Given]:
        """Register a function as the handler of one or more topics.

        Args:
            topics: the topics it handles. One that begins with "^" is a pattern: a regular
                expression for whole names, "^orders-.*". It stands for the topics that match it,
                also those that are created later; never for ackfloor's or Kafka's own, nor for one
                that another handler names.
            to: the topic to which what it returns or yields is published, confirmed before its
                record is settled; a `To` says key, headers and encoder. A batch handler returns one
                result an item. None is no result. Not with ack="manual" or executor="process".
            options: see below.

        Options:
            name: header, metric label and settings key; default: the function's name.
            ordering: "unordered" (default), "key" or "partition": what runs one at a time.
            on_failure: "park" (default when unordered): a failed record waits in a retry topic
                and has left its lane; "block" (default when ordered): it is retried where it is,
                and its lane waits for it; "quarantine" (with ordering="key"): it is parked, and
                what follows of its key is parked behind it, in order.
            after_dead_letter: with on_failure="quarantine", what becomes of the records behind one
                that is dead-lettered: "continue" (default): they are handled; "dead_letter": they
                go to the DLQ with it; "hold": they wait until an operator frees the key.
            concurrency: deliveries that run at once; default 64, with executor="process" as many
                as there are cores.
            fairness: "key" (default): while all slots are taken, records of keys that use more than
                a tenth of them wait for others, and keys that hang get at most a quarter; a
                function of the delivery that returns what to go by instead (text, bytes, or None);
                "off". Not for batches, nor with ordering="partition".
            rate: how many records all workers of the group together may start, such as "100/s",
                "6000/min" or "10/h"; redeliveries count, and each record of a batch; default None
                for no limit.
            consume_timeout: from the handler's start to its answer; default "60s", None for no
                limit.
            retry: the RetryPolicy; default 1s, 5s, 25s, 2m5s, 10m, 10m, then the DLQ.
            breaker: the CircuitBreaker: how many records have to fail in a row until failures leave
                for the retry topics at a drip; default 50; None for none.
            guard: deprecated and ignored, but that None, False or `FloodGuard(enabled=False)`
                means `breaker=None`.
            output: "exactly_once" writes what it publishes with `delivery.publish`, returns or
                yields (`to=`) in one transaction with what settles its record: both or neither;
                what a failed attempt has published is dropped. Default "at_least_once". It
                implies parking="transactional". Not with an encoder.
            dead_letter_on: exceptions that no redelivery will cure, matched by isinstance.
            ack: "auto" (default): return settles; "manual": the delivery is answered by hand.
            max_extend: how far after its start `delivery.extend` may move a deadline.
            executor: "async" for an `async def`, "thread" for a `def`; follows the function.
                "process" runs a `def` in processes of its own: for work that keeps a core busy,
                and for code that may hang or crash.
            decoder: turns bytes into the value, in place of the annotation.
            middleware: `around(delivery, call_next)`, outermost first.
            process_memory_limit: with executor="process": resident memory, such as "512MiB",
                beyond which a process is replaced, or killed while a handler runs.
            process_max_records: with executor="process": records after which a process is
                replaced.
            batch: how many records one call takes at most; the function takes lists then.
            batch_wait: how long an incomplete batch waits since its first record was read;
                default "200ms".

        Raises:
            ConfigError: the registration is refused, with field, value and fix.
        """
        return Register(self, topics, to, options)

    def include(self, router: Router) -> None:
        """Take in what is registered on a router, now and later."""
        if self.leads_to(router):
            raise ConfigError("include", router, "it would contain itself", "include it elsewhere")
        if self in router.included_in:
            raise ConfigError("include", router, "included already", "include it once")
        for spec in router.handlers:
            self.check(spec)
        for spec in router.handlers:
            self.add(spec)
        router.included_in.append(self)

    @property
    def handlers(self) -> tuple[HandlerSpec, ...]:
        """What is registered, in order of registration."""
        return tuple(self._specs.values())

    def handler_of(self, topic: str) -> HandlerSpec | None:
        """The handler that names a topic, or a pattern in this very form."""
        return next((spec for spec in self._specs.values() if topic in spec.subjects), None)

    def leads_to(self, router: Router) -> bool:
        """Whether what is registered here reaches that router."""
        return router is self or any(parent.leads_to(router) for parent in self.included_in)

    def check(self, spec: HandlerSpec) -> None:
        """Refuse a handler that clashes with one here, or wherever this router is included."""
        for topic in spec.subjects:
            other = self.handler_of(topic)
            if other is not None:
                why = f"handler {other.name!r} handles it already; one handler per topic"
                fix = "remove one, or tell event types apart by a pydantic discriminated union"
                raise ConfigError(f"handlers.{spec.name}.topics", topic, why, fix)
        key = settings_key(spec.name)
        for other in self._specs.values():
            if settings_key(other.name) == key:
                alike = other.name != spec.name
                why = f"settings can't tell it from {other.name!r}" if alike else "taken already"
                raise ConfigError("name", spec.name, why, 'pass name="..."')
        for parent in self.included_in:
            parent.check(spec)

    def add(self, spec: HandlerSpec) -> None:
        """Register a handler that was checked, here and wherever this router is included."""
        self._specs[spec.name] = spec
        for parent in self.included_in:
            parent.add(spec)


class Registry(Router):
    """All handlers of one app."""
