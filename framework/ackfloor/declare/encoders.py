"""Encoding of published values by a schema of the registry: inline, once the schema is known.

The first value of a schema asks the registry, on a thread of its own, so that an event loop never
waits for that. What is published with the same schema meanwhile waits behind it, in order. If the
registry does not answer, or has no such schema, all that wait fail with it: each for itself would
ask as long again. After that each value is encoded by whoever publishes it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from copy import copy
from time import monotonic
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from ackfloor.errors import EncodeError, PublishFailed
from ackfloor.settings.registry_settings import RegistrySettings

#: Of an EncodeError: the fault is the schema's, and other values would fail like this one.
_OF_THE_SCHEMA = frozenset({"UnknownSchema", "RefusedSchema"})


class Encoder(Protocol):
    """Makes bytes of the values of one topic; asks the registry where it has to."""

    def encode(self, value: object) -> bytes:
        """The bytes of a value.

        Raises:
            EncodeError: it is no value of the schema, or there is no such schema.
            PublishFailed: the registry is away.
        """
        ...


@runtime_checkable
class SchemaEncoder(Protocol):
    """What `ackfloor.schemas` offers for `encoder=`; hashable, equal where it means the same."""

    def encoding(self, registry: RegistrySettings, topic: str, value_type: type) -> Encoder:
        """The encoder of a topic's values of this type; connects to nothing.

        Raises:
            ConfigError: the type or the settings don't fit.
            MissingExtra: the registry's client is not installed.
        """
        ...


_Key = tuple[SchemaEncoder, str, type]


class _Job(NamedTuple):
    """A value that waits for its schema."""

    value: object
    send: Callable[[bytes], None]
    on_done: Callable[[BaseException | None], None]
    #: The caller's, which has its span.
    context: Context


class Encoders:
    """The encoders that one publisher's callers use; called by any thread.

    Args:
        registry: how to reach the registry.
        inline: encode the first value of a schema in the call as well, which then waits for the
            registry: where time is manual, nothing else could go on meanwhile.
    """

    def __init__(self, registry: RegistrySettings, *, inline: bool = False) -> None:
        self._registry = registry
        self._inline = inline
        self._lock = threading.Lock()
        self._bound: dict[_Key, Encoder] = {}
        self._known: set[_Key] = set()
        #: Schema that is being asked for -> what waits for it, and the thread that asks.
        self._waiting: dict[_Key, tuple[deque[_Job], threading.Thread]] = {}

    def encode(
        self,
        encoder: SchemaEncoder,
        topic: str,
        value: object,
        send: Callable[[bytes], None],
        on_done: Callable[[BaseException | None], None],
    ) -> None:
        """Encode a value and send it, now or once its schema is known.

        Args:
            send: called with the bytes.
            on_done: called with the error if there are none.

        Raises:
            EncodeError: it is no value of the schema, which is known.
            PublishFailed: the registry is away (where all is encoded inline).
            ConfigError: the encoder or the settings don't fit.
            MissingExtra: the registry's client is not installed.
        """
        key = (encoder, topic, type(value))
        bound = self._bound.get(key)
        if bound is None:
            made = encoder.encoding(self._registry, topic, type(value))
            bound = self._bound.setdefault(key, made)
        job = _Job(value, send, on_done, copy_context())
        if not self._waits(key, bound, job):
            send(bound.encode(value))

    def _waits(self, key: _Key, bound: Encoder, job: _Job) -> bool:
        """Let a job wait for its schema; False where nothing is to be waited for."""
        if self._inline:
            return False
        with self._lock:
            if key in self._waiting:
                self._waiting[key][0].append(job)
                return True
            if key in self._known:
                return False
            asking = threading.Thread(
                target=self._ask, args=(key, bound), name="ackfloor:schema", daemon=True
            )
            self._waiting[key] = (deque([job]), asking)
        try:
            asking.start()
        except RuntimeError:
            # The interpreter ends, or is out of threads.
            with self._lock:
                del self._waiting[key]
            raise
        return True

    def _ask(self, key: _Key, bound: Encoder) -> None:
        while (job := self._next(key)) is not None:
            failed = self._encode(key, bound, job)
            if failed is not None:
                # First of all: whoever calls after it was told asks anew.
                others = self._give_up(key)
                job.on_done(failed)
                for other in others:
                    other.on_done(copy(failed))
                return

    def _next(self, key: _Key) -> _Job | None:
        with self._lock:
            jobs, _ = self._waiting[key]
            if jobs:
                return jobs.popleft()
            del self._waiting[key]
            return None

    def _give_up(self, key: _Key) -> deque[_Job]:
        with self._lock:
            return self._waiting.pop(key)[0]

    def _encode(self, key: _Key, bound: Encoder, job: _Job) -> BaseException | None:
        """Encode and send one value; the error where that is one of the schema."""
        try:
            data = bound.encode(job.value)
        except Exception as exc:  # noqa: BLE001 -- somebody waits for it
            if isinstance(exc, PublishFailed):
                return exc
            if isinstance(exc, EncodeError) and exc.error_type in _OF_THE_SCHEMA:
                return exc
            self._known.add(key)
            job.on_done(exc)
            return None
        self._known.add(key)
        job.context.run(job.send, data)
        return None

    def close(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for what waits for its schema to be sent."""
        until_s = monotonic() + timeout_s
        with self._lock:
            asking = [thread for _, thread in self._waiting.values()]
        for thread in asking:
            thread.join(max(0.0, until_s - monotonic()))


def plain(value: Any) -> Any:
    """A pydantic model's fields by the names that it is read with; anything else as it is."""
    return value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value


def plain_json(value: Any) -> Any:
    """What JSON can hold, in Python's own types; raises a ValueError for what it can't."""
    return to_jsonable_python(value)
