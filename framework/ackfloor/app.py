"""App: what a user builds, registers handlers on, and names on the command line.

An app holds declarations only. It connects to nothing until a worker attaches to it, so that
importing the user's module is free of side effects and the same app runs on the test kit.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, get_args

from pydantic import BaseModel
from pydantic_core import to_json

from ackfloor.core.parking.topic_names import check_group
from ackfloor.core.records.record import Headers
from ackfloor.core.values.setting_error import SettingError
from ackfloor.declare.broadcast_mode import in_broadcast
from ackfloor.declare.handler import HandlerSpec, Middleware, Registry
from ackfloor.declare.signature import yielded_type
from ackfloor.errors import ConfigError
from ackfloor.ports import Observer, Publisher

Value = bytes | str | BaseModel | None | dict[str, Any] | list[Any] | int | float | bool


Mode = Literal["group", "broadcast"]

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
        **options: object,
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
        self.options = options
        self._lifespan = lifespan
        self._publisher: Publisher | None = None

    @property
    def broadcast(self) -> bool:
        """Whether every worker gets every record."""
        return self.mode == "broadcast"

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

    async def publish(
        self, topic: str, value: Value, *, key: bytes | str | None = None, headers: Headers = ()
    ) -> None:
        """Write a record and return once the broker has confirmed it (acks=all).

        Args:
            topic: the topic to write to.
            value: bytes and str as they are, a pydantic model or anything JSON can hold as
                JSON, None as a tombstone.
            key: bytes, or text to be written in UTF-8.
            headers: (name, value) pairs in order.

        Raises:
            PublishFailed: the record was not written, or it is not known whether it was.
            RuntimeError: no worker is running.
        """
        await asyncio.wrap_future(self._publish(topic, value, key, headers))

    def publish_sync(
        self,
        topic: str,
        value: Value,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        timeout_s: float | None = None,
    ) -> None:
        """`publish` for `def` handlers and other threads; waits at most `timeout_s` seconds."""
        self._publish(topic, value, key, headers).result(timeout_s)

    def _publish(
        self, topic: str, value: Value, key: bytes | str | None, headers: Headers
    ) -> concurrent.futures.Future[None]:
        publisher = self._publisher
        if _no_publish:
            raise RuntimeError(_no_publish[0])
        if publisher is None:
            raise RuntimeError(
                "publish needs a running worker: call it from a handler or the lifespan"
            )
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
        publisher.publish(topic, encode(value), raw_key, headers, on_done)
        return done

    def attach(self, publisher: Publisher) -> None:
        """Publish through this publisher, because a worker starts."""
        self._publisher = publisher

    def detach(self) -> None:
        """Stop publishing, because the worker has ended."""
        self._publisher = None


def encode(value: Value) -> bytes | None:
    """A value as it is written to Kafka."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return to_json(value)
