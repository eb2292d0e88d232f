"""To: where the results of a handler go, and what a result's record has besides its value.

A result is what a handler returns or yields. The record that it becomes takes the key and the
headers of the record that was handled, so that its consumers see the same order and the same trace;
`To` says what is different.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ackfloor.core.parking.topic_names import check_source_topic
from ackfloor.core.records.envelope import PREFIX
from ackfloor.core.values.setting_error import SettingError
from ackfloor.declare.outgoing import HeadersGiven, Value, header_pairs
from ackfloor.declare.signature import returns_nothing
from ackfloor.errors import ConfigError

if TYPE_CHECKING:
    # The settings need the declarations, and encoders need the settings.
    from ackfloor.declare.encoders import SchemaEncoder

#: What results may be; for type checkers alone.
R = TypeVar("R")
ToKey = Callable[[Any], "bytes | str | None"]
ToHeaders = Callable[[Any], HeadersGiven]


class To(Generic[R]):
    """Where the results of a handler are published: `@app.handler("orders", to=To("invoices"))`.

    Args:
        topic: the topic to write to, which must exist.
        key: a function of the result that returns its record's key: bytes, text (written in UTF-8),
            or None for none. Without it the key is that of the record that was handled.
        headers: to be added to those of the record that was handled, in place of those of the same
            name; a dict, pairs, or a function of the result that returns either.
        encoder: one of `ackfloor.schemas`, to write results by a schema of the registry; without it
            bytes and text are written as they are, and all else as JSON.

    What a function raises is a failure of the record that was handled.
    """

    __slots__ = ("encoder", "headers", "key", "topic")

    @overload
    def __init__(
        self: To[Value],
        topic: str,
        *,
        key: ToKey | None = None,
        headers: HeadersGiven | ToHeaders = (),
    ) -> None: ...

    @overload
    def __init__(
        self: To[object],
        topic: str,
        *,
        encoder: SchemaEncoder,
        key: ToKey | None = None,
        headers: HeadersGiven | ToHeaders = (),
    ) -> None: ...

    def __init__(
        self,
        topic: str,
        *,
        encoder: SchemaEncoder | None = None,
        key: ToKey | None = None,
        headers: HeadersGiven | ToHeaders = (),
    ) -> None:
        self.topic = topic
        self.encoder = encoder
        self.key = key
        self.headers = headers

    def __repr__(self) -> str:
        return f"To({self.topic!r})"


def checked(to: str | To[Any], function: Callable[..., Any], handler: str) -> To[Any]:
    """What a handler's `to=` says, as a `To`.

    Raises:
        ConfigError: it is none, its topic has no legal name, or the function has no results.
    """
    field = f"handlers.{handler}.to"
    found: Any = To(to) if isinstance(to, str) else to
    if not isinstance(found, To) or not isinstance(found.topic, str):
        why, fix = "not where results go", 'write to="invoices", or to=To("invoices", key=...)'
        raise ConfigError(field, to, why, fix)
    try:
        check_source_topic(found.topic)
    except SettingError as exc:
        raise ConfigError.of(exc, field=field) from None
    if found.key is not None and not callable(found.key):
        fix = "pass a function of the result: key=lambda invoice: invoice.customer"
        raise ConfigError(f"{field}.key", found.key, "not a function", fix)
    if found.encoder is not None and not callable(getattr(found.encoder, "encoding", None)):
        fix = "pass one of ackfloor.schemas, such as Avro()"
        raise ConfigError(f"{field}.encoder", found.encoder, "encodes nothing", fix)
    _check_headers(f"{field}.headers", found.headers)
    if returns_nothing(function):
        why = "its return hint is None: it has no results"
        raise ConfigError(field, found.topic, why, "return or yield what is to be published")
    return found


def _check_headers(field: str, headers: Any) -> None:
    """Refuse headers that no record can have, as far as they are known."""
    if callable(headers):
        return
    try:
        pairs: list[tuple[Any, Any]] = [*header_pairs(headers)]
    except (TypeError, ValueError):
        pairs = [("", None)]
    for name, value in pairs:
        if not isinstance(name, str) or not name or not isinstance(value, bytes | None):
            fix = 'write headers={"type": "invoice"}, pairs, or a function of the result'
            raise ConfigError(field, headers, "not the headers of a record", fix)
        if name.startswith(PREFIX):
            why = f"the names that begin with {PREFIX} are those of parked records"
            raise ConfigError(field, name, why, "choose another name")
