"""Redaction: masks and drops parts of records before they are kept or shown outside of Kafka.

A rule can only take away. Where one can't be applied it takes away everything it might have
touched: fields are to be masked and the payload is no JSON, then no payload is left. The record in
Kafka is never changed, so nothing is lost by it.

Patterns work on bytes, so they reach what is no valid UTF-8. Their `\\d` and `\\w` are ASCII's.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from ackfloor.core.records.record import Headers
from ackfloor.core.values.json_bytes import json_bytes
from ackfloor.core.values.setting_error import SettingError

MASK: Final = "***"


@dataclass(frozen=True, slots=True)
class Redaction:
    """What is taken away; nothing by default.

    Attributes:
        payload: "drop" leaves none at all.
        key: "hash" leaves 16 hexadecimal digits of its SHA-256, by which equal keys stay equal;
            whoever can guess a key can check the guess.
        fields: of JSON payloads, masked at any depth; `card.number` is `number` right in `card`,
            and a field of that very name.
        headers: the user's own, masked; `*` stands for anything, case does not count.
        patterns: regular expressions, masked in key, payload, headers and error texts.

    Raises:
        SettingError: a pattern is none, or an entry is empty.
    """

    payload: Literal["keep", "drop"] = "keep"
    key: Literal["keep", "hash", "drop"] = "keep"
    fields: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("fields", "headers", "patterns"):
            entries: tuple[str, ...] = getattr(self, name)
            if not all(entries):
                raise SettingError(
                    f"redaction.{name}", entries, "an entry is empty", "leave it out"
                )
        for path in self.fields:
            if not all(path.split(".")):
                raise SettingError(
                    "redaction.fields", path, "a name between its dots is empty",
                    "write one such as card.number",
                )  # fmt: skip
        for pattern in self.patterns:
            try:
                re.compile(pattern.encode())
            except re.error as error:
                raise SettingError(
                    "redaction.patterns", pattern, f"no regular expression: {error}", "correct it"
                ) from None

    @property
    def active(self) -> bool:
        """Whether anything is taken away at all."""
        return self != Redaction()

    def of_payload(self, value: bytes | None) -> bytes | None:
        """The payload as it may be kept; None where nothing of it may."""
        if value is None or self.payload == "drop":
            return None
        if self.fields:
            masked = _masked_json(value, tuple(f".{path}" for path in self.fields))
            if masked is None:
                return None
            value = masked
        return self._of_bytes(value)

    def of_key(self, value: bytes | None) -> bytes | None:
        """The key as it may be kept."""
        if value is None or self.key == "drop":
            return None
        if self.key == "hash":
            return hashlib.sha256(value).hexdigest()[:16].encode()
        return self._of_bytes(value)

    def of_headers(self, headers: Headers | None) -> list[tuple[str, bytes | None]]:
        """The user's own headers as they may be kept; names stay."""
        hidden = self.header_names()
        return [
            (name, self._of_header(value, hidden=bool(hidden and hidden.fullmatch(name))))
            for name, value in headers or ()
        ]

    def of_text(self, text: str | None) -> str | None:
        """An error's message or stack as it may be kept."""
        if text is None or not self.patterns:
            return text
        return self._of_bytes(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def header_names(self) -> re.Pattern[str] | None:
        """What the whole name of a masked header matches; None where none is masked."""
        if not self.headers:
            return None
        globs = (".*".join(map(re.escape, glob.split("*"))) for glob in self.headers)
        return re.compile("|".join(globs), re.IGNORECASE | re.DOTALL)

    def _of_header(self, value: bytes | None, *, hidden: bool) -> bytes | None:
        if value is None:
            return None
        return MASK.encode() if hidden else self._of_bytes(value)

    def _of_bytes(self, value: bytes) -> bytes:
        for pattern in self.patterns:
            value = re.sub(pattern.encode(), MASK.encode(), value)
        return value


NO_REDACTION: Final = Redaction()


def _masked_json(value: bytes, paths: tuple[str, ...]) -> bytes | None:
    """The document with these fields masked; untouched bytes where it has none of them."""
    try:
        document = json.loads(value)
        found = _mask(document, paths, "")
    except (ValueError, RecursionError):
        return None
    return json_bytes(document) if found else value


def _mask(node: Any, paths: tuple[str, ...], above: str) -> bool:
    """Mask in place what ends in one of these paths; whether anything was."""
    found = False
    if isinstance(node, list):
        for each in node:
            found |= _mask(each, paths, above)
    elif isinstance(node, dict):
        for name, inner in node.items():
            here = f"{above}.{name}"
            if here.endswith(paths):
                node[name] = MASK
                found = True
            else:
                found |= _mask(inner, paths, here)
    return found
