"""What goes wrong in the month: handlers, their releases, and the causes of failures.

Hours count from the month's start. Weights are shares of the failing messages; where a cause has
windows it strikes only there. Nothing here is random.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

START_MS = int(datetime(2026, 10, 1, tzinfo=UTC).timestamp() * 1000)
HOURS = 30 * 24
END_MS = START_MS + HOURS * 3_600_000
PARTITIONS = 8

Direct = Literal["decode", "dead_letter", "crash"]


@dataclass(frozen=True, slots=True, eq=False)  # each is itself: they are keys of dicts
class Job:
    """A handler of the month.

    Attributes:
        input_per_s: what its topic gets in a second, all partitions together.
        releases: (hour of the roll-out, name), ascending.
    """

    group: str
    topic: str
    handler: str
    input_per_s: float
    releases: tuple[tuple[float, str], ...]
    consume_timeout_ms: int = 30_000

    def release_at(self, time_ms: int) -> str:
        """The release that runs at a time."""
        hour = (time_ms - START_MS) / 3_600_000
        return [name for since, name in self.releases if since <= hour][-1]


@dataclass(frozen=True, slots=True, eq=False)  # each is itself: they are keys of dicts
class Cause:
    """One reason why messages fail.

    Attributes:
        name: of the cause, for tests.
        error: class of the exception, its message (`{key}`, `{n}`) and (file, function, line).
        windows: (from, to) in hours; none: all month, by day more than by night.
        chance: that a redelivery succeeds, by luck of that delivery.
        heals: a redelivery after the window's end succeeds.
        cycle_s: the dependency is down for the first number of seconds of each second number.
        direct: it goes to the dead letters at once, with this reason.
        wait_s: the handler asks for this wait itself.
        timeout: the deadline ends the delivery, not an exception.
        hot: few keys have nearly all of it.
        producer: who wrote the messages.
        replay_hour: when the operator replays its dead letters, and with which chance of success.
    """

    name: str
    job: Job
    weight: float
    error: tuple[str, str, tuple[str, str, int]]
    windows: tuple[tuple[float, float], ...] = ()
    chance: float = 0.0
    heals: bool = False
    cycle_s: tuple[int, int] | None = None
    direct: Direct | None = None
    wait_s: float | None = None
    timeout: bool = False
    hot: bool = False
    producer: str = "shop"
    replay_hour: float | None = None
    replay_chance: float = 0.0


BILL = Job("billing", "orders", "bill", 9.0, ((0, "2.3.2"), (178, "2.4.0"), (184.5, "2.4.1")))
REFUND = Job("billing", "refunds", "refund", 1.2, ((0, "2.3.2"), (178, "2.4.0"), (184.5, "2.4.1")))
SHIP = Job("shipping", "orders", "dispatch", 9.0, ((0, "1.18.0"), (470, "1.19.0"), (523, "1.19.1")))
MAIL = Job("mail", "receipts", "send_receipt", 8.0, ((0, "0.9.4"), (360, "0.9.5")), 10_000)

CAUSES = (
    Cause("database blips", BILL, 0.10,
          ("OperationalError", "server closed the connection unexpectedly",
           ("billing/store.py", "save_invoice", 88)), chance=0.85),
    Cause("database blips, refunds", REFUND, 0.03,
          ("OperationalError", "server closed the connection unexpectedly",
           ("billing/store.py", "save_refund", 131)), chance=0.85),
    Cause("slow carrier", SHIP, 0.09,
          ("ConsumeTimeout", "no answer within 30 s of its start", ("", "", 0)),
          chance=0.6, timeout=True),
    Cause("hot accounts", BILL, 0.12,
          ("LockTimeout", "account {key} is locked by another transaction",
           ("billing/ledger.py", "lock_account", 42)), chance=0.45, hot=True),
    Cause("release 2.4.0 knows no coupon", BILL, 0.08,
          ("KeyError", "'coupon'", ("billing/pricing.py", "apply_discounts", 57)),
          windows=((178, 184.5),), heals=True, replay_hour=201, replay_chance=0.985),
    Cause("release 1.19.0 asks slowly", SHIP, 0.07,
          ("ConsumeTimeout", "no answer within 30 s of its start", ("", "", 0)),
          windows=((470, 523),), chance=0.5, timeout=True),
    Cause("payment provider away", BILL, 0.13,
          ("ConnectionRefusedError", "[Errno 111] Connection refused",
           ("billing/provider.py", "charge", 23)),
          windows=((314.2, 315.1),), heals=True, replay_hour=322, replay_chance=1.0),
    Cause("payment provider away for minutes", REFUND, 0.04,
          ("ConnectionRefusedError", "[Errno 111] Connection refused",
           ("billing/provider.py", "refund", 61)), windows=((589, 589.2),), heals=True),
    Cause("address service flaps", SHIP, 0.10,
          ("HTTPStatusError", "503 Service Unavailable for url /v2/addresses/{key}",
           ("shipping/address.py", "resolve", 34)), windows=((250, 310),), cycle_s=(120, 300)),
    Cause("mail provider limits", MAIL, 0.05,
          ("Retry", "429 from the provider, try again in 7 minutes",
           ("mail/provider.py", "send", 72)), windows=((380, 404),), wait_s=420, chance=0.8),
    Cause("mail blips", MAIL, 0.07,
          ("SMTPServerDisconnected", "Connection unexpectedly closed",
           ("mail/provider.py", "send", 79)), chance=0.9),
    Cause("legacy importer", BILL, 0.05,
          ("ValidationError", "1 validation error for Order: total: input should be a number",
           ("", "", 0)),
          windows=tuple((24 * day + 6, 24 * day + 7) for day in (4, 11, 18, 25)),
          direct="decode", producer="legacy-importer"),
    Cause("unknown recipient", MAIL, 0.03,
          ("InvalidRecipient", "no mailbox for {key}", ("mail/render.py", "address_of", 15)),
          direct="dead_letter"),
    Cause("crashing attachment", MAIL, 0.0004,
          ("WorkerCrash", "the worker process died while it handled this record", ("", "", 0)),
          direct="crash"),
    Cause("slow carrier, again", SHIP, 0.01,
          ("ConsumeTimeout", "no answer within 30 s of its start", ("", "", 0)),
          windows=((719.2, 720),), chance=0.5, timeout=True),
    Cause("tax service changed its answer", REFUND, 0.03,
          ("TypeError", "unsupported operand type(s) for +: 'Decimal' and 'NoneType'",
           ("billing/tax.py", "total_tax", 19)), windows=((718.5, 720),)),
)  # fmt: skip

# Hours at which a worker was killed: what it had just parked is parked once more.
KILLS = (61.0, 178.6, 314.5, 470.3, 589.1)
