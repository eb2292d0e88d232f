"""OutputMode: what `output=` of a handler may be, and what it can not be combined with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ackfloor.errors import ConfigError

if TYPE_CHECKING:
    from ackfloor.declare.registration import HandlerSpec

OutputMode = Literal["at_least_once", "exactly_once"]


def check_output(spec: HandlerSpec) -> None:
    """Check a handler's `output=`.

    Raises:
        ConfigError: names the option, its value and the fix.
    """
    if not spec.exactly_once:
        return
    field = f"handlers.{spec.name}.output"
    if spec.to is not None and spec.to.encoder is not None:
        why = "an encoder may have to wait for the registry, and an output is held at once"
        fix = "encode in the function and return bytes, or leave out output="
        raise ConfigError(field, spec.output, why, fix)
