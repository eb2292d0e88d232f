"""The policy in force: what each handler's records say about the policy they were retried under.

No record names its policy. The topic of a wait has the nominal delay in its name, the partition
decides its share of the jitter, and a message that exhausted its retries says how many there were.
Where a policy changed, the one of most records counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor import RetryPolicy, SettingError
from ackfloor.core.records.retry_policy import jitter_share
from ackfloor.core.values.durations import parse_duration
from ackfloor_monitoring.spark.whatif.whatif_model import MOST_REDELIVERIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

#: Group and handler.
Owner = tuple[str | None, str | None]
#: Of so small a share the jitter can't be told: waits are whole milliseconds.
_LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class PoliciesInForce:
    """What was found.

    Attributes:
        by_owner: of handlers whose waits are known.
        tiers_s: name of a tier, such as "5s" -> its delay in seconds.
    """

    by_owner: Mapping[Owner, RetryPolicy]
    tiers_s: Mapping[str, float]


def policies_in_force(attempts: DataFrame) -> PoliciesInForce:
    """Read them off the table; runs a Spark job.

    Args:
        attempts: from `whatif_frames.attempts`.
    """
    waits = attempts.where("first_life and not behind and not own_wait and attempt >= 1")
    rows = (
        waits.where("stage = 'retry' and tier is not null or stage = 'dlq' and exhausted")
        .groupBy("group", "handler", "stage", "attempt", "tier", "partition")
        .agg(
            F.count("*").alias("records"),
            F.median(F.col("not_before") - F.col("failed_at")).alias("wait_ms"),
        )
        .collect()
    )
    tiers_s = _tiers_s(row["tier"] for row in rows)
    by_owner: dict[Owner, list[Row]] = defaultdict(list)
    for row in rows:
        by_owner[row["group"], row["handler"]].append(row)
    found = {owner: _policy(each, tiers_s) for owner, each in by_owner.items()}
    known = {owner: policy for owner, policy in found.items() if policy is not None}
    return PoliciesInForce(known, tiers_s)


def _tiers_s(names: Iterable[str | None]) -> dict[str, float]:
    found = {}
    for name in set(names) - {None}:
        try:
            found[str(name)] = parse_duration(str(name), field="tier")
        except SettingError:  # of a topic with another name than ours
            continue
    return found


def _policy(rows: Iterable[Row], tiers_s: Mapping[str, float]) -> RetryPolicy | None:
    """The policy of one handler; None where no wait of it is known."""
    waits = [row for row in rows if row["tier"] in tiers_s]
    delays_s = _delays_s(waits, tiers_s)
    if not delays_s:
        return None
    exhausted: Counter[int] = Counter()
    for row in rows:
        if row["stage"] == "dlq":
            exhausted[row["attempt"] - 1] += row["records"]
    redeliveries = exhausted.most_common(1)[0][0] if exhausted else len(delays_s)
    try:
        return RetryPolicy(
            delays=[timedelta(seconds=each) for each in delays_s[: max(redeliveries, 1)]],
            max_redeliveries=min(redeliveries, MOST_REDELIVERIES),
            jitter=_jitter(waits, tiers_s),
        )
    except SettingError:  # headers may say anything
        return None


def _delays_s(waits: Iterable[Row], tiers_s: Mapping[str, float]) -> list[float]:
    """The delay after each failure, of most records, from the first on without a hole."""
    seen: dict[int, Counter[float]] = defaultdict(Counter)
    for row in waits:
        seen[row["attempt"]][tiers_s[row["tier"]]] += row["records"]
    delays_s: list[float] = []
    while counts := seen.get(len(delays_s) + 1):
        delays_s.append(counts.most_common(1)[0][0])
    return delays_s


def _jitter(waits: Iterable[Row], tiers_s: Mapping[str, float]) -> float:
    """The jitter, by the longest waits, in which whole milliseconds matter least."""
    jitters: dict[float, list[float]] = defaultdict(list)
    for row in waits:
        tier_s, share = tiers_s[row["tier"]], jitter_share(row["partition"])
        if row["wait_ms"] is not None and share >= _LEAST_SHARE:
            jitters[tier_s].append((row["wait_ms"] / 1000 / tier_s - 1) / share)
    if not jitters:
        return 0.0
    return min(1.0, max(0.0, round(median(jitters[max(jitters)]), 2)))
