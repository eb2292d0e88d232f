"""The model: a message fails until its cause is over, and succeeds from then on.

That moment is not recorded. What is known of a message:

* the call that began at `failing_until` failed; so did every earlier one;
* the call that began at `works_from`, when its last wait was over, succeeded; none did, where the
  message died at the end of its retries.

In between lies the moment at which it recovered. Other messages with the same handler and cause
narrow the stretch: their last failure before `works_from`, and their first success after that.
Within the rest no moment is more likely than another, so a redelivery in it fails with a
probability that falls from 1 to 0 along the stretch. All counts are sums of such probabilities.

What a later attempt would have done for a message that died is unknown. It counts as dead under
any policy, and the lower bound of the dead letters is for all of them recovering at the first
redelivery that is clearly later than their last one was.

A redelivery begins when its wait is over, and its call takes as long as the message's call of that
number did; where there was none, as long as they did on average. So does whatever passed between a
failure and the next call beside the wait. A wait has the share of jitter that the message's wait of
that number had, as its partition decides. So the policy in force, run again, gives what was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ackfloor import RetryPolicy, SettingError

_CURVE = frozenset({"initial_delay", "multiplier", "max_delay"})
PRESETS = {"activemq": RetryPolicy.activemq, "rocketmq": RetryPolicy.rocketmq}
#: A message's row of probabilities has this many places at most.
MOST_REDELIVERIES = 1_000
#: "Clearly later": by more than this share of the time from the first failure to the last. Less
#: is within what jitter and slow calls do to one and the same policy.
CLEARLY_LATER = 0.1


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """A policy as command-line options; None for options that are not given."""

    preset: str | None = None
    max_redeliveries: int | None = None
    initial_delay: str | None = None
    multiplier: float | None = None
    max_delay: str | None = None
    jitter: float | None = None
    delays: Sequence[str] = ()

    def policy(self, base: RetryPolicy | None = None) -> RetryPolicy:
        """The policy; what is not given is as in `base`.

        Without waits of their own, the options keep those of `base`; the last one goes on where
        there are more redeliveries.

        Args:
            base: the policy in force; None where it is not known: then as in `RetryPolicy()`.

        Raises:
            SettingError: a value is refused, or two of them exclude each other; `field` is the
                option.
        """
        given = self._given()
        if self.preset is not None:
            return _preset(self.preset, given)
        curve = _CURVE & given.keys()
        if "delays" in given and curve:
            why = f"an explicit schedule has no {min(curve)}"
            fix = f"leave {_option(min(curve))} or --delay away"
            raise SettingError("--delay", ",".join(self.delays), why, fix)
        try:
            kept = {} if base is None else _kept(base, given)
            policy = RetryPolicy(**{**kept, **given})
        except SettingError as error:
            raise SettingError(
                _option(error.field.removeprefix("retry.")), error.value, error.why, error.fix
            ) from None
        budget = policy.max_redeliveries
        if budget is None or budget > MOST_REDELIVERIES:
            why = f"over {MOST_REDELIVERIES}, the most that can be replayed"
            raise SettingError("--max-redeliveries", budget, why, "give fewer")
        return policy

    def _given(self) -> dict[str, Any]:
        options = {
            "max_redeliveries": self.max_redeliveries,
            "initial_delay": self.initial_delay,
            "multiplier": self.multiplier,
            "max_delay": self.max_delay,
            "jitter": self.jitter,
            "delays": tuple(self.delays) or None,
        }
        return {name: value for name, value in options.items() if value is not None}


def _kept(base: RetryPolicy, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a policy takes over from the one in force, beside what is given."""
    kept: dict[str, Any] = {"max_redeliveries": base.max_redeliveries, "jitter": base.jitter}
    if "delays" in given:
        return kept
    if not _CURVE & given.keys():
        waits_s = base.delays_s or base.schedule()
        return {**kept, "delays": [timedelta(seconds=each) for each in waits_s]}
    # A curve through the first waits of the schedule.
    first_s, *others_s = base.schedule()
    if others_s and others_s[0] >= first_s:
        kept["multiplier"] = others_s[0] / first_s
    kept["initial_delay"] = timedelta(seconds=first_s)
    kept["max_delay"] = timedelta(seconds=max(RetryPolicy().max_delay_s, base.max_delay_s))
    return kept


def _preset(name: str, given: Mapping[str, object]) -> RetryPolicy:
    if given:
        option = _option(min(given))
        fix = f"leave {option} away, or say the whole policy without --preset"
        raise SettingError("--preset", name, f"it is a whole policy, and {option} is given", fix)
    if name not in PRESETS:
        raise SettingError("--preset", name, "no such preset", f"there are {', '.join(PRESETS)}")
    return PRESETS[name]()


def _option(field: str) -> str:
    return "--delay" if field == "delays" else "--" + field.replace("_", "-")
