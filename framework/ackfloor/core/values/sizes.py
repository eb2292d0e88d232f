"""Sizes: bytes as people write them, `512MiB` or a whole number."""

from __future__ import annotations

import re

from ackfloor.core.values.setting_error import SettingError

_SIZE = re.compile(r"([0-9]{1,18})\s*(B|KiB|MiB|GiB|kB|KB|MB|GB)?", re.IGNORECASE)
_BYTES = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def parse_size(value: str, *, field: str) -> int:
    """A size in bytes.

    Raises:
        SettingError: the text is not a size.
    """
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise SettingError(field, value, "not a size", 'write one such as "256MiB", or bytes')
    return int(match[1]) * _BYTES[(match[2] or "b").lower()]
