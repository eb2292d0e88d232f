"""RedactionSettings: `[redaction]`, what is masked or dropped of records outside of Kafka."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ackfloor.core.records.redaction import Redaction
from ackfloor.settings.value_types import listed


def _lines(value: object) -> object:
    """A list, or text with a pattern on each line: commas are part of patterns."""
    if isinstance(value, str):
        return tuple(line for line in value.splitlines() if line)
    return value


class RedactionSettings(BaseModel):
    """What is taken from records before they are stored or shown outside of Kafka."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    payload: Literal["keep", "drop"] = Field(
        default="keep", description="`drop` keeps no payload at all."
    )
    key: Literal["keep", "hash", "drop"] = Field(
        default="keep", description="`hash` keeps a short hash, by which equal keys stay equal."
    )
    fields: Annotated[tuple[str, ...], BeforeValidator(listed)] = Field(
        default=(),
        description="Fields of JSON payloads that are masked, at any depth: `email,card.number`. "
        "A payload that is no JSON is then not kept.",
    )
    headers: Annotated[tuple[str, ...], BeforeValidator(listed)] = Field(
        default=(), description="Headers whose values are masked: `authorization,x-user-*`."
    )
    patterns: Annotated[tuple[str, ...], BeforeValidator(_lines)] = Field(
        default=(),
        description="Regular expressions (in a variable one per line) whose matches are masked in "
        "keys, payloads, headers and error texts.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.rules()
        return self

    def rules(self) -> Redaction:
        """The rules as the core applies them."""
        return Redaction(self.payload, self.key, self.fields, self.headers, self.patterns)
