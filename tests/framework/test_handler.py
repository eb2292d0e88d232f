"""Registration: what a spec says, and each refusal with field, value and fix."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ackfloor import App, Delivery
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.declare.flood_guard import FloodGuard
from ackfloor.declare.handler import HandlerOptions, HandlerSpec, Registry, Router
from ackfloor.errors import ConfigError, Retry
from ackfloor.testing.memory.memory_log import MemoryRecord
from tests.contracts.sink_contract import assignment_of


async def bill(order: bytes) -> None:
    """A handler on the event loop."""


def ship(order: bytes) -> None:
    """A handler on a thread."""


def registered(*topics: str, function: Any = bill, **options: Any) -> HandlerSpec:
    """The spec of one registration."""
    registry = Registry()
    registry.handler(*topics or ("orders",), **options)(function)
    return registry.handlers[0]


def test_a_bare_registration_has_the_documented_defaults() -> None:
    """Concurrency 64, timeout 60 s, unordered, parked, automatic, the default policy."""
    spec = registered("orders")

    assert (spec.name, spec.topics, spec.function) == ("bill", ("orders",), bill)
    assert (spec.concurrency, spec.consume_timeout_s) == (64, 60.0)
    assert (spec.ordering, spec.on_failure, spec.ack) == ("unordered", "park", "auto")
    assert spec.retry == RetryPolicy()
    assert (spec.executor, spec.is_async, spec.manual) == ("async", True, False)
    assert spec.given == frozenset()


def test_a_breaker_is_on_unless_it_is_switched_off() -> None:
    """By None or False; True is the built-in one."""
    own, none = CircuitBreaker(failures=20), CircuitBreaker(enabled=False)
    given = [own, True, False, None]
    assert registered().breaker == CircuitBreaker()
    assert [registered(breaker=breaker).rules().breaker for breaker in given] == [
        own,
        CircuitBreaker(),
        none,
        none,
    ]


def test_a_flood_guard_is_accepted_and_ignored_but_for_none_at_all() -> None:
    """For one release, with a warning that names what to write."""
    with pytest.warns(DeprecationWarning, match="write breaker=CircuitBreaker"):
        own = FloodGuard(0.9, min_sample=50)
    for guard, enabled in ((own, True), (True, True), (None, False), (False, False)):
        with pytest.warns(DeprecationWarning, match="handlers.bill.guard") as warned:
            assert registered(guard=guard).breaker.enabled is enabled
        assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="handlers.bill.guard"):
        assert registered(guard=None, breaker=CircuitBreaker(7)).breaker == CircuitBreaker(7)


def test_registration_returns_the_function_itself() -> None:
    """It can be called in a test, and registered for other topics under another name."""
    registry = Registry()

    assert registry.handler("orders")(bill) is bill
    assert registry.handler("returns", name="bill_returns")(bill) is bill
    assert [spec.name for spec in registry.handlers] == ["bill", "bill_returns"]


def test_a_def_runs_on_threads() -> None:
    """The function decides; saying so is allowed."""
    assert registered(function=ship).executor == "thread"
    assert registered(function=ship, executor="thread").executor == "thread"


def test_what_was_given_in_code_is_told_from_defaults() -> None:
    """`config show` names code or built-in as the source."""
    spec = registered(name="x", concurrency=64, consume_timeout="60s")

    assert spec.given == {"concurrency", "consume_timeout"}


def test_durations_may_be_texts_or_timedeltas() -> None:
    """Both become seconds; None is no limit."""
    assert registered(consume_timeout="1m30s").consume_timeout_s == 90.0
    assert registered(consume_timeout=timedelta(minutes=2)).consume_timeout_s == 120.0
    assert registered(consume_timeout=None).consume_timeout_s is None


def test_the_engine_is_told_what_it_must_know() -> None:
    """The rules are the spec without the function."""
    spec = registered(ack="manual", max_extend="5m", ordering="key", on_failure="park")

    rules = spec.rules()

    assert (rules.name, rules.ordering, rules.concurrency) == ("bill", "key", 64)
    assert (rules.consume_timeout_s, rules.max_extend_s, rules.manual) == (60.0, 300.0, True)
    assert rules.policy is spec.retry


def tenant(delivery: Delivery) -> str | None:
    """What a user groups records by."""
    return (delivery.value or b"").decode() or None


async def later(delivery: Delivery) -> str:
    """A mistake: nobody awaits it."""
    return tenant(delivery) or ""


class Later:
    """The same, as an object."""

    async def __call__(self, delivery: Delivery) -> str:
        return tenant(delivery) or ""


def one_by_one(delivery: Delivery) -> Iterator[str]:
    """A mistake: calling it returns no key."""
    yield tenant(delivery) or ""


def of_two(delivery: Delivery, value: bytes) -> str:
    """A mistake: it is given the delivery alone."""
    return f"{delivery.origin} {value!r}"


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_keys_are_fair_to_each_other_unless_that_is_off(ordering: str) -> None:
    """By the Kafka key, or by what a function says."""
    record = TrackedDelivery(
        assignment_of(), MemoryRecord("orders", 0, 0, b"key", b"acme", (), 0), 0, 0, 0.0
    )
    for options, key in (
        ({}, b"key"),
        ({"fairness": "key"}, b"key"),
        ({"fairness": tenant}, "acme"),
    ):
        fair_key = registered(ordering=ordering, **options).rules().fair_key
        assert fair_key is not None
        assert fair_key(record) == key
    assert registered(ordering=ordering, fairness="off").rules().fair_key is None


def test_a_rate_is_a_count_and_a_unit() -> None:
    """Records a second inside; without one there is no limit."""
    assert registered(rate="6000/min").rules().rate_per_s == 100.0
    assert registered(rate=None).rules().rate_per_s is None
    assert registered().rules().rate_per_s is None


def test_what_takes_records_of_many_keys_has_no_fairness() -> None:
    """Batches, and partitions in their order."""
    assert registered(batch=10).rules().fair_key is None
    assert registered(ordering="partition").rules().fair_key is None


class Untold(Exception):
    """An error whose text fails."""

    def __str__(self) -> str:
        raise TypeError("no text")


def fail_untold(delivery: Delivery) -> str:
    """A function that fails with one."""
    raise Untold


@pytest.mark.parametrize("bad", [lambda _: 1 / 0, lambda _: 7, lambda _: sys.exit(3), fail_untold])
def test_a_function_that_fails_groups_nothing(
    bad: Callable[[Delivery], str], caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, with the record; the record waits for no other."""
    record = TrackedDelivery(
        assignment_of(), MemoryRecord("orders", 3, 8, b"key", b"", (), 0), 8, 0, 0.0
    )
    fair_key = registered(fairness=bad).rules().fair_key
    assert fair_key is not None
    with caplog.at_level("WARNING", "ackfloor.fairness"):
        assert [fair_key(record) for _ in range(3)] == [None] * 3
    (line,) = caplog.messages
    assert line.startswith("handlers.bill.fairness: the function gave no group for orders/0/8: ")
    fair_key._say_s = 0.0
    with caplog.at_level("WARNING", "ackfloor.fairness"):
        assert fair_key(record) is None
    assert caplog.messages[1].endswith(" (2 more calls since the last such line)")


@pytest.mark.parametrize(
    ("unfit", "told"),
    [
        (later, "an async function, and nothing waits for it"),
        (Later(), "an async function, and nothing waits for it"),
        (one_by_one, "a generator, which returns no key"),
        (of_two, "it can't be called with a delivery alone"),
    ],
)
def test_a_function_that_can_group_nothing_is_refused(unfit: Any, told: str) -> None:
    """At registration, and not by a line of the log for each minute of a run."""
    with pytest.raises(ConfigError) as caught:
        registered(fairness=unfit)
    message = str(caught.value)
    assert message.startswith("handlers.bill.fairness=")
    assert message.endswith(f": {told}; pass a plain function of the delivery")


def test_a_function_of_which_nothing_is_known_is_taken() -> None:
    """Some built-in ones have no signature."""
    assert registered(fairness=max).rules().fair_key is not None


class Tenant(str):
    """Text of a class of its own, as enums are."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise TypeError("of no use as a key")


class Digest(bytes):
    """Bytes of a class of their own."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("of no use as a key")

    __hash__ = bytes.__hash__


@pytest.mark.parametrize(("own", "plain"), [(Tenant("acme"), "acme"), (Digest(b"ac"), b"ac")])
def test_a_group_is_plain_text_or_bytes(own: str | bytes, plain: str | bytes) -> None:
    """What a class of the user's does would happen in the middle of the worker's loop."""
    record = TrackedDelivery(
        assignment_of(), MemoryRecord("orders", 3, 8, b"key", b"", (), 0), 8, 0, 0.0
    )
    fair_key = registered(fairness=lambda _: own).rules().fair_key
    assert fair_key is not None
    found = fair_key(record)
    assert (type(found), found) == (type(plain), plain)


QUARANTINE = {"ordering": "key", "on_failure": "quarantine"}


@pytest.mark.parametrize("after", [None, "continue", "dead_letter", "hold"])
def test_a_quarantining_handler_has_retry_topics_and_tells_the_engine(after: str | None) -> None:
    """Its records park; what becomes of the followers is a rule, "continue" where none is given."""
    spec = registered(**QUARANTINE, **({} if after is None else {"after_dead_letter": after}))

    rules = spec.rules()

    assert (rules.quarantines, rules.in_place) == (True, False)
    assert rules.after_dead_letter == (after or "continue")
    assert spec.tiers() == spec.retry.tiers() != ()
    parked = registered(ordering="key", on_failure="park").rules()
    assert (parked.quarantines, parked.after_dead_letter) == (False, "continue")


@pytest.mark.parametrize(
    ("options", "told", "fix"),
    [
        (
            {"on_failure": "quarantine"},
            "on_failure='quarantine': a key is quarantined, and with ordering='unordered' keys",
            'write ordering="key", or on_failure="park"',
        ),
        (
            {"on_failure": "quarantine", "ordering": "partition"},
            "on_failure='quarantine': a key is quarantined, and with ordering='partition' keys",
            'write ordering="key", or on_failure="park"',
        ),
        (
            {**QUARANTINE, "batch": 10},
            "batch=10: a batch takes records of many keys, and fails or is handled as a whole",
            'leave it out, or use on_failure="block"',
        ),
        (
            {**QUARANTINE, "retry": RetryPolicy(max_redeliveries=0)},
            "on_failure='quarantine': without redeliveries there is no retry topic in which a key",
            'allow max_redeliveries from 1, or use on_failure="block"',
        ),
        (
            {"fairness": "customer"},
            "fairness='customer': no such choice",
            'choose "key" or "off", or pass a function of the delivery',
        ),
        (
            {"fairness": "key", "batch": 10},
            "fairness='key': a batch takes records of many keys at once",
            "leave it out, or drop batch=",
        ),
        (
            {"fairness": "key", "ordering": "partition"},
            "fairness='key': the records of a partition are handled in their order",
            'leave it out, or write ordering="key"',
        ),
        (
            {"rate": "5"},
            "rate='5': not a rate",
            'write a count and a unit of time (s, m or h), such as "100/m"',
        ),
        (
            {"rate": "0/s"},
            "rate='0/s': a rate of nothing",
            'write a count and a unit of time (s, m or h), such as "100/m"',
        ),
        (
            {"rate": "-1/s"},
            "rate='-1/s': not a rate",
            'write a count and a unit of time (s, m or h), such as "100/m"',
        ),
        (
            {"rate": 100},
            "rate=100: not a rate",
            'write a count and a unit of time (s, m or h), such as "100/m"',
        ),
        (
            {"after_dead_letter": "hold"},
            "after_dead_letter='hold': says what becomes of records in quarantine, and this",
            'write on_failure="quarantine", or leave it out',
        ),
        (
            {"after_dead_letter": "continue", "ordering": "key"},
            "after_dead_letter='continue': says what becomes of records in quarantine, and this",
            'write on_failure="quarantine", or leave it out',
        ),
        (
            {**QUARANTINE, "after_dead_letter": "drop"},
            "after_dead_letter='drop': no such choice",
            "choose one of 'continue', 'dead_letter', 'hold'",
        ),
        (
            {**QUARANTINE, "after_dead_letter": None},
            "after_dead_letter=None: no such choice",
            "choose one of 'continue', 'dead_letter', 'hold'",
        ),
        (
            {"on_failure": "isolate"},
            "on_failure='isolate': no such choice",
            "choose one of 'park', 'block', 'quarantine'",
        ),
    ],
)
def test_what_can_not_be_quarantined_is_refused(
    options: dict[str, Any], told: str, fix: str
) -> None:
    """With field, value, reason and fix, in one line."""
    with pytest.raises(ConfigError) as caught:
        registered(**options)

    message = str(caught.value)
    assert message.startswith(f"handlers.bill.{told}")
    assert message.endswith(f"; {fix}")
    assert "\n" not in message


def test_a_setting_can_not_take_the_redeliveries_from_a_quarantine() -> None:
    """What leaves no retry topic is refused from an operator as it is in code."""
    spec = registered(**QUARANTINE)

    with pytest.raises(ConfigError, match=r"handlers\.bill\.on_failure='quarantine': without red"):
        replace(spec, retry=RetryPolicy(max_redeliveries=0))


class NotAnException:
    """Something else."""


@pytest.mark.parametrize(
    ("options", "in_place"),
    [
        ({}, False),
        ({"ordering": "key"}, True),
        ({"ordering": "partition"}, True),
        ({"ordering": "key", "on_failure": "park"}, False),
        ({"on_failure": "block"}, True),
    ],
)
def test_an_ordered_handler_keeps_its_order_unless_it_says_otherwise(
    options: dict[str, Any], in_place: bool
) -> None:
    """It retries in place, and has no retry topics."""
    spec = registered(**options)
    assert (spec.on_failure, spec.rules().in_place) == ("block" if in_place else "park", in_place)
    assert spec.tiers() == (() if in_place else spec.retry.tiers())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"consume_timeout": 30}, "handlers.bill.consume_timeout=30: a bare number has no unit"),
        ({"consume_timeout": "30"}, "handlers.bill.consume_timeout='30': a bare number"),
        ({"consume_timeout": "0s"}, "no time at all; pass consume_timeout="),
        ({"ack": "manual", "consume_timeout": None}, "handlers.bill.consume_timeout=None: ack="),
        ({"ack": "sometimes"}, "handlers.bill.ack='sometimes': no such choice; choose one of"),
        ({"ordering": "fifo"}, "handlers.bill.ordering='fifo': no such choice"),
        ({"on_failure": "drop"}, "handlers.bill.on_failure='drop': no such choice"),
        ({"concurrency": 0}, "handlers.bill.concurrency=0: "),
        ({"concurrency": True}, "handlers.bill.concurrency=True: "),
        ({"concurrency": 1.5}, "handlers.bill.concurrency=1.5: "),
        (
            {"executor": "process"},
            "handlers.bill.executor='process': the function is an `async def`",
        ),
        ({"executor": "thread"}, "the function is an `async def`, which runs on 'async'"),
        ({"batch": 0}, "handlers.bill.batch=0: not a number of records for one call; pass a"),
        ({"batch": True}, "handlers.bill.batch=True: not a number of records"),
        ({"batch": "10"}, "handlers.bill.batch='10': not a number of records"),
        ({"batch_wait": "1s"}, "handlers.bill.batch_wait='1s': it takes one record at a time"),
        ({"batch": 2, "batch_wait": 1}, "handlers.bill.batch_wait=1: a bare number has no unit"),
        ({"batch": 2, "batch_wait": None}, "handlers.bill.batch_wait=None: no duration"),
        ({"batch": 2, "ack": "manual"}, "handlers.bill.ack='manual': in a batch every record"),
        ({"batch": 2, "middleware": [print]}, "handlers.bill.middleware=1: middleware goes around"),
        ({"retry": {"max_redeliveries": 3}}, "not a RetryPolicy; write retry=RetryPolicy("),
        ({"breaker": 5}, "handlers.bill.breaker=5: not a CircuitBreaker; write breaker=Circuit"),
        ({"guard": 0.5}, "handlers.bill.guard=0.5: the flood guard gave way to the circuit"),
        ({"dead_letter_on": ValueError}, "not a tuple of exceptions; write dead_letter_on=("),
        ({"dead_letter_on": (NotAnException,)}, "not a class of exceptions"),
        ({"dead_letter_on": (KeyboardInterrupt,)}, "name subclasses of Exception"),
        ({"dead_letter_on": (Retry,)}, "says itself how the delivery ends; take it out"),
        ({"decoder": bytes.decode}, "has no method decode"),
        ({"middleware": ["log"]}, "handlers.bill.middleware='log': not callable"),
        ({"max_extend": "30s"}, "handlers.bill.max_extend='30s': shorter than consume_timeout=1m"),
        ({"max_extend": "5m", "consume_timeout": None}, "there is no deadline to extend"),
        ({"name": "bill now"}, "name='bill now': a handler's name is"),
        ({"name": ""}, "name='': "),
        ({"consume_time": "3s"}, "no such option; did you mean consume_timeout=?"),
        ({"zzz": 1}, "no such option; options are name, ordering"),
    ],
)
def test_bad_options_are_refused_with_field_value_and_fix(
    options: dict[str, Any], told: str
) -> None:
    """In the line that registers the handler, before anything is started."""
    with pytest.raises(ConfigError) as caught:
        registered(**options)

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("topics", "told"),
    [
        ((), "no topic; name one"),
        ((bill,), "not a topic's name"),
        (("^orders-[",), "unterminated character set at position 8"),
        (("orders--billing--dlq",), "handlers.bill.topics='orders--billing--dlq': '--'"),
        (("or ders",), "Kafka allows letters"),
        (("orders", "orders"), "named twice"),
    ],
)
def test_bad_topics_are_refused(topics: tuple[Any, ...], told: str) -> None:
    """Patterns and names that would be mistaken for our own included."""
    with pytest.raises(ConfigError) as caught:
        Registry().handler(*topics)(bill)

    assert told in str(caught.value)


def test_a_lambda_needs_a_name() -> None:
    """Its own is no label and no settings key."""
    with pytest.raises(ConfigError, match="name='<lambda>'"):
        registered(function=lambda order: None)


def test_what_is_no_function_is_refused_at_once() -> None:
    """Hints may wait until the start, this need not."""
    with pytest.raises(ConfigError, match="not a function"):
        registered(function="bill", name="bill")


def test_one_topic_has_one_handler() -> None:
    """Kafka gives a record to the group once; the fix is named."""
    registry = Registry()
    registry.handler("orders", "returns")(bill)

    with pytest.raises(ConfigError) as caught:
        registry.handler("returns")(ship)

    assert str(caught.value) == (
        "handlers.ship.topics='returns': handler 'bill' handles it already; one handler per "
        "topic; remove one, or tell event types apart by a pydantic discriminated union"
    )
    assert [spec.name for spec in registry.handlers] == ["bill"]


@pytest.mark.parametrize("name", ["bill", "Bill", "BILL"])
def test_names_are_unique_as_variables_spell_them(name: str) -> None:
    """`ACKFLOOR_HANDLERS__BILL__...` must mean one handler."""
    registry = Registry()
    registry.handler("orders")(bill)

    with pytest.raises(ConfigError, match=f"name='{name}'"):
        registry.handler("returns", name=name)(ship)


def test_a_changed_spec_is_held_to_the_same_rules() -> None:
    """What an operator sets can't make a handler that code could not."""
    spec = registered(ack="manual")

    with pytest.raises(ConfigError, match=r"handlers\.bill\.consume_timeout=None"):
        replace(spec, consume_timeout_s=None)


def test_a_router_brings_its_handlers_before_and_after_it_is_included() -> None:
    """The order in which modules are imported decides nothing."""
    registry, outer, inner = Registry(), Router(), Router()
    inner.handler("orders")(bill)
    outer.include(inner)
    registry.include(outer)
    inner.handler("returns")(ship)

    assert [spec.name for spec in registry.handlers] == ["bill", "ship"]
    assert registry.handler_of("returns") is inner.handlers[1]
    assert registry.handler_of("other") is None


def test_a_router_can_not_bring_a_clash() -> None:
    """Neither when it is included nor later; a refused include changes nothing."""
    registry, router = Registry(), Router()
    registry.handler("orders")(bill)
    router.handler("returns")(ship)
    router.handler("orders", name="other")(ship)
    with pytest.raises(ConfigError, match="handles it already"):
        registry.include(router)
    assert [spec.name for spec in registry.handlers] == ["bill"]

    later = Router()
    registry.include(later)
    with pytest.raises(ConfigError, match="handles it already"):
        later.handler("orders", name="late")(ship)
    assert later.handlers == ()


def test_routers_in_a_circle_are_refused() -> None:
    """And one router is included once."""
    one, two = Router(), Router()
    one.include(two)

    for outer, inner in ((one, one), (two, one)):
        with pytest.raises(ConfigError, match="contain itself"):
            outer.include(inner)
    with pytest.raises(ConfigError, match="included already"):
        one.include(two)


def test_every_option_is_explained_where_it_is_used() -> None:
    """The docstring of `.handler` is the reference of its options."""
    told = Router.handler.__doc__ or ""

    for option in (*HandlerOptions.__annotations__, "to"):
        assert f"{option}: " in told


def test_a_batch_handler_has_a_wait() -> None:
    """The one that was given, or the built-in one; other handlers have none."""
    assert registered(batch=5).rules().batch_wait_s == 0.2
    rules = registered(batch=5, batch_wait="1s").rules()
    assert (rules.batch, rules.batch_wait_s, rules.by_hand) == (5, 1.0, True)
    assert (registered().rules().batch, registered().rules().by_hand) == (None, False)


def many(items: list[bytes]) -> None:
    """A batch handler at module level."""


def test_batches_run_in_processes() -> None:
    """They can be killed there, and answered by hand."""
    app = App("g")
    app.handler("orders", batch=5, executor="process")(many)
    rules = app.handlers[0].rules()
    assert (rules.batch, rules.killable, rules.by_hand) == (5, True, True)


def test_middleware_of_the_app_refuses_batch_handlers() -> None:
    """It goes around one delivery."""
    app = App("g", middleware=[lambda _, call_next: call_next()])
    app.handler("orders", batch=5)(many)
    with pytest.raises(ConfigError, match=r"handlers\.many\.batch=5: the app has middleware"):
        app.check_middleware(app.handlers[0])
