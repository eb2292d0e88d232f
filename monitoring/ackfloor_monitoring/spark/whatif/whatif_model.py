"""The model: a message fails until its cause is over, and succeeds from then on.

When that was is not written anywhere. What is known of a message:

* that a call which began at `failing_until` failed; so did every earlier one;
* that one which began at `works_from`, when its last wait was over, succeeded; never, for one that
  died at the end of its retries.

In between lies the moment at which it recovered. Other messages with the same handler and cause
narrow the stretch: their last failure before `works_from`, and their first success after that.
Within what is left no moment is more likely than another, so a redelivery in it fails with a
probability that falls from 1 to 0 along the stretch. All counts are sums of such probabilities.

Nobody can know what a later attempt had done for a message that died. It counts as dead under any
policy, and the lower bound of the dead letters is for all of them recovering at the first
redelivery that is clearly later than their last one was.

A redelivery begins when its wait is over. Waits count with the mean of their jitter, and each
failed call takes as long as those of the message did on the average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ackfloor import RetryPolicy, SettingError

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

    def policy(self) -> RetryPolicy:
        """The policy; options that are not given are as in `RetryPolicy()`.

        Raises:
            SettingError: a value is refused, or two of them exclude each other; `field` is the
                option.
        """
        options = {
            "max_redeliveries": self.max_redeliveries,
            "initial_delay": self.initial_delay,
            "multiplier": self.multiplier,
            "max_delay": self.max_delay,
            "jitter": self.jitter,
            "delays": tuple(self.delays) or None,
        }
        given = {name: value for name, value in options.items() if value is not None}
        if self.preset is not None:
            return _preset(self.preset, given)
        curve = {"initial_delay", "multiplier", "max_delay"} & given.keys()
        if "delays" in given and curve:
            why = f"an explicit schedule has no {min(curve)}"
            fix = f"leave {_option(min(curve))} or --delay away"
            raise SettingError("--delay", ",".join(self.delays), why, fix)
        try:
            policy = RetryPolicy(**given)  # type: ignore[arg-type]
        except SettingError as error:
            raise SettingError(
                _option(error.field.removeprefix("retry.")), error.value, error.why, error.fix
            ) from None
        budget = policy.max_redeliveries
        if budget is None or budget > MOST_REDELIVERIES:
            why = f"over {MOST_REDELIVERIES}, the most that can be replayed"
            raise SettingError("--max-redeliveries", budget, why, "give fewer")
        return policy


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


def mean_waits_ms(policy: RetryPolicy) -> tuple[float, ...]:
    """The wait before each redelivery in milliseconds, with the mean of its jitter."""
    return tuple(delay_s * 1000 * (1 + policy.jitter / 2) for delay_s in policy.schedule())
