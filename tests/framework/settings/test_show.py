"""`rows` and the reference: every setting by name, value and place."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ackfloor import Delivery
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.declare.fair_key import kafka_key
from ackfloor.declare.handler import HandlerSpec, Registry
from ackfloor.errors import ConfigError
from ackfloor.settings import Settings, rows
from ackfloor.settings.names import CURRENT_HANDLER, FIXED
from ackfloor.settings.settings_reference import render
from ackfloor.settings.value_types import is_secret_property, spelled


async def bill(order: bytes) -> None:
    """A handler."""


def customer(delivery: Delivery) -> bytes | None:
    """What a user groups records by."""
    return delivery.key


def spec(name: str = "bill", **options: object) -> HandlerSpec:
    """One registered handler."""
    registry = Registry()
    registry.handler("orders", name=name, **options)(bill)  # type: ignore[arg-type]
    return registry.handlers[0]


def load(**environment: str) -> Settings:
    """Settings of variables, by the names behind the prefix."""
    return Settings.load(environment={f"ACKFLOOR_{k}": v for k, v in environment.items()})


def shown(settings: Settings, *specs: HandlerSpec) -> dict[str, tuple[str, str]]:
    """name -> (value, source)."""
    return {row.name: (row.value, row.source) for row in rows(settings, specs)}


def test_every_setting_is_shown() -> None:
    """Property tables by what is in them."""
    names = {s.name for s in FIXED} - {
        f"kafka.{table}" for table in ("properties", "consumer", "producer", "admin")
    }

    assert set(shown(Settings.from_code())) == names


def test_values_are_shown_as_they_are_written() -> None:
    """Durations and sizes with their units."""
    found = shown(load(APP__FOREIGN_HEADERS="spring,kafka"))

    assert found["app.dlq_retention"] == ("30d", "built-in")
    assert found["app.max_open_bytes"] == ("256MiB", "built-in")
    assert found["app.create_topics"] == ("true", "built-in")
    assert found["app.release"] == ("", "built-in")
    assert found["app.foreign_headers"] == (
        "spring,kafka",
        "environment ACKFLOOR_APP__FOREIGN_HEADERS",
    )


@pytest.mark.parametrize(
    ("attribute", "value", "text"),
    [
        ("max_bytes", 1000, "1000"),
        ("max_bytes", 0, "0"),
        ("max_bytes", 2048, "2KiB"),
        ("multiplier", 5.0, "5"),
        ("jitter", 0.15, "0.15"),
        ("wait_s", 90, "1m30s"),
        ("oauth_cb", spec, "<spec>"),
    ],
)
def test_spelling(attribute: str, value: object, text: str) -> None:
    """The attribute's unit decides."""
    assert spelled(attribute, value) == text


def test_secrets_are_stars() -> None:
    """Named ones and those among the properties."""
    found = shown(
        load(
            KAFKA__SASL_PASSWORD="s3cret",
            KAFKA__PROPERTIES__SSL_KEY_PEM="s3cret",
            KAFKA__CONSUMER__FETCH_MIN_BYTES="1",
        )
    )

    assert found["kafka.sasl_password"][0] == "***"
    assert found["kafka.properties.ssl.key.pem"][0] == "***"
    assert found["kafka.consumer.fetch.min.bytes"][0] == "1"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("sasl.password", True),
        ("ssl.keystore.password", True),
        ("ssl.certificate.pem", True),
        ("sasl.oauthbearer.client.secret", True),
        ("sasl.oauthbearer.assertion.private.key.passphrase", True),
        ("sasl.passwrd", True),
        ("sasl.pasword", True),
        ("SASL.PASSWORD", True),
        ("sasl.mechanism", False),
        ("partition.assignment.strategy", False),
        ("sasl.oauthbearer.config", True),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("ssl.ca.location", False),
    ],
)
def test_which_properties_are_secret(name: str, secret: bool) -> None:
    """By their names; rather one too many."""
    assert is_secret_property(name) is secret


def test_a_handlers_values_come_from_operator_code_or_default() -> None:
    """Each with its place."""
    settings = load(HANDLERS__BILL__RETRY__JITTER="0")
    found = shown(settings, spec(concurrency=8, retry=RetryPolicy(max_redeliveries=None)))

    assert found["handlers.bill.retry.jitter"] == (
        "0",
        "environment ACKFLOOR_HANDLERS__BILL__RETRY__JITTER",
    )
    assert found["handlers.bill.concurrency"] == ("8", "code")
    assert found["handlers.bill.retry.max_redeliveries"] == ("unlimited", "code")
    assert found["handlers.bill.consume_timeout"] == ("1m", "built-in")
    assert found["handlers.bill.max_extend"] == ("none", "built-in")


def test_operators_change_how_a_handler_runs() -> None:
    """Timeout, concurrency and parts of the policy; the rest stays as in code."""
    settings = load(
        HANDLERS__BILL_V2__CONSUME_TIMEOUT="none",
        HANDLERS__BILL_V2__CONCURRENCY="2",
        HANDLERS__BILL_V2__RETRY__MAX_REDELIVERIES="2",
    )
    original = spec("Bill.v2", retry=RetryPolicy("2s", 3))

    (changed,) = settings.applied([original])

    assert (changed.consume_timeout_s, changed.concurrency) == (None, 2)
    assert changed.retry == RetryPolicy("2s", 3, max_redeliveries=2)
    assert changed.function is original.function


def test_operators_change_parts_of_a_breaker() -> None:
    """The rest stays as in code; who sets a part of one that is off wants one."""
    own = spec(breaker=CircuitBreaker(20, park_rate="5/s"))
    settings = load(HANDLERS__BILL__BREAKER__QUIET_AFTER="30s")
    (changed,) = settings.applied([own])
    assert changed.breaker == CircuitBreaker(20, 10, "30s", "5/s")
    (off,) = load(HANDLERS__BILL__BREAKER__ENABLED="false").applied([own])
    assert off.breaker == CircuitBreaker(20, park_rate="5/s", enabled=False)
    (on,) = load(HANDLERS__BILL__BREAKER__FAILURES="7").applied([spec(breaker=None)])
    assert on.breaker == CircuitBreaker(7)
    found = shown(settings, own)
    assert found["handlers.bill.breaker.failures"] == ("20", "code")


def test_settings_of_the_flood_guard_are_ignored_but_for_none_at_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For one release, with a warning."""
    (on,) = load(HANDLERS__BILL__GUARD__LIMIT="0.9").applied([spec()])
    assert on.breaker == CircuitBreaker()
    assert "handlers.bill.guard: the flood guard gave way" in caplog.text
    (off,) = load(HANDLERS__BILL__GUARD__ENABLED="false").applied([spec()])
    assert off.breaker == CircuitBreaker(enabled=False)


def test_a_handler_nobody_set_is_the_same_object() -> None:
    """And so is one whose section is empty."""
    original = spec()

    assert Settings.from_code().applied([original]) == (original,)
    assert Settings.from_code({"handlers": {"bill": {}}}).applied([original])[0] is original


def test_an_explicit_schedule_stays_until_another_is_asked_for() -> None:
    """A preset keeps its steps when only the count changes."""
    preset = spec(retry=RetryPolicy.rocketmq())

    (counted,) = load(HANDLERS__BILL__RETRY__MAX_REDELIVERIES="3").applied([preset])
    (stepped,) = load(
        HANDLERS__BILL__RETRY__DELAYS="none", HANDLERS__BILL__RETRY__MULTIPLIER="2"
    ).applied([preset])

    assert counted.retry.schedule() == (10.0, 30.0, 60.0)
    assert stepped.retry.schedule()[:3] == (1.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("HANDLERS__BIL__CONCURRENCY", "2", "no such handler; did you mean bill? (from env"),
        ("HANDLERS__ZZZ__CONCURRENCY", "2", "no such handler; handlers are bill"),
        ("HANDLERS__BILL__RETRY__JITTER", "3", "handlers.bill.retry.jitter=3.0: not a share; give"),
        ("HANDLERS__BILL__BREAKER__FAILURES", "0", "handlers.bill.breaker.failures=0: not a num"),
        ("HANDLERS__BILL__BREAKER__QUIET_FAILURES", "51", "breaker.quiet_failures=51: more than"),
        ("HANDLERS__BILL__BREAKER__PARK_RATE", "9", "handlers.bill.breaker.park_rate='9': not a"),
        ("HANDLERS__BILL__MAX_EXTEND", "1s", "handlers.bill.max_extend='1s': shorter than"),
        ("HANDLERS__BILL__RETRY__INITIAL_DELAY", "1h", "handlers.bill.retry.max_delay='10m'"),
        ("HANDLERS__BILL__BATCH", "9", "handlers.bill.batch='9': whether a function takes one"),
        ("HANDLERS__BILL__BATCH_WAIT", "1s", "handlers.bill.batch_wait='1s': whether a function"),
        ("HANDLERS__BILL__RATE", "9", "handlers.bill.rate='9': not a rate; write a count and"),
        ("HANDLERS__BILL__RATE", "0/s", "handlers.bill.rate='0/s': a rate of nothing"),
        ("HANDLERS__BILL__FAIRNESS", "none", "handlers.bill.fairness='none': not one of the"),
    ],
)
def test_what_operators_set_is_held_to_the_handlers_rules(
    variable: str, value: str, told: str
) -> None:
    """With the place it was set, where the value is theirs."""
    with pytest.raises(ConfigError) as caught:
        load(**{variable: value}).applied([spec()])

    assert told in str(caught.value)


def test_operators_may_change_the_size_of_batches() -> None:
    """Of a handler that takes them; what can never fill is refused with the limit at fault."""
    (larger,) = load(HANDLERS__BILL__BATCH="50", HANDLERS__BILL__BATCH_WAIT="1s").applied(
        [spec(batch=5)]
    )
    assert (larger.batch, larger.batch_wait_s) == (50, 1.0)
    with pytest.raises(ConfigError) as caught:
        load(HANDLERS__BILL__BATCH="50", APP__MAX_OPEN="40").applied([spec(batch=5)])
    assert "handlers.bill.batch=50: more than app.max_open=40 ever holds" in str(caught.value)
    assert "ACKFLOOR_HANDLERS__BILL__BATCH" in str(caught.value)
    with pytest.raises(ConfigError, match=r"more than app\.partition_span=3 ever holds"):
        load(APP__PARTITION_SPAN="3").applied([spec(batch=5)])


def test_operators_may_switch_fairness_between_keys() -> None:
    """`key` is on by what code groups by, so that it undoes `off`; nothing leaves all to code."""
    by_function = spec(fairness=customer)
    code = by_function.rules().fair_key
    source = "environment ACKFLOOR_HANDLERS__BILL__FAIRNESS"
    for given, told, fair_keys in (
        ({}, ("<customer>", "code"), (code, kafka_key, None)),
        ({"HANDLERS__BILL__FAIRNESS": "off"}, ("off", source), (None, None, None)),
        ({"HANDLERS__BILL__FAIRNESS": "key"}, ("<customer>", source), (code, kafka_key, kafka_key)),
    ):
        settings = load(**given)
        assert shown(settings, by_function)["handlers.bill.fairness"] == told
        specs = (by_function, spec(), spec(fairness="off"))
        found = tuple(settings.applied([each])[0].rules().fair_key for each in specs)
        assert found == fair_keys


def test_operators_may_set_a_rate_and_take_it_away() -> None:
    """It is shown as people write it."""
    source = "environment ACKFLOOR_HANDLERS__BILL__RATE"
    for given, told, per_s in (
        ({}, ("100/s", "code"), 100.0),
        ({"HANDLERS__BILL__RATE": "90/min"}, ("90/m", source), 1.5),
        ({"HANDLERS__BILL__RATE": "none"}, ("none", source), None),
    ):
        settings = load(**given)
        limited = spec(rate="100/s")
        assert shown(settings, limited)["handlers.bill.rate"] == told
        assert settings.applied([limited])[0].rules().rate_per_s == per_s
    assert shown(load(), spec())["handlers.bill.rate"] == ("none", "built-in")


@pytest.mark.parametrize("options", [{"batch": 5}, {"ordering": "partition"}])
def test_where_there_is_no_fairness_it_can_only_be_switched_off(options: dict[str, Any]) -> None:
    """Who asks for it is told why not."""
    (off,) = load(HANDLERS__BILL__FAIRNESS="off").applied([spec(**options)])
    assert off.rules().fair_key is None
    with pytest.raises(ConfigError) as caught:
        load(HANDLERS__BILL__FAIRNESS="key").applied([spec(**options)])
    assert "handlers.bill.fairness='key': batches, and what keeps the order" in str(caught.value)
    assert "ACKFLOOR_HANDLERS__BILL__FAIRNESS" in str(caught.value)


def test_manual_ack_keeps_its_timeout() -> None:
    """An operator can't take it away either."""
    settings = load(HANDLERS__BILL__CONSUME_TIMEOUT="none")

    with pytest.raises(ConfigError, match=r"consume_timeout=None.*from environment"):
        settings.applied([spec(ack="manual")])


def test_overrides_without_any_handler_are_refused() -> None:
    """They are left over from something."""
    with pytest.raises(ConfigError, match="there are no handlers"):
        load(HANDLERS__BILL__CONCURRENCY="2").applied([])


def test_the_reference_names_every_setting_with_its_variable() -> None:
    """It is generated, so it can't fall behind."""
    text = render()

    for setting in (*FIXED, *CURRENT_HANDLER):
        assert f"`{setting.name}`" in text
        assert f"`{setting.variable}`" in text
        assert setting.meaning in text
    assert "PydanticUndefined" not in text
    rows_of_tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows_of_tables} == {7}


def test_the_reference_shows_the_defaults_of_a_bare_handler() -> None:
    """What it prints is what a bare registration runs with."""
    bare = {row.name: row.value for row in rows(Settings.from_code(), [spec()])}

    for setting in CURRENT_HANDLER:
        if setting.default:
            assert bare[setting.name.replace("<name>", "bill")] == setting.default


def test_timedeltas_in_code_are_shown_with_their_units() -> None:
    """Whatever way a duration was given."""
    settings = Settings.from_code({"app": {"commit_interval": timedelta(milliseconds=250)}})

    assert shown(settings)["app.commit_interval"] == ("250ms", "code")


def given_delays(**variables: str) -> HandlerSpec:
    """The handler whose code has two delays, with these settings of its retry policy."""
    variables = {f"HANDLERS__BILL__RETRY__{name}": value for name, value in variables.items()}
    policy = RetryPolicy(delays=["3s", "1m"], max_redeliveries=4, jitter=0)
    (found,) = load(**variables).applied([spec(retry=policy)])
    return found


@pytest.mark.parametrize(
    ("variables", "schedule_s"),
    [
        ({}, (3, 60, 60, 60)),
        ({"MAX_REDELIVERIES": "1"}, (3,)),
        ({"DELAYS": "2s, 500ms"}, (2, 0.5, 0.5, 0.5)),
        ({"DELAYS": "none"}, (1, 5, 25, 125)),
        ({"DELAYS": "none", "MULTIPLIER": "2"}, (1, 2, 4, 8)),
    ],
)
def test_delays_are_a_setting(variables: dict[str, str], schedule_s: tuple[float, ...]) -> None:
    """One by one, over those of the code, or computed ones in their place."""
    assert given_delays(**variables).retry.schedule() == schedule_s


def test_delays_in_brackets_are_refused_as_text() -> None:
    """As they stand in a file: the error says how a variable has them."""
    with pytest.raises(ConfigError, match=r"delays='\[.*not durations with commas.*: 1s,1m"):
        load(HANDLERS__BILL__RETRY__DELAYS='["2s", "3s"]')


def test_delays_are_shown_as_they_would_be_set() -> None:
    """And nothing is shown that counts for nothing."""
    named = load(HANDLERS__BILL__RETRY__DELAYS="2s,1m30s")
    computed = shown(load(), spec())
    found = shown(named, spec())

    variable = "environment ACKFLOOR_HANDLERS__BILL__RETRY__DELAYS"
    assert found["handlers.bill.retry.delays"] == ("2s,1m30s", variable)
    assert computed["handlers.bill.retry.delays"] == ("none", "built-in")
    left_out = {f"handlers.bill.retry.{name}" for name in ("initial_delay", "multiplier")}
    assert computed.keys() - found.keys() == left_out | {"handlers.bill.retry.max_delay"}


@pytest.mark.parametrize("name", ["initial_delay", "multiplier", "max_delay"])
def test_delays_one_by_one_are_never_replaced_by_a_part_of_computed_ones(name: str) -> None:
    """Who sets one may not know of them."""
    value = "2" if name == "multiplier" else "2s"
    with pytest.raises(ConfigError) as caught:
        given_delays(**{name.upper(): value})
    assert str(caught.value) == (
        f"handlers.bill.retry.{name}={value!r}: the delays are given one by one: 3s,1m; "
        'set handlers.bill.retry.delays to other ones, or to "none" '
        f"(from environment ACKFLOOR_HANDLERS__BILL__RETRY__{name.upper()})"
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (["2s", 5], "a bare number has no unit"),
        (5, "not a list of durations"),
        ("2s,,x", "not a duration"),
        ("0s", "no wait at all"),
    ],
)
def test_wrong_delays_are_refused_with_their_setting(value: object, why: str) -> None:
    """Whatever is wrong with them."""
    with pytest.raises(ConfigError, match=why) as caught:
        Settings.from_code({"handlers": {"bill": {"retry": {"delays": value}}}}).applied([spec()])
    assert caught.value.field == "handlers.bill.retry.delays"
