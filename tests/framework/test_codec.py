"""Decoding by annotation, and that a refused payload never shows in a message."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, AliasChoices, AliasPath, BaseModel, Field, field_validator

from ackfloor.core.records.record import Record
from ackfloor.declare.codec import Decode, make_decoder, shaper
from ackfloor.errors import ConfigError, DecodeError, DecoderUnavailable
from tests.contracts.executor_contract import EXITS
from tests.framework.stored import Stored


class Paid(BaseModel):
    """One event of a topic."""

    kind: Literal["paid"]
    amount: int = Field(alias="Amount")


class Refunded(BaseModel):
    """Another event of the same topic."""

    kind: Literal["refunded"]
    reason: str


Event = Annotated[Paid | Refunded, Field(discriminator="kind")]


class Checked(BaseModel):
    """A model whose validators speak for themselves."""

    name: str

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        if value == "bug":
            raise KeyError("no such entry")
        if value != "known":
            raise ValueError("not a known name")
        return value


def refusal(decode: Decode, data: bytes | None) -> DecodeError:
    """What is raised for these bytes."""
    with pytest.raises(DecodeError) as caught:
        decode(Stored(data))
    return caught.value


#: Decoders that any bytes are thrown at.
TOLERANT = [make_decoder(hint, accepts_null=False) for hint in (str, Event, dict[str, int], Any)]


@given(data=st.binary())
def test_bytes_arrive_as_they_are(data: bytes) -> None:
    """No copy, no interpretation."""
    assert make_decoder(bytes, accepts_null=False)(Stored(data)) is data
    assert make_decoder(bytes | None, accepts_null=True)(Stored(data)) is data


@given(text=st.text())
def test_text_is_utf_8(text: str) -> None:
    """Any text comes back as it was written."""
    assert make_decoder(str, accepts_null=False)(Stored(text.encode())) == text
    assert make_decoder(str | None, accepts_null=True)(Stored(text.encode())) == text


@given(data=st.binary())
def test_whatever_the_bytes_decoding_answers_or_raises_a_decode_error(data: bytes) -> None:
    """No payload can raise anything that would be retried in vain."""
    for decode in TOLERANT:
        with contextlib.suppress(DecodeError):
            decode(Stored(data))


def test_text_that_is_not_utf_8_is_refused_without_quoting_it() -> None:
    """The place is named, the byte is not."""
    error = refusal(make_decoder(str, accepts_null=False), b"ab\xff")

    assert str(error) == "not UTF-8: invalid start byte at byte 2 of 3"
    assert error.error_type == "UnicodeDecodeError"


@pytest.mark.parametrize(
    ("hint", "data", "value"),
    [
        (int, b"3", 3),
        (list[int], b"[1, 2]", [1, 2]),
        (dict[str, int], b'{"a": 1}', {"a": 1}),
        (Any, b'{"a": [null]}', {"a": [None]}),
        (Event, b'{"kind": "paid", "Amount": 3}', Paid(kind="paid", Amount=3)),
        (Paid | None, b'{"kind": "paid", "Amount": 3}', Paid(kind="paid", Amount=3)),
        (Paid | None, b"null", None),
    ],
)
def test_any_type_pydantic_validates_is_read_from_json(
    hint: Any, data: bytes, value: object
) -> None:
    """Models, unions told apart by a field, and plain containers."""
    assert make_decoder(hint, accepts_null=False)(Stored(data)) == value


@pytest.mark.parametrize("hint", [bytes, str, Paid])
def test_a_null_value_is_none_only_where_the_annotation_admits_it(hint: Any) -> None:
    """A tombstone is dead-lettered unless the handler said it can take one."""
    error = refusal(make_decoder(hint, accepts_null=False), None)

    assert str(error) == "null value where the annotation has no | None"
    assert error.error_type == "NullValue"
    assert make_decoder(hint | None, accepts_null=True)(Stored(None)) is None


@pytest.mark.parametrize(
    ("hint", "data", "told"),
    [
        (Paid, b'{"kind": "paid", "Amount": "s3cret"}', "Amount: Input should be a valid integer"),
        (Paid, b'{"kind": "s3cret", "Amount": 1}', "kind: Input should be 'paid'"),
        (Event, b'{"kind": "s3cret"}', "unknown discriminator value"),
        (Event, b'{"kind": "refunded"}', "refunded.reason: Field required"),
        (dict[str, int], b'{"s3cret": "x"}', "*: Input should be a valid integer"),
        (list[Paid], b'[{"kind": "paid"}]', "0.Amount: Field required"),
        (Paid, b"s3cret", "Invalid JSON: expected value at line 1 column 1"),
        (Checked, b'{"name": "s3cret"}', "name: Value error, not a known name"),
    ],
)
def test_a_refused_payload_names_the_field_and_never_the_payload(
    hint: Any, data: bytes, told: str
) -> None:
    """The text goes into headers and logs, where no personal data may land."""
    error = refusal(make_decoder(hint, accepts_null=False), data)

    assert told in str(error)
    assert "s3cret" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_json_that_is_none_is_told_from_json_that_does_not_fit() -> None:
    """The two have different owners: whoever wrote the bytes, and whoever wrote the type."""
    decode = make_decoder(Paid, accepts_null=False)

    assert refusal(decode, b"{").error_type == "InvalidJson"
    assert refusal(decode, b"{}").error_type == "ValidationError"


def test_only_the_first_problems_are_spelled_out() -> None:
    """A header must stay short whatever the payload's size."""
    data = b"[" + b",".join([b'"x"'] * 1000) + b"]"

    error = refusal(make_decoder(list[int], accepts_null=False), data)

    assert str(error).endswith("; 997 more")
    assert len(str(error)) < 400


def test_a_validator_that_breaks_is_a_decode_error() -> None:
    """A bug in a validator meets the record again on every attempt."""
    error = refusal(make_decoder(Checked, accepts_null=False), b'{"name": "bug"}')

    assert error.error_type == "KeyError"


def test_a_type_pydantic_can_not_validate_is_refused_before_the_first_record() -> None:
    """At start, with the parameter and what to write instead."""

    class Plain:
        pass

    with pytest.raises(ConfigError, match=r"handlers\.bill\.order='Plain'.*pass decoder="):
        make_decoder(Plain, accepts_null=False, field="handlers.bill.order")


@pytest.mark.parametrize(
    "hint", [Annotated[bytes, "x"], Annotated[str | None, "x"], Annotated[str, Field(max_length=3)]]
)
def test_constraints_on_raw_values_are_refused(hint: Any) -> None:
    """They would not be checked, and reading JSON instead would surprise."""
    with pytest.raises(ConfigError, match="without validation; write"):
        make_decoder(hint, accepts_null=True)


class Aliased(BaseModel):
    """A field that is found in one of two places."""

    total: int = Field(validation_alias=AliasChoices("sum", AliasPath("totals", 0)))


def test_fields_with_several_aliases_are_named_by_them() -> None:
    """Aliases are declared, so they may be shown."""
    error = refusal(make_decoder(Aliased, accepts_null=False), b'{"totals": ["s3cret"]}')

    assert "totals.0: Input should be a valid integer" in str(error)


class Upper:
    """A decoder of the user's own."""

    def decode(self, data: bytes, record: Record) -> object:
        if data == b"away":
            raise DecoderUnavailable("registry: connection refused")
        if data == b"own":
            raise DecodeError("unknown schema 7", error_type="UnknownSchema")
        return (record.topic(), data.decode().upper())


def test_a_decoder_of_ones_own_takes_the_place_of_the_annotation() -> None:
    """It gets the bytes and the record they came in."""
    decode = make_decoder(Paid, accepts_null=False, decoder=Upper())

    assert decode(Stored(b"abc")) == ("orders", "ABC")


def test_a_decoder_may_say_that_what_it_depends_on_is_away() -> None:
    """That is no decode error: the record stays open."""
    decode = make_decoder(Paid, accepts_null=False, decoder=Upper())

    with pytest.raises(DecoderUnavailable, match="connection refused"):
        decode(Stored(b"away"))


def test_whatever_else_a_decoder_raises_is_a_decode_error() -> None:
    """Its own words stay its own; anything else is told with its kind, in one line."""
    decode = make_decoder(Paid, accepts_null=False, decoder=Upper())
    own, other = refusal(decode, b"own"), refusal(decode, b"\xff" * 1000)

    assert (str(own), own.error_type) == ("unknown schema 7", "UnknownSchema")
    assert str(other).startswith("Upper raised UnicodeDecodeError: ")
    assert len(str(other)) < 300


class Speechless(Exception):
    """An exception whose text is an exit."""

    def __str__(self) -> str:
        raise SystemExit(0)


@pytest.mark.parametrize("end", [*EXITS, Speechless()], ids=lambda end: type(end).__name__)
def test_an_exit_of_a_decoder_is_a_decode_error(end: BaseException) -> None:
    """It says that these bytes are no value, and nothing about the process."""

    class Leaving:
        def decode(self, data: bytes, record: Record) -> object:
            raise end

    error = refusal(make_decoder(Paid, accepts_null=False, decoder=Leaving()), b"x")
    assert error.error_type == type(end).__name__
    assert str(error).startswith(f"Leaving raised {type(end).__name__}: ")


@pytest.mark.parametrize("end", EXITS, ids=lambda end: type(end).__name__)
def test_an_exit_of_a_validator_is_a_decode_error(end: BaseException) -> None:
    """Where the value is JSON, and where another format has given it."""

    def leave(value: object) -> object:
        raise end

    hint = Annotated[dict[str, int], AfterValidator(leave)]
    assert refusal(make_decoder(hint, accepts_null=False), b"{}").error_type == type(end).__name__
    with pytest.raises(DecodeError, match=f"a validator raised {type(end).__name__}"):
        shaper(hint, "handlers.bill.order")({})


def test_a_decoder_is_not_asked_about_null_values() -> None:
    """None where the annotation admits it, refused where it does not."""
    assert make_decoder(Paid | None, accepts_null=True, decoder=Upper())(Stored(None)) is None
    assert (
        refusal(make_decoder(Paid, accepts_null=False, decoder=Upper()), None).error_type
        == "NullValue"
    )
