"""A pretend payment provider whose cards fail on purpose.

The card's name says how: the demo must observe what it seeds. `attempt` stands for the provider's
recovery: a flaky card works from a certain attempt on.
"""

from __future__ import annotations

import asyncio

USUAL_S = 0.05
SLOW_S = 0.3


class ProviderUnavailable(Exception):
    """The provider did not answer this time; it may next time."""


async def charge(card: str, attempt: int) -> None:
    """Charge a card.

    Args:
        card: `ok`, `slow`, `flaky-N` (works from attempt N on), `stuck-N` (answers from attempt
            N on, and before that never), `stuck` (never answers).
        attempt: which delivery this is, 1 for the first.

    Raises:
        ProviderUnavailable: a flaky card before its time.
    """
    kind, _, heals = card.partition("-")
    await asyncio.sleep(SLOW_S if kind == "slow" else USUAL_S)
    if kind == "flaky" and attempt < int(heals):
        raise ProviderUnavailable(f"provider answered 503 to attempt {attempt}")
    if kind == "stuck" and (not heals or attempt < int(heals)):
        await asyncio.Event().wait()
