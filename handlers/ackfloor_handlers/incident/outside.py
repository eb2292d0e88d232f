"""What the shop depends on, as files of the working folder: a warehouse, and a table's locks.

In life these would be other people's machines. Here `python -m ackfloor_handlers.incident mend` is
the other people.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

FOLDER = Path("incident-outside")
WAREHOUSE_DOWN = FOLDER / "warehouse-is-down"
LOCKED_ROW = FOLDER / "locked-row"
_LOOK_S = 0.05


class WarehouseDown(ConnectionError):
    """The warehouse does not answer."""


async def pick(number: int) -> int:
    """Have the warehouse pick a parcel; its number there.

    Raises:
        WarehouseDown: it does not answer.
    """
    if WAREHOUSE_DOWN.exists():
        raise WarehouseDown("warehouse.internal:443: connection refused")
    return 1_000_000 + number


async def lock_row(customer: str) -> None:
    """Take the lock of a customer's row, and wait while another session has it."""
    while _is_locked(customer):  # noqa: ASYNC110 -- what it waits for is in another process
        await asyncio.sleep(_LOOK_S)


def _is_locked(customer: str) -> bool:
    try:
        return LOCKED_ROW.read_text() == customer
    except FileNotFoundError:
        return False


def mend() -> list[str]:
    """Let the warehouse answer again, and end the session that holds the row; what was done."""
    mended = []
    if WAREHOUSE_DOWN.exists():
        WAREHOUSE_DOWN.unlink()
        mended.append("the warehouse answers again")
    if LOCKED_ROW.exists():
        customer = LOCKED_ROW.read_text()
        LOCKED_ROW.unlink()
        mended.append(f"the session that held the row of {customer} is ended")
    return mended
