"""BreakerControl: `POST /breaker` at the run's address, which forces a circuit breaker.

    POST /breaker
    Authorization: Bearer <token>

    {"action": "open", "handler": "bill", "for_s": 1800, "reason": "the bank is away"}

Actions are `open`, `close` and `auto`. Without `for_s`, it lasts until `auto` takes it back or the
run ends. The token is that of settings, see `run_control`.
"""

from __future__ import annotations

from ackfloor.live.breaker_orders import Action
from ackfloor.live.kept_orders import HandlerControl

PATH = "/breaker"


class BreakerControl(HandlerControl[Action]):
    """Answers `POST /breaker` by `RunBreakers.force`."""

    actions = Action
    form = 'the body is {"action": "open", "handler": name, "for_s": 1800, "reason": text}'
