"""SettingError: a refused setting, in one line.

It lives in the core because the rules that refuse a setting live here; the shell around the
core adds where the value came from (`ackfloor.errors.ConfigError`).
"""

from __future__ import annotations


class SettingError(ValueError):
    """A value that can't be used: `field=value: why; fix`.

    Attributes:
        field: the setting's name as its user writes it.
        value: what it was set to.
        why: what is wrong with that.
        fix: what to write instead.
    """

    def __init__(self, field: str, value: object, why: str, fix: str) -> None:
        super().__init__(f"{field}={value!r}: {why}; {fix}")
        self.field = field
        self.value = value
        self.why = why
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        # An exception is rebuilt from its text alone otherwise, and this one takes four parts.
        return (type(self), (self.field, self.value, self.why, self.fix))
