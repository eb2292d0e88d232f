"""Asked: the policy that each handler's messages are replayed through, and the one in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from ackfloor import RetryPolicy
from ackfloor_monitoring.spark.whatif.answer import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ackfloor_monitoring.spark.whatif.policies_in_force import Owner
    from ackfloor_monitoring.spark.whatif.whatif_model import PolicyOptions


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of each handler.

    Attributes:
        in_force: as the records say; without handlers of which they say too little.
        by_owner: of these handlers the other policy.
        otherwise: the other policy of every other handler.
    """

    in_force: Mapping[Owner, RetryPolicy]
    by_owner: Mapping[Owner, RetryPolicy]
    otherwise: RetryPolicy

    @classmethod
    def of(cls, policy: RetryPolicy | PolicyOptions, in_force: Mapping[Owner, RetryPolicy]) -> Self:
        """A whole policy for everybody, or options over what each handler has.

        Raises:
            SettingError: an option is refused, alone or with the rest of a policy in force.
        """
        if isinstance(policy, RetryPolicy):
            return cls(in_force, dict.fromkeys(in_force, policy), policy)
        own = {owner: policy.policy(base) for owner, base in in_force.items()}
        return cls(in_force, own, policy.policy())

    def policy_of(self, owner: Owner) -> Policy:
        """The other policy of a handler."""
        return _as_answer(self.by_owner.get(owner, self.otherwise))

    def in_force_of(self, owner: Owner) -> Policy | None:
        """The policy in force of a handler; None where the records say too little."""
        found = self.in_force.get(owner)
        return None if found is None else _as_answer(found)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Rows of group, handler, `waits_s`, `jitter` and `base_jitter`."""
        schema = pa.schema(
            [
                *(("group", pa.string()), ("handler", pa.string())),
                *(("waits_s", pa.list_(pa.float64())), ("jitter", pa.float64())),
                ("base_jitter", pa.float64()),
            ]
        )
        rows = [
            {
                "group": group,
                "handler": handler,
                "waits_s": [float(each) for each in policy.schedule()],
                "jitter": policy.jitter,
                "base_jitter": self.in_force[group, handler].jitter,
            }
            for (group, handler), policy in self.by_owner.items()
        ]
        # From Arrow they are part of the plan; from Python they would be a job of their own.
        return spark.createDataFrame(pa.Table.from_pylist(rows, schema))


def _as_answer(policy: RetryPolicy) -> Policy:
    waits_s = policy.schedule()
    return Policy(len(waits_s), waits_s, policy.jitter)
