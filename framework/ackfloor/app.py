"""App: what a user builds, registers handlers on, and names on the command line.

An app holds declarations only. It connects to nothing until a worker attaches to it, so that
importing the user's module is free of side effects and the same app runs on the test kit.
"""

from __future__ import annotations

import concurrent.futures
import inspect
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, Literal, NoReturn, TypeVar, Unpack, get_args, overload

from ackfloor.core.parking.topic_names import check_group
from ackfloor.core.records.envelope import IDEMPOTENCY_KEY
from ackfloor.core.records.record import Failure
from ackfloor.core.values.durations import parse_duration
from ackfloor.core.values.setting_error import SettingError
from ackfloor.declare.app_options import AppOptions
from ackfloor.declare.broadcast_mode import in_broadcast
from ackfloor.declare.encoders import Encoders, SchemaEncoder
from ackfloor.declare.handler import HandlerSpec, Middleware, Registry
from ackfloor.declare.outgoing import HeadersGiven, Value, encode, header_pairs
from ackfloor.declare.publishers import Confirmed, Publishers, Publishing, Way
from ackfloor.declare.signature import yielded_type
from ackfloor.delivery import Delivery
from ackfloor.errors import ConfigError
from ackfloor.ports import Observer, Publisher
from ackfloor.settings.registry_settings import RegistrySettings

Mode = Literal["group", "broadcast"]
#: An app of the ASGI specification: called as `app(scope, receive, send)`.
AsgiApp = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

#: What opens a publisher outside a worker, and what runs workers: in processes of their own, and
#: in this one.
_OPENER = "ackfloor.publishing"
_RUNNER = "ackfloor.cli.run.run_app"
_RUNNING = "ackfloor.embedded.running"
_PAGES = "ackfloor.embedded.pages"
#: Called as `function(exc, failure, delivery)`; see `App.on_error`.
ErrorFunction = Callable[[BaseException | None, Failure, Delivery], object]
F = TypeVar("F", bound=ErrorFunction)

#: Why nothing can be published from this process; empty if something can.
_no_publish: list[str] = []


def refuse_publish(why: str) -> None:
    """Refuse every later `publish`, because this process has no producer."""
    _no_publish.append(why)


class App(Registry):
    """A consumer group's handlers and what surrounds them.

    Args:
        group: the Kafka consumer group; part of every retry and dead-letter topic's name.
        lifespan: an async context manager entered once in each worker process; what it yields
            is passed to handler parameters annotated with its type.
        middleware: called around every handler as `around(delivery, call_next)`, outermost
            first; async for async handlers, plain for `def` handlers.
        observers: get every event and snapshot of a worker.
        mode: "group" (default): the workers share the records; "broadcast": every worker gets
            every record that is written while it runs, and nothing is committed.
        options: settings of `[app]` by name (for example `start="latest"`,
            `commit_interval="1s"`), and `kafka={...}` for those of `[kafka]`; operators override
            them by file, environment and flags.

    Raises:
        SettingError: a value is refused; the message names field, value and fix.
    """

    def __init__(
        self,
        group: str,
        *,
        lifespan: Callable[[App], AbstractAsyncContextManager[object]] | None = None,
        middleware: Sequence[Middleware] = (),
        observers: Sequence[Observer] = (),
        mode: Mode = "group",
        **options: Unpack[AppOptions],
    ) -> None:
        super().__init__()
        check_group(group)
        if mode not in get_args(Mode):
            fix = f"choose one of {', '.join(map(repr, get_args(Mode)))}"
            raise SettingError("mode", mode, "no such mode", fix)
        self.group = group
        self.mode = mode
        self.middleware = tuple(middleware)
        self.observers = tuple(observers)
        self.options: Mapping[str, object] = options
        self.error_functions: tuple[ErrorFunction, ...] = ()
        #: The `running()` block that is entered in this process.
        self.embedded: object | None = None
        self._lifespan = lifespan
        self._publishers = Publishers(self._open_way)

    @property
    def broadcast(self) -> bool:
        """Whether every worker gets every record."""
        return self.mode == "broadcast"

    def on_error(self, function: F) -> F:
        """Register a function that is told of each failure of a handler; returns it unchanged.

        Called as `function(exc, failure, delivery)` on a thread of its own, one failure after the
        other: `exc` is what was raised, None where the handler has a process of its own; `failure`
        is the same as text; `delivery` takes no answers. What the function raises is logged, and
        changes nothing. Not called for timeouts, for what does not decode, and where a handler
        raises `Retry`, `DeadLetter`, `Discard` or `Pause`.

        Raises:
            SettingError: it is an `async def`.
        """
        if inspect.iscoroutinefunction(function):
            raise SettingError(
                "on_error", function.__name__, "it is an `async def`, and is called on a thread",
                "write it as a plain `def`",
            )  # fmt: skip
        self.error_functions = (*self.error_functions, function)
        return function

    def check(self, spec: HandlerSpec) -> None:
        """Refuse a handler that clashes with another, or with the app's mode."""
        super().check(spec)
        if self.broadcast:
            in_broadcast(spec)

    def add(self, spec: HandlerSpec) -> None:
        """Register a checked handler, adapted to the app's mode."""
        super().add(in_broadcast(spec) if self.broadcast else spec)

    @property
    def state_type(self) -> object:
        """The type that the lifespan yields; None if the app has none."""
        return None if self._lifespan is None else yielded_type(self._lifespan)

    @property
    def lifespan(self) -> Callable[[App], AbstractAsyncContextManager[object]] | None:
        """The lifespan as it was passed; None if the app has none."""
        return self._lifespan

    @property
    def open_lifespan(self) -> Callable[[], AbstractAsyncContextManager[object]] | None:
        """A function that opens the lifespan in a worker; None if the app has none."""
        lifespan = self._lifespan
        return None if lifespan is None else lambda: lifespan(self)

    def check_middleware(self, spec: HandlerSpec) -> None:
        """Refuse middleware that does not fit its handler.

        Raises:
            ConfigError: async middleware around a `def` handler, or the other way round; any of
                it around a batch handler.
        """
        if self.middleware and spec.batch is not None:
            raise ConfigError(
                f"handlers.{spec.name}.batch",
                spec.batch,
                "the app has middleware, which goes around one delivery, and a batch has many",
                "give the middleware to the other handlers only",
            )
        for around in (*self.middleware, *spec.middleware):
            if inspect.iscoroutinefunction(around) != spec.is_async:
                kind = "async def" if spec.is_async else "def"
                raise ConfigError(
                    f"handlers.{spec.name}.middleware",
                    getattr(around, "__name__", around),
                    f"the handler is an `{kind}`",
                    f"write the middleware as `{kind}` too, or give it to other handlers only",
                )

    @overload
    def publish(
        self,
        topic: str,
        value: Value,
        *,
        key: bytes | str | None = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
    ) -> Coroutine[Any, Any, None]: ...

    @overload
    def publish(
        self,
        topic: str,
        value: object,
        *,
        encoder: SchemaEncoder,
        key: bytes | str | None = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
    ) -> Coroutine[Any, Any, None]: ...

    def publish(
        self,
        topic: str,
        value: Any,
        *,
        encoder: SchemaEncoder | None = None,
        key: bytes | str | None = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Write a record and return once the broker has confirmed it (acks=all); await it.

        In a handler, in the lifespan, or inside `publishing()`; on any event loop. A handler that
        returns without having awaited it fails with `PublishNotAwaited`.

        Args:
            topic: the topic to write to, which must exist.
            value: bytes and str as they are, a pydantic model or anything JSON can hold as
                JSON, None as a tombstone.
            encoder: one of `ackfloor.schemas`, to write the value by a schema of the registry;
                None stays a tombstone.
            key: bytes, or text to be written in UTF-8.
            headers: by name, or (name, value) pairs in order where a name repeats; text is
                written in UTF-8.
            partition: where to write it; None: the key decides, and without a key the client.

        Raises:
            PublishFailed: the record was not written, or it is not known whether it was. It comes
                after `delivery.timeout.ms` of `[kafka.producer]` (30 s) at the latest, and after
                `registry.timeout` (10 s) where the registry is away.
            EncodeError: the value does not fit its schema, or the registry has no such schema.
            RuntimeError: there is nothing to publish through: neither a worker nor `publishing()`,
                the handler has a process of its own, or the process was forked since.
        """
        _check_may_publish()
        write = partial(self.write, topic, value, encoder, key, headers, partition)
        return self._publishers.confirmed(topic, write)

    @overload
    def publish_sync(
        self,
        topic: str,
        value: Value,
        *,
        key: bytes | str | None = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
        timeout_s: float | None = None,
    ) -> None: ...

    @overload
    def publish_sync(
        self,
        topic: str,
        value: object,
        *,
        encoder: SchemaEncoder,
        key: bytes | str | None = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
        timeout_s: float | None = None,
    ) -> None: ...

    def publish_sync(
        self,
        topic: str,
        value: Any,
        *,
        encoder: SchemaEncoder | None = None,
        key: bytes | str | None = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """`publish` for `def` handlers and any other thread; waits at most `timeout_s` seconds.

        Raises:
            TimeoutError: there is no answer yet. The record is not taken back: it may still be
                written.
        """
        self.write(topic, value, encoder, key, headers, partition).result(timeout_s)

    def write(
        self,
        topic: str,
        value: Any,
        encoder: SchemaEncoder | None,
        key: bytes | str | None,
        headers: HeadersGiven,
        partition: int | None = None,
    ) -> concurrent.futures.Future[None]:
        """Start to write a record; what is returned ends once it is confirmed, or has failed.

        What `publish` and `publish_sync` wait for; a value without bytes is refused at once.
        """
        _check_may_publish()
        way = self._publishers.current()
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def on_done(error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        # A caller that stops waiting can't take the record back: the future can't be cancelled.
        done.set_running_or_notify_cancel()
        raw_key = key.encode() if isinstance(key, str) else key
        # Of a delivery's headers this one names the record that was delivered, and no other one.
        pairs = [pair for pair in header_pairs(headers) if pair[0] != IDEMPOTENCY_KEY]

        def send(data: bytes | None) -> None:
            way.publisher.publish(topic, data, raw_key, pairs, on_done, partition)

        if encoder is None or value is None:
            send(encode(value))
        else:
            way.encoders.encode(encoder, topic, value, send, on_done)
        return done

    def run(self, *arguments: str) -> NoReturn:
        """Run the app's workers until they are asked to stop, as `ackfloor run` does, and exit.

            if __name__ == "__main__":
                app.run("--workers", "4")

        For a file that is started as a program. Its workers are processes of their own and import
        the app's module, so the call belongs under `if __name__ == "__main__":`.

        Args:
            arguments: those of `ackfloor run`, without its app.

        Raises:
            StartError: it was called by the import of the module.
            SystemExit: the run has ended, or can't be started; with the exit code of the command.
        """
        import_module(_RUNNER).run_app(self, list(arguments))
        raise SystemExit(0)

    def running(
        self,
        *,
        name: str | None = None,
        restarts: int = 10,
        connect_timeout: timedelta | str | None = None,
    ) -> AbstractAsyncContextManager[None]:
        """Run one worker of the group inside this process, while the block is entered.

            async with app.running():
                yield

        For FastAPI's or Starlette's lifespan, and any asyncio program. Async handlers are tasks on
        the event loop that enters the block, so its clients and pools work in them; `def` handlers
        run on threads. No signal, logging or garbage collector of the process is touched, and no
        port is opened: mount `asgi()`. `publish` works in the whole block.

        Entering returns once the worker runs; it also does where no broker answers, and the worker
        joins later. Leaving drains within `shutdown_timeout`; a cancellation meanwhile stops now.
        Where the worker is given up, the body is cancelled, and the block raises the error. Inside
        a test's harness the harness is the worker, and the block starts nothing.

        Args:
            name: the worker's name in its Kafka clients, and another one in each process of a host;
                needed with `static_membership` and `transactional`. None: one with the process's
                id.
            restarts: how often a worker that fails is started again, after growing waits of up to
                30 s. It counts anew after a minute of work.
            connect_timeout: how long entering waits for a broker, as a timedelta or "30s"; None not
                to wait.

        Raises:
            SettingError: an argument is refused.
            ConfigError: when it is entered: a setting or a handler is refused, or topics are
                missing.
            KafkaUnreachable: when it is entered: no broker answered within `connect_timeout`.
            NotReady: when it is entered: the app's lifespan failed.
            RuntimeError: when it is entered: this app is running in this process already.
            WorkerFailed: when it is left: the worker has failed too often, or did not end.
        """
        running: AbstractAsyncContextManager[None] = import_module(_RUNNING).Running(
            self, name=name, restarts=restarts, connect_timeout=connect_timeout
        )
        return running

    def asgi(self) -> AsgiApp:
        """An ASGI app with the pages of a run's address, to be mounted in a web service.

            web.mount("/ackfloor", app.asgi())

        /metrics, /livez, /readyz and /state of the worker that `running()` has in this process;
        503 where it has none. They are made on a thread, and need no package.
        """
        pages: AsgiApp = import_module(_PAGES).Pages(self)
        return pages

    def publishing(self, *, close_timeout: timedelta | str = "10s") -> Publishing:
        """Let `publish` and `publish_sync` work outside a worker: in a web process, a script.

            async with app.publishing():
                await app.publish("orders", order, key=order.id)

            with app.publishing():
                app.publish_sync("orders", order, key=order.id)

        Enter it once, in each process and after it was forked; any thread and event loop of the
        process may publish meanwhile. It may be entered again inside; the last one to be left
        closes. Inside a running worker or a test's harness it publishes through that one, and
        opens and reads nothing.

        Args:
            close_timeout: how long its end waits for records that are not confirmed yet, as a
                timedelta or "30s". Those that are still not confirmed then fail with
                `PublishFailed` where somebody waits for them, and one warning counts them.

        Raises:
            SettingError: `close_timeout` is no duration.
            ConfigError: when it is entered: a setting of `[kafka]` is refused. Whether a broker
                answers shows in `publish`.
        """
        return Publishing(self._publishers, parse_duration(close_timeout, field="close_timeout"))

    def _open_way(self) -> Way:
        # By name, because a declaration imports nothing that connects.
        opened: Way = import_module(_OPENER).open_way(self.group, self.options)
        return opened

    @property
    def attached(self) -> bool:
        """Whether a worker, or a test's harness, runs this app in this process."""
        return self._publishers.attached

    def attach(
        self,
        publisher: Publisher,
        confirmed: Confirmed,
        encoders: Encoders | None = None,
    ) -> None:
        """Publish through this publisher, because a worker starts.

        Args:
            publisher: writes the records.
            confirmed: makes the coroutines that `publish` returns.
            encoders: encode values by schemas of a registry; None where there is none.
        """
        way = Way(publisher, encoders or Encoders(RegistrySettings()))
        self._publishers.attach(way, confirmed)

    def detach(self) -> None:
        """Stop publishing, because the worker has ended."""
        self._publishers.detach()


def _check_may_publish() -> None:
    if _no_publish:
        raise RuntimeError(_no_publish[0])
