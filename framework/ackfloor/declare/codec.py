"""Decoding: from a record's bytes to the value that a handler takes, by its type hint.

`bytes` gets them as they are, `str` strictly as UTF-8, and anything else is what pydantic
validates from JSON: a model, a dataclass, a TypedDict, `list[int]`, a discriminated union.

What does not decode raises `DecodeError` and goes to the dead-letter queue, where its text is
written to a header. So the text never quotes the payload: it names fields as the type declares them
(a key that came from the payload is shown as `*`), and no input values. The message of a user's own
validator is passed on as it is.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Protocol,
    Self,
    Union,
    get_args,
    get_origin,
    runtime_checkable,
)

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from ackfloor.core.records.record import Record
from ackfloor.errors import ConfigError, DecodeError, DecoderUnavailable

if TYPE_CHECKING:
    from ackfloor.settings.registry_settings import RegistrySettings

#: Problems of one payload that are spelled out; the rest is counted.
SHOWN_PROBLEMS = 3

Decode = Callable[[Record], object]


class Decoder(Protocol):
    """Turns a record's bytes into the value a handler takes. Passed as `decoder=`.

    It is called by several threads at once. `DecodeError`, and any other exception (`SystemExit`
    as well), sends the record to the dead-letter queue; `DecoderUnavailable` leaves it open and
    asks again later. Not called for null values: they are None where the annotation admits it.
    """

    def decode(self, data: bytes, record: Record) -> object:
        """The value of these bytes; `record` tells topic, headers and the rest."""
        ...


@runtime_checkable
class SchemaDecoder(Protocol):
    """What `ackfloor.schemas` offers for `decoder=`: bound to a decoder when a worker starts."""

    def reaching(self, registry: RegistrySettings, consume_timeout_s: float | None) -> Self:
        """The same with the settings of the registry and the handler; connects to nothing."""
        ...

    def bind(self, value_type: Any, field: str) -> Decoder:
        """The decoder of a handler whose parameter `field` has this annotation.

        Raises:
            ConfigError: the type or the settings don't fit.
            MissingExtra: the registry's client is not installed.
        """
        ...


def make_decoder(
    value_type: Any,
    accepts_null: bool,
    *,
    decoder: Decoder | SchemaDecoder | None = None,
    field: str = "value",
) -> Decode:
    """The function that decodes a handler's records, built once.

    Args:
        value_type: the annotation of the handler's value.
        accepts_null: whether a null value becomes None instead of being refused.
        decoder: the user's own, or one of `ackfloor.schemas`.
        field: the parameter's name, for the refusal of a type that pydantic can't validate.
    """
    if decoder is not None:
        return _own(_bound(decoder, value_type, field), accepts_null)
    bare = without_none(value_type)
    if bare is bytes:
        return raw_or_none if accepts_null else raw
    if bare is str:
        return _text_or_none if accepts_null else _text
    _refuse_constrained(bare, field)
    return _json(value_type, accepts_null, field)


def without_none(hint: Any) -> Any:
    """`bytes` of `bytes | None`; other unions stay whole, as their order matters to pydantic."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [choice for choice in get_args(hint) if choice is not types.NoneType]
        if len(rest) == 1:
            return rest[0]
    return hint


def _refuse_constrained(hint: Any, field: str) -> None:
    """Refuse constraints on raw bytes and text, which are not validated."""
    while get_origin(hint) is Annotated:
        hint = without_none(get_args(hint)[0])
        if hint in (bytes, str):
            why = "raw bytes and text are passed on without validation"
            fix = f"write {hint.__name__}, or take a model"
            raise ConfigError(field, f"Annotated[{hint.__name__}, ...]", why, fix)


def _null() -> DecodeError:
    return DecodeError("null value where the annotation has no | None", error_type="NullValue")


def raw_or_none(record: Record) -> bytes | None:
    """The value as it is."""
    return record.value()


def raw(record: Record) -> bytes:
    """The value as it is; raises DecodeError where there is none."""
    data = record.value()
    if data is None:
        raise _null()
    return data


def _text_or_none(record: Record) -> str | None:
    data = record.value()
    return None if data is None else _utf8(data)


def _text(record: Record) -> str:
    data = record.value()
    if data is None:
        raise _null()
    return _utf8(data)


def _utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        # Its own text would quote the byte.
        message = f"not UTF-8: {exc.reason} at byte {exc.start} of {len(data)}"
        raise DecodeError(message, error_type="UnicodeDecodeError") from None


def _json(value_type: Any, accepts_null: bool, field: str) -> Decode:
    adapter, refusal = _validation(value_type, field)
    validate = adapter.validator.validate_json

    def decode(record: Record) -> object:
        data = record.value()
        if data is None:
            if accepts_null:
                return None
            raise _null()
        try:
            return validate(data)
        except ValidationError as exc:
            # `from None`: the error underneath carries the input, and stacks are written out.
            raise refusal(exc) from None
        except BaseException as exc:
            raise _raised("a validator", exc) from exc

    return decode


def shaper(value_type: Any, field: str) -> Callable[[object], object]:
    """The function that validates plain data, decoded from another format, as a handler's type.

    Raises:
        ConfigError: pydantic can't validate the type.
    """
    adapter, refusal = _validation(value_type, field)
    validate = adapter.validator.validate_python

    def shaped(plain: object) -> object:
        try:
            return validate(plain)
        except ValidationError as exc:
            raise refusal(exc) from None
        except BaseException as exc:
            raise _raised("a validator", exc) from exc

    return shaped


def _validation(
    value_type: Any, field: str
) -> tuple[TypeAdapter[object], Callable[[ValidationError], DecodeError]]:
    """A type's validation, and what to raise where it fails."""
    name = type_name(value_type)
    try:
        adapter: TypeAdapter[object] = TypeAdapter(value_type)
        known = frozenset(_declared(adapter.core_schema))
    except (PydanticUserError, PydanticUndefinedAnnotation) as exc:
        why = f"pydantic can't validate {name}: {str(exc).splitlines()[0]}"
        fix = "take bytes, str, a pydantic model, or pass decoder="
        raise ConfigError(field, name, why, fix) from exc

    def refusal(exc: ValidationError) -> DecodeError:
        return DecodeError(_validation_text(exc, name, known), error_type=_error_type(exc))

    return adapter, refusal


def _bound(decoder: Decoder | SchemaDecoder, value_type: Any, field: str) -> Decoder:
    return decoder.bind(value_type, field) if isinstance(decoder, SchemaDecoder) else decoder


def _own(decoder: Decoder, accepts_null: bool) -> Decode:
    decode_bytes = decoder.decode
    name = type(decoder).__name__

    def decode(record: Record) -> object:
        data = record.value()
        if data is None:
            if accepts_null:
                return None
            raise _null()
        try:
            return decode_bytes(data, record)
        except (DecodeError, DecoderUnavailable):
            raise
        except BaseException as exc:
            raise _raised(name, exc) from exc

    return decode


def _raised(who: str, exc: BaseException) -> DecodeError:
    kind = type(exc).__qualname__
    try:
        lines = str(exc).splitlines() or [""]
    except BaseException as failed:  # noqa: BLE001 -- its text is user code as well
        lines = [f"<no text: its __str__ raised {type(failed).__name__}>"]
    return DecodeError(f"{who} raised {kind}: {lines[0][:200]}", error_type=kind)


def type_name(hint: Any) -> str:
    """A type as its author wrote it, for messages."""
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def _error_type(exc: ValidationError) -> str:
    first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
    return "InvalidJson" if first["type"] == "json_invalid" else "ValidationError"


def _validation_text(exc: ValidationError, name: str, known: frozenset[str]) -> str:
    """What is wrong with a payload, without quoting it."""
    problems = exc.errors(include_url=False, include_context=False, include_input=False)
    texts = []
    for problem in problems[:SHOWN_PROBLEMS]:
        place = ".".join(
            str(part) if isinstance(part, int) or part in known else "*" for part in problem["loc"]
        )
        # The message of this one type quotes the tag that came.
        tag = problem["type"] == "union_tag_invalid"
        text = "unknown discriminator value" if tag else problem["msg"]
        texts.append(f"{place}: {text}" if place else text)
    more = len(problems) - len(texts)
    return f"not a valid {name}: {'; '.join(texts)}{f'; {more} more' if more else ''}"


def _declared(schema: object) -> Iterator[str]:
    """Every name a type declares: fields, aliases, tags of its unions."""
    if isinstance(schema, dict):
        for key, inner in schema.items():
            if key in ("fields", "choices") and isinstance(inner, dict):
                yield from (str(name) for name in inner)
            elif key in ("name", "validation_alias") and isinstance(inner, str):
                yield inner
            # Skip what is no schema: defaults, metadata, a user's own config.
            if key not in ("metadata", "default", "config", "cls", "expected"):
                yield from _declared(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            if isinstance(inner, str):
                yield inner  # a part of an alias path
            else:
                yield from _declared(inner)
