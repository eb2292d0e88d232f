"""HandlerOverrides: `[handlers.<name>]`, what operators may change about one handler.

What a handler *means* (its topics, ordering, acknowledgement, decoder) is code; how long it may
take, how many run at once and how failures are retried is operations, and can be set here.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.values.setting_error import SettingError
from ackfloor.declare.flood_guard import WHY
from ackfloor.declare.registration import Fairness, HandlerSpec
from ackfloor.settings.value_types import (
    Duration,
    Durations,
    OptionalCount,
    OptionalDuration,
    OptionalRate,
    OptionalSize,
    spelled,
)

log = logging.getLogger("ackfloor.settings")

#: Fields that the handler's spec has under the same name.
_OF_THE_SPEC = (
    "consume_timeout_s",
    "concurrency",
    "max_extend_s",
    "process_memory_limit_bytes",
    "process_max_records",
    "batch",
    "batch_wait_s",
    "fairness",
    "rate_per_s",
)
#: Of a retry policy: what says how its delays are computed.
COMPUTED_DELAYS = ("initial_delay_s", "multiplier", "max_delay_s")


class RetryOverrides(BaseModel):
    """Parts of a handler's retry policy."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    initial_delay_s: Duration = Field(
        default=1.0, alias="initial_delay", description="Wait before the first redelivery."
    )
    multiplier: float = Field(default=5.0, description="What each further wait is multiplied by.")
    max_delay_s: Duration = Field(default=600.0, alias="max_delay", description="The longest wait.")
    delays_s: Durations = Field(
        default=(),
        alias="delays",
        description="The waits one by one, in place of the three above; the last one repeats.",
    )
    max_redeliveries: OptionalCount = Field(
        default=6,
        description='Redeliveries before the dead-letter queue; 0 for none, or "unlimited".',
    )
    jitter: float = Field(
        default=0.15, description="Share by which waits may be lengthened, so that they spread."
    )


class BreakerOverrides(BaseModel):
    """Parts of a handler's circuit breaker."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    enabled: bool = Field(
        default=True, description="Whether failures may open the handler's circuit breaker."
    )
    failures: int = Field(
        default=50,
        description="So many different records in a row whose first deliveries fail open it.",
    )
    quiet_failures: int = Field(
        default=10,
        description="So many are enough while nothing has succeeded for `quiet_after`; by default "
        "`failures` where that is less.",
    )
    quiet_after_s: Duration = Field(
        default=300.0,
        alias="quiet_after",
        description="Time without a success after which `quiet_failures` are enough.",
    )
    park_rate: str = Field(
        default="100/m",
        description="How many failed records of the group may leave for the retry topics while "
        "it is not closed.",
    )
    gives_in_after_s: Duration = Field(
        default=3600.0,
        alias="gives_in_after",
        description="It closes after so long with nothing but redeliveries to try.",
    )


class GuardOverrides(BaseModel):
    """Ignored, but for `enabled = false`: the flood guard gave way to the circuit breaker."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    enabled: bool = Field(
        default=True, description="False: the handler's circuit breaker never opens."
    )
    limit: float = Field(
        default=0.5, description="Share of failing records that stops it, above 0 up to 1."
    )
    window: int = Field(default=100, description="How many of the last records count.")
    min_sample: int = Field(
        default=20, description="How many must be known before anything is concluded."
    )
    forget_after_s: Duration = Field(
        default=60.0, alias="forget_after", description="What is older does not count."
    )
    probe_delay_s: Duration = Field(
        default=1.0,
        alias="probe_delay",
        description="Wait before the first probe; it doubles with each further one.",
    )
    max_probe_delay_s: Duration = Field(
        default=5.0, alias="max_probe_delay", description="The longest wait between two probes."
    )


class HandlerOverrides(BaseModel):
    """What operators set about one handler; only what is set counts."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    consume_timeout_s: OptionalDuration = Field(
        default=60.0,
        alias="consume_timeout",
        description='From the handler\'s start to its answer; "none" for no limit.',
    )
    concurrency: int = Field(
        default=64,
        ge=1,
        description="Deliveries that run at once; of a process handler by default as many as "
        "there are cores.",
    )
    max_extend_s: OptionalDuration = Field(
        default=None,
        alias="max_extend",
        description='How far after its start a deadline may be moved; "none" for no limit.',
    )
    process_memory_limit_bytes: OptionalSize = Field(
        default=None,
        alias="process_memory_limit",
        description="Resident memory beyond which a process of a process handler is replaced, or "
        'killed while a handler runs; "none" for no limit. Linux only.',
    )
    process_max_records: OptionalCount = Field(
        default=None,
        description="Records after which a process of a process handler is replaced; "
        '"unlimited" for never.',
    )
    batch: int | None = Field(
        default=None, ge=1, description="Records that one call takes at most, of a batch handler."
    )
    batch_wait_s: Duration = Field(
        default=0.2,
        alias="batch_wait",
        description="How long an incomplete batch waits since its first record was read.",
    )
    fairness: Literal["key", "off"] = Field(
        default="key",
        description="Whether records of keys that are noisy or hang wait for others: with `key` "
        "they do, grouped by the function that code gives, or by their Kafka key.",
    )
    rate_per_s: OptionalRate = Field(
        default=None,
        alias="rate",
        description="How many records all workers of the group together may start a second, minute "
        'or hour, redeliveries included; "none" for no limit.',
    )
    retry: RetryOverrides = Field(default_factory=RetryOverrides, description="The retry policy.")
    breaker: BreakerOverrides = Field(
        default_factory=BreakerOverrides, description="The circuit breaker."
    )
    guard: GuardOverrides = Field(
        default_factory=GuardOverrides, description="Deprecated: the flood guard."
    )

    def applied(self, spec: HandlerSpec) -> HandlerSpec:
        """The handler with these settings; it is held to the same rules as in code."""
        changes: dict[str, Any] = {
            name: getattr(self, name) for name in _OF_THE_SPEC if name in self.model_fields_set
        }
        for name in ("batch", "batch_wait_s"):
            if name in changes and (spec.batch is None or changes[name] is None):
                raise SettingError(
                    f"handlers.{spec.name}.{name.removesuffix('_s')}",
                    spelled(name, changes[name]),
                    "whether a function takes one record or lists is said in code",
                    "set it for handlers with batch= only, or take it out",
                )
        if changes.get("fairness") == "key":
            changes["fairness"] = self._fairness(spec)
        if "retry" in self.model_fields_set and self.retry.model_fields_set:
            changes["retry"] = self._policy(spec)
        if "breaker" in self.model_fields_set and self.breaker.model_fields_set:
            changes["breaker"] = self._breaker(spec.breaker)
        elif "guard" in self.model_fields_set and not self.guard.enabled:
            changes["breaker"] = CircuitBreaker(enabled=False)
        if "guard" in self.model_fields_set:
            log.warning("handlers.%s.guard: %s: set handlers.%s.breaker", spec.name, WHY, spec.name)
        return replace(spec, **changes) if changes else spec

    def _fairness(self, spec: HandlerSpec) -> Fairness:
        """Fairness is on: by the code's function, so that who switched it off can undo that."""
        if not spec.may_be_fair:
            raise SettingError(
                f"handlers.{spec.name}.fairness",
                "key",
                "batches, and what keeps the order of a partition, have no fairness between keys",
                "take it out",
            )
        return spec.fairness if callable(spec.fairness) else "key"

    def _breaker(self, breaker: CircuitBreaker) -> CircuitBreaker:
        """The code's circuit breaker with what is set here in place of its parts."""
        given = {name: getattr(self.breaker, name) for name in self.breaker.model_fields_set}
        failures = given.get("failures", breaker.failures)
        return CircuitBreaker(
            failures,
            given.get("quiet_failures", min(breaker.quiet_failures, failures)),
            timedelta(seconds=given.get("quiet_after_s", breaker.quiet_after_s)),
            given.get("park_rate", breaker.park_rate),
            timedelta(seconds=given.get("gives_in_after_s", breaker.gives_in_after_s)),
            # Setting any part of a breaker enables it, unless `enabled` says otherwise.
            enabled=given.get("enabled", True),
        )

    def _policy(self, spec: HandlerSpec) -> RetryPolicy:
        """The code's policy with what is set here in place of its parts."""
        policy = spec.retry
        given = {name: getattr(self.retry, name) for name in self.retry.model_fields_set}
        delays_s = given.get("delays_s", policy.delays_s)
        for name in COMPUTED_DELAYS:
            if delays_s and name in given:
                raise SettingError(
                    f"handlers.{spec.name}.retry.{name.removesuffix('_s')}",
                    spelled(name, given[name]),
                    f"the delays are given one by one: {spelled('delays_s', delays_s)}",
                    f'set handlers.{spec.name}.retry.delays to other ones, or to "none"',
                )
        # What is computed instead of the code's delays is the default.
        computed = policy if delays_s or not policy.delays_s else RetryPolicy()
        return RetryPolicy(
            timedelta(seconds=given.get("initial_delay_s", computed.initial_delay_s)),
            given.get("multiplier", computed.multiplier),
            timedelta(seconds=given.get("max_delay_s", computed.max_delay_s)),
            given.get("max_redeliveries", policy.max_redeliveries),
            given.get("jitter", policy.jitter),
            delays=[timedelta(seconds=delay_s) for delay_s in delays_s],
        )
