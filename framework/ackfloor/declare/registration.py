"""HandlerSpec: one handler's options, and their checks.

A spec checks itself when it is made, so one that was changed by an operator's setting
(`dataclasses.replace`) is held to the same rules as one written in code. Each refusal names the
field as the settings know it (`handlers.bill.concurrency`), the value and the fix.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypedDict, cast, get_args

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.parking.topic_names import check_source_topic
from ackfloor.core.queues.fair_order import Key
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import AfterDeadLetter, HandlerRules
from ackfloor.core.values.durations import format_duration, parse_duration
from ackfloor.core.values.rates import parse_rate
from ackfloor.core.values.setting_error import SettingError
from ackfloor.core.values.sizes import parse_size
from ackfloor.declare.codec import Decoder, SchemaDecoder
from ackfloor.declare.fair_key import FairKey, kafka_key, why_unfit
from ackfloor.declare.flood_guard import FIX, WHY, FloodGuard
from ackfloor.declare.outgoing import make_output
from ackfloor.declare.output_mode import OutputMode, check_output
from ackfloor.declare.result_topic import To, checked
from ackfloor.declare.signature import check_function
from ackfloor.delivery import Delivery
from ackfloor.errors import ConfigError, Outcome

Ordering = Literal["unordered", "key", "partition"]
OnFailure = Literal["park", "block", "quarantine"]
Ack = Literal["auto", "manual"]
#: What records are grouped by where slots are scarce; see `FairKey`.
Fairness = Literal["key", "off"] | Callable[[Delivery], str | bytes | None]
ExecutorKind = Literal["async", "thread", "process"]
Middleware = Callable[[Delivery, Callable[[], Any]], Any]

DEFAULT_CONCURRENCY = 64
DEFAULT_CONSUME_TIMEOUT_S = 60.0
DEFAULT_BATCH_WAIT_S = 0.2

#: What begins with it is a regular expression, as for Kafka's own clients.
PATTERN_SIGN = "^"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


class HandlerOptions(TypedDict, total=False):
    """The options of `.handler(...)`; each is explained there."""

    name: str
    ordering: Ordering
    on_failure: OnFailure
    after_dead_letter: AfterDeadLetter
    concurrency: int
    fairness: Fairness
    rate: str | None
    consume_timeout: timedelta | str | None
    retry: RetryPolicy
    breaker: CircuitBreaker | None
    guard: FloodGuard | bool | None
    dead_letter_on: tuple[type[Exception], ...]
    ack: Ack
    output: OutputMode
    max_extend: timedelta | str | None
    executor: ExecutorKind
    decoder: Decoder | SchemaDecoder
    middleware: Sequence[Middleware]
    batch: int
    batch_wait: timedelta | str
    process_memory_limit: int | str | None
    process_max_records: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec:
    """One handler and its rules.

    Attributes:
        name: unique in the app; header, metric label and settings key.
        topics: what it handles; no other handler of the app does.
        patterns: regular expressions, each with its leading "^"; a worker adds the topics that they
            match to `topics` before it starts (see `topic_patterns`).
        function: the function as its author wrote it.
        executor: "async" runs it on the event loop, "thread" on threads, "process" in processes
            that can be killed.
        consume_timeout_s: from handler start to answer, None for no limit.
        max_extend_s: how far after its start a delivery's deadline may be moved.
        process_memory_limit_bytes: resident memory beyond which one of its processes is replaced.
        process_max_records: records after which one of its processes is replaced.
        batch: how many records one call takes at most; None where it takes a single one.
        batch_wait_s: how long an incomplete batch waits since its first record was read.
        fairness: what its records are grouped by, so that noisy and hanging keys wait for others.
        rate_per_s: how many records the whole group may start, in records a second; None for no
            limit.
        to: where what it returns or yields is published; None for nowhere.
        output: whether what it publishes through its deliveries, and returns or yields, is written
            in one transaction with what settles its record ("exactly_once").
        given: the options that were given in code, for telling them from built-in defaults.
    """

    name: str
    topics: tuple[str, ...]
    function: Callable[..., Any]
    executor: ExecutorKind
    ordering: Ordering = "unordered"
    on_failure: OnFailure = "park"
    after_dead_letter: AfterDeadLetter = "continue"
    concurrency: int = DEFAULT_CONCURRENCY
    consume_timeout_s: float | None = DEFAULT_CONSUME_TIMEOUT_S
    retry: RetryPolicy = RetryPolicy()
    breaker: CircuitBreaker = CircuitBreaker()
    dead_letter_on: tuple[type[BaseException], ...] = ()
    ack: Ack = "auto"
    max_extend_s: float | None = None
    decoder: Decoder | SchemaDecoder | None = None
    middleware: tuple[Middleware, ...] = ()
    process_memory_limit_bytes: int | None = None
    process_max_records: int | None = None
    batch: int | None = None
    batch_wait_s: float = DEFAULT_BATCH_WAIT_S
    fairness: Fairness = "key"
    rate_per_s: float | None = None
    to: To[Any] | None = None
    output: OutputMode = "at_least_once"
    patterns: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse options that contradict each other or are out of range."""
        _check_choices(self)
        _check_numbers(self)
        _check_classes(self)
        check_isolation(self)
        check_batches(self)
        _check_quarantine(self)
        _check_fairness(self)
        _check_results(self)
        check_output(self)

    @property
    def subjects(self) -> tuple[str, ...]:
        """What it handles as its author wrote it: topics' names, then patterns."""
        return (*self.topics, *self.patterns)

    def pattern_of(self, topic: str) -> str | None:
        """The first of its patterns that matches a topic's name, which has to match whole."""
        return next((pattern for pattern in self.patterns if re.fullmatch(pattern, topic)), None)

    @property
    def is_async(self) -> bool:
        """Whether it runs on the event loop."""
        return self.executor == "async"

    @property
    def manual(self) -> bool:
        """Whether answers come through the delivery, not by return."""
        return self.ack == "manual"

    @property
    def exactly_once(self) -> bool:
        """Whether what it publishes is committed with its acknowledgement."""
        return self.output == "exactly_once"

    @property
    def in_place(self) -> bool:
        """Whether a failed record is delivered again where it is, not through retry topics."""
        return self.on_failure == "block"

    @property
    def quarantines(self) -> bool:
        """Whether what follows a failed record of a key is parked behind it."""
        return self.on_failure == "quarantine"

    def tiers(self) -> tuple[float, ...]:
        """The delays of its retry topics in seconds; none where it retries in place."""
        return () if self.in_place else self.retry.tiers()

    @property
    def may_be_fair(self) -> bool:
        """Whether one record may start before another of another key, each by itself."""
        return self.batch is None and self.ordering != "partition"

    def fair_key(self) -> Callable[[TrackedDelivery], Key | None] | None:
        """What its records are grouped by; None where all wait alike."""
        if self.fairness == "off" or not self.may_be_fair:
            return None
        return kafka_key if self.fairness == "key" else FairKey(self.name, self.fairness)

    def rules(self) -> HandlerRules:
        """What the engine must know of it."""
        return HandlerRules(
            name=self.name,
            ordering=self.ordering,
            concurrency=self.concurrency,
            consume_timeout_s=self.consume_timeout_s,
            policy=self.retry,
            manual=self.manual,
            max_extend_s=self.max_extend_s,
            in_place=self.in_place,
            quarantines=self.quarantines,
            after_dead_letter=self.after_dead_letter,
            breaker=self.breaker,
            killable=self.executor == "process",
            batch=self.batch,
            batch_wait_s=self.batch_wait_s,
            fair_key=self.fair_key(),
            rate_per_s=self.rate_per_s,
            exactly_once=self.exactly_once,
            make_output=make_output if self.exactly_once else None,
        )


def settings_key(name: str) -> str:
    """A handler's name as environment variables spell it; it must be unique."""
    return re.sub(r"[.-]", "_", name).lower()


def make_spec(
    function: Callable[..., Any],
    topics: tuple[str, ...],
    options: HandlerOptions,
    to: str | To[Any] | None = None,
) -> HandlerSpec:
    """Turn a registration into a spec, or refuse it."""
    name = _name(function, options)
    is_async = check_function(
        function,
        handler=name,
        batch=options.get("batch") is not None,
        results=to is not None,
    )
    given = cast("Mapping[str, Any]", options)
    _check_known(name, given)
    ordering = options.get("ordering", "unordered")
    values: dict[str, Any] = {
        key: given[key]
        for key in (
            "concurrency", "retry", "dead_letter_on", "ack", "decoder", "process_max_records",
            "batch", "after_dead_letter", "fairness", "output",
        )
        if key in given
    }  # fmt: skip
    executor = _executor(name, options, is_async)
    if executor == "process":
        values.setdefault("concurrency", cores())
    values |= _quantities(name, given)
    if (breaker := _breaker(name, given)) is not None:
        values["breaker"] = breaker
    literal, patterns = _check_topics(name, topics)
    return HandlerSpec(
        name=name,
        topics=literal,
        patterns=patterns,
        function=function,
        executor=executor,
        ordering=ordering,
        on_failure=options.get("on_failure", "park" if ordering == "unordered" else "block"),
        middleware=tuple(options.get("middleware", ())),
        to=None if to is None else checked(to, function, name),
        given=frozenset(given) - {"name"},
        **values,
    )


def _quantities(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The durations, the size and the rate that were given, as numbers."""
    found: dict[str, Any] = {}
    if "process_memory_limit" in given:
        field, limit = f"handlers.{name}.process_memory_limit", given["process_memory_limit"]
        found["process_memory_limit_bytes"] = size_in_bytes(field, limit)
    for key in ("consume_timeout", "max_extend", "batch_wait"):
        if key in given:
            found[f"{key}_s"] = _seconds(f"handlers.{name}.{key}", given[key])
    if given.get("rate") is not None:
        found["rate_per_s"] = _per_s(f"handlers.{name}.rate", given["rate"])
    return found


def _breaker(name: str, given: Mapping[str, Any]) -> Any:
    """The circuit breaker as given, disabled for None or False; None where the default holds."""
    if "guard" in given:
        guard = given["guard"]
        if guard is not None and not isinstance(guard, bool | FloodGuard):
            raise _refuse(name, "guard", guard, WHY, FIX)
        warnings.warn(f"handlers.{name}.guard: {WHY}: {FIX}", DeprecationWarning, stacklevel=4)
        enabled = guard.enabled if isinstance(guard, FloodGuard) else bool(guard)
        if "breaker" not in given:
            return None if enabled else CircuitBreaker(enabled=False)
    asked = given.get("breaker", True)
    if asked is True:
        return None
    return CircuitBreaker(enabled=False) if asked is None or asked is False else asked


def _refuse(name: str, option: str, value: object, why: str, fix: str) -> ConfigError:
    return ConfigError(f"handlers.{name}.{option}", value, why, fix)


def _name(function: Callable[..., Any], options: HandlerOptions) -> str:
    name = options.get("name", getattr(function, "__name__", repr(function)))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            "name", name, "a handler's name is a header, a metric label and a settings key",
            'pass name="..." of letters, digits, "_", "." and "-", at most 100',
        )  # fmt: skip
    return name


def _seconds(field: str, value: object) -> float | None:
    if value is None:
        return None
    try:
        return parse_duration(cast("timedelta | str", value), field=field)
    except SettingError as exc:
        raise ConfigError.of(exc) from None


def _per_s(field: str, value: object) -> float:
    try:
        return parse_rate(cast("str", value), field=field)
    except SettingError as exc:
        raise ConfigError.of(exc) from None


def _check_known(name: str, given: Mapping[str, Any]) -> None:
    known = [*HandlerOptions.__annotations__, "to"]
    for option in given:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            fix = f"did you mean {near[0]}=?" if near else f"options are {', '.join(known)}"
            raise _refuse(name, option, given[option], "no such option", fix)


def _executor(name: str, options: HandlerOptions, is_async: bool) -> ExecutorKind:
    own: ExecutorKind = "async" if is_async else "thread"
    asked = options.get("executor", own)
    if asked == "process" and not is_async:
        return "process"
    if asked != own:
        kind = "async def" if is_async else "def"
        why = f"the function is an `{kind}`, which runs on {own!r}"
        raise _refuse(name, "executor", asked, why, "leave it out, or change the function")
    return asked


def _check_topics(name: str, topics: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names among what a handler takes, and the patterns; each of them checked."""
    if not topics:
        raise _refuse(name, "topics", topics, "no topic", 'name one: @app.handler("orders")')
    for topic in topics:
        if not isinstance(topic, str):
            raise _refuse(
                name, "topics", topic, "not a topic's name", 'write @app.handler("orders")'
            )
        if topic.startswith(PATTERN_SIGN):
            _check_pattern(name, topic)
        else:
            try:
                check_source_topic(topic)
            except SettingError as exc:
                raise ConfigError.of(exc, field=f"handlers.{name}.topics") from None
        if topics.count(topic) > 1:
            raise _refuse(name, "topics", topic, "named twice", "name it once")
    patterns = tuple(topic for topic in topics if topic.startswith(PATTERN_SIGN))
    return tuple(topic for topic in topics if topic not in patterns), patterns


def _check_pattern(name: str, pattern: str) -> None:
    if pattern == PATTERN_SIGN:
        why = "it matches no topic: the whole name has to match"
        raise _refuse(name, "topics", pattern, why, 'write what the names look like: "^orders-.*"')
    try:
        re.compile(pattern)
    except re.error as exc:
        where = "" if exc.pos is None else f" at position {exc.pos}"
        why = f"not a regular expression of Python: {exc.msg}{where}"
        fix = 'mend it; topics whose names begin with "orders-" are "^orders-.*"'
        raise _refuse(name, "topics", pattern, why, fix) from None


def _check_choices(spec: HandlerSpec) -> None:
    for option, choices in (
        ("ordering", Ordering), ("on_failure", OnFailure), ("ack", Ack),
        ("after_dead_letter", AfterDeadLetter), ("output", OutputMode),
    ):  # fmt: skip
        value, allowed = getattr(spec, option), get_args(choices)
        if value not in allowed:
            fix = f"choose one of {', '.join(map(repr, allowed))}"
            raise _refuse(spec.name, option, value, "no such choice", fix)
    if not isinstance(spec.retry, RetryPolicy):
        fix = 'write retry=RetryPolicy(initial_delay="1s", max_redeliveries=6)'
        raise _refuse(spec.name, "retry", spec.retry, "not a RetryPolicy", fix)
    if not isinstance(spec.breaker, CircuitBreaker):
        fix = "write breaker=CircuitBreaker(failures=50), or None for none"
        raise _refuse(spec.name, "breaker", spec.breaker, "not a CircuitBreaker", fix)


def _check_quarantine(spec: HandlerSpec) -> None:
    if not spec.quarantines:
        if "after_dead_letter" in spec.given:
            why = "says what becomes of records in quarantine, and this handler has none"
            fix = 'write on_failure="quarantine", or leave it out'
            raise _refuse(spec.name, "after_dead_letter", spec.after_dead_letter, why, fix)
        return
    if spec.ordering != "key":
        why = f"a key is quarantined, and with ordering={spec.ordering!r} keys have no order"
        fix = 'write ordering="key", or on_failure="park"'
        raise _refuse(spec.name, "on_failure", spec.on_failure, why, fix)
    if spec.batch is not None:
        why = "a batch takes records of many keys, and fails or is handled as a whole"
        raise _refuse(
            spec.name, "batch", spec.batch, why, 'leave it out, or use on_failure="block"'
        )
    if not spec.retry.tiers():
        why = "without redeliveries there is no retry topic in which a key could wait"
        fix = 'allow max_redeliveries from 1, or use on_failure="block"'
        raise _refuse(spec.name, "on_failure", spec.on_failure, why, fix)


def _check_fairness(spec: HandlerSpec) -> None:
    asked: object = spec.fairness
    if asked not in ("key", "off") and not callable(asked):
        fix = 'choose "key" or "off", or pass a function of the delivery'
        raise _refuse(spec.name, "fairness", asked, "no such choice", fix)
    if callable(asked) and (why := why_unfit(asked)):
        raise _refuse(spec.name, "fairness", asked, why, "pass a plain function of the delivery")
    if "fairness" not in spec.given or asked == "off":
        return
    if spec.batch is not None:
        why, fix = "a batch takes records of many keys at once", "leave it out, or drop batch="
        raise _refuse(spec.name, "fairness", asked, why, fix)
    if spec.ordering == "partition":
        why = "the records of a partition are handled in their order, whatever their keys"
        raise _refuse(spec.name, "fairness", asked, why, 'leave it out, or write ordering="key"')


def _check_results(spec: HandlerSpec) -> None:
    if spec.to is None:
        return
    topic = spec.to.topic
    if spec.executor == "process" and not spec.exactly_once:
        why = "a process handler has no producer, so it can't wait for the confirmation"
        fix = 'write output="exactly_once", or leave out executor="process"'
        raise _refuse(spec.name, "to", topic, why, fix)
    if spec.manual:
        why = (
            'under ack="manual" the answer ends a record, which may come before its result is safe'
        )
        fix = 'leave ack="auto", or `await app.publish(...)` before delivery.ack()'
        raise _refuse(spec.name, "to", topic, why, fix)
    if topic in spec.topics or spec.pattern_of(topic) is not None:
        why = "it handles this topic: each result would have another one, without end"
        fix = "name another topic; where a loop is meant, `await app.publish(...)` in the function"
        raise _refuse(spec.name, "to", topic, why, fix)


def _check_numbers(spec: HandlerSpec) -> None:
    count: object = spec.concurrency
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        why = "not a number of deliveries to run at once"
        raise _refuse(spec.name, "concurrency", count, why, "pass a whole number from 1")
    timeout_s, extend_s = spec.consume_timeout_s, spec.max_extend_s
    if timeout_s is None:
        if spec.manual:
            why = 'ack="manual" without a timeout: an answer that never comes would never be missed'
            raise _refuse(spec.name, "consume_timeout", None, why, 'pass consume_timeout="60s"')
        if extend_s is not None:
            why = "there is no deadline to extend"
            value = format_duration(extend_s)
            raise _refuse(spec.name, "max_extend", value, why, "pass consume_timeout= or drop it")
        return
    if timeout_s <= 0:
        why = "no time at all"
        fix = 'pass consume_timeout="30s", or None for no limit'
        raise _refuse(spec.name, "consume_timeout", format_duration(timeout_s), why, fix)
    if extend_s is not None and extend_s < timeout_s:
        why = f"shorter than consume_timeout={format_duration(timeout_s)}"
        fix = "it counts from the handler's start: make it the longer of the two"
        raise _refuse(spec.name, "max_extend", format_duration(extend_s), why, fix)


def _check_classes(spec: HandlerSpec) -> None:
    classes: object = spec.dead_letter_on
    if not isinstance(classes, tuple):
        fix = "write dead_letter_on=(InvalidOrder,)"
        raise _refuse(spec.name, "dead_letter_on", classes, "not a tuple of exceptions", fix)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            why, fix = "not a class of exceptions", "name subclasses of Exception"
            raise _refuse(spec.name, "dead_letter_on", each, why, fix)
        if issubclass(each, Outcome):
            why, fix = "says itself how the delivery ends", "take it out"
            raise _refuse(spec.name, "dead_letter_on", each, why, fix)
    if spec.decoder is not None and not any(
        callable(getattr(spec.decoder, name, None)) for name in ("decode", "bind")
    ):
        fix = "pass an object with decode(data, record), such as one of ackfloor.schemas"
        raise _refuse(spec.name, "decoder", spec.decoder, "has no method decode", fix)
    for around in spec.middleware:
        if not callable(around):
            fix = "pass functions: around(delivery, call_next)"
            raise _refuse(spec.name, "middleware", around, "not callable", fix)


def check_batches(spec: HandlerSpec) -> None:
    """Check a handler's batch options.

    Raises:
        ConfigError: names the option, its value and the fix.
    """

    def refuse(option: str, value: object, why: str, fix: str) -> ConfigError:
        return ConfigError(f"handlers.{spec.name}.{option}", value, why, fix)

    size: object = spec.batch
    wait_s: object = spec.batch_wait_s
    if size is None:
        if "batch_wait" in spec.given:
            value, why = format_duration(spec.batch_wait_s), "it takes one record at a time"
            raise refuse("batch_wait", value, why, "write batch=100 too, or drop it")
        return
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        why = "not a number of records for one call"
        raise refuse("batch", size, why, "pass a whole number from 1")
    if wait_s is None:
        raise refuse("batch_wait", None, "no duration", 'write batch_wait="200ms"')
    if spec.manual:
        why = "in a batch every record can be answered through its delivery, and return is the rest"
        raise refuse("ack", spec.ack, why, 'leave ack="auto", or drop batch=')
    if spec.middleware:
        why = "middleware goes around one delivery, and a batch has many"
        fix = "do it in the function, or give the middleware to other handlers only"
        raise refuse("middleware", len(spec.middleware), why, fix)


def cores() -> int:
    """How many cores this process may use: as many process handlers run at once by default."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def size_in_bytes(field: str, value: object) -> object:
    """A size as it was given, in bytes; None for no limit."""
    if not isinstance(value, str):
        return value
    try:
        return parse_size(value, field=field)
    except SettingError as exc:
        raise ConfigError.of(exc) from None


def check_isolation(spec: HandlerSpec) -> None:
    """Check a handler's process options.

    Raises:
        ConfigError: names the option, its value and the fix.
    """
    field = f"handlers.{spec.name}"
    limit, records = spec.process_memory_limit_bytes, spec.process_max_records
    if spec.executor != "process":
        for option, value in (("process_memory_limit", limit), ("process_max_records", records)):
            if value is not None:
                why = f"the handler runs on {spec.executor!r}, which has no processes of its own"
                fix = 'pass executor="process" (of a `def` handler), or drop it'
                raise ConfigError(f"{field}.{option}", value, why, fix)
        return
    name = spec.function.__qualname__
    if "<lambda>" in name or "<locals>" in name:
        what = "a lambda" if name.endswith("<lambda>") else "defined inside another function"
        why = f"{what}: a process of its own has to import it by name"
        raise ConfigError(f"{field}.executor", name, why, "define it with `def` at module level")
    if spec.manual:
        why = "a process handler answers by its return or its exception"
        raise ConfigError(
            f"{field}.ack", spec.ack, why, 'leave it "auto", or drop executor="process"'
        )
    _check_count(f"{field}.process_memory_limit", limit, 'write a size such as "512MiB"')
    _check_count(f"{field}.process_max_records", records, "write a whole number from 1")
    if limit is not None and not sys.platform.startswith("linux"):
        why = f"resident memory is read from /proc, which {sys.platform} has not"
        raise ConfigError(f"{field}.process_memory_limit", limit, why, "leave it out here")


def _check_count(field: str, value: object, fix: str) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(field, value, "not a positive whole number", fix)
