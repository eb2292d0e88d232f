"""A report made by hand: two groups, names that try to be markup, and everything once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ackfloor_monitoring.spark.report.answer import (
    Bucket,
    FailureGroup,
    FarRecord,
    Handler,
    HotKey,
    HotPartition,
    Replayed,
    Report,
    Sample,
    Step,
    Times,
    Totals,
    Traffic,
)

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAYS = tuple(datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2, 3))
EVIL = "</script><img src=x onerror=alert(1)>\x1b[31m"
TOTALS = Totals(60, 50, 4, 6, 1, 2, 20, 12, 5, 3, 0)


def failure_group(
    handler: str, failures: int, first: datetime, cause: str = "cafe"
) -> FailureGroup:
    """A cause with a message that tries to be markup."""
    sample = Sample(f"orders--billing--{EVIL}", 3, 7, EVIL * 10)
    return FailureGroup(
        "billing", handler, cause, None, "KeyError", failures, 2, failures / 50,
        first, DAYS[2], ("1.0", "1.1"), (failures - 1, 0, 1), sample, 2, 1,
    )  # fmt: skip


GROUPS = (
    failure_group(EVIL, 40, DAYS[0]),
    *(failure_group("bill", 1, DAYS[2], f"c{n}") for n in range(14)),
)
REPORT = Report(
    made_at=NOW,
    table="/data/failures",
    groups=("billing", "mail"),
    first=DAYS[0],
    last=DAYS[2] + timedelta(hours=3),
    commits_known=True,
    commits_refused=0,
    totals=TOTALS,
    bucket_s=86_400,
    buckets=DAYS,
    over_time=tuple(Bucket(DAYS[n % 3], "mail", f"h{n}", "error", n + 1) for n in range(11)),
    failure_groups=GROUPS,
    failure_groups_left_out=0,
    since=DAYS[2],
    since_release=None,
    new=GROUPS[1:],
    funnel=(
        Step("billing", "bill", 1, ("1s",), 20, 11, 1, 3, 0),
        Step("billing", "bill", 2, ("5s", "10m"), 5, 1, 0, 0, 0),
        Step("billing", "bill", 3, (), 4, 0, 4, 0, 0),
    ),
    times=(Times("billing", "bill", 12, (1.1, 90.0, 4_000.0), 5, (0.0, 1.0, 90_000.0)),),
    hot_keys=(HotKey("billing", "orders", EVIL, 30, 4, 1, 0.6),),
    hot_partitions=(HotPartition("billing", "orders", 3, 30, 12, 2.5),),
    traffic=(Traffic("billing", "orders", 100_000, 20, 45, 0.00045),),
    handlers=(Handler("billing", "bill", 7, 43, 2, (0.05, 1.0, 2.0, 30.0)),),
    replays=(Replayed("billing", "bill", 6, 5, 1, 0, 0),),
)
FAR = replace(
    REPORT,
    far_records=13,
    far=tuple(
        FarRecord(
            "billing", "bill", EVIL, 0, n, datetime(2090, 1, 1, tzinfo=UTC) - timedelta(days=n), NOW
        )
        for n in range(10)
    ),
)
UNKNOWN = replace(
    REPORT,
    commits_known=False,
    totals=replace(TOTALS, recovered=0, waiting=0, unknown=15),
    new=(),
    replays=(),
    since_release="1.1",
)
#: As build_report makes it where no commit is read: what is no number is 0.
REPLAYED_UNKNOWN = replace(
    UNKNOWN,
    failure_groups=tuple(replace(group, healed=0) for group in GROUPS),
    funnel=(Step("billing", "bill", 1, ("1s",), 20, 0, 1, 0, 14),),
    times=(Times("billing", "bill", 0, None, 5, (0.0, 1.0, 90_000.0)),),
    replays=(Replayed("billing", "bill", 6, 0, 1, 0, 5),),
)
