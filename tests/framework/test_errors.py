"""Errors carry their exit codes and places; outcomes check their durations when made."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

from ackfloor import errors
from ackfloor.errors import (
    AckfloorError,
    ConfigError,
    DeadLetter,
    DecodeError,
    Discard,
    KafkaUnreachable,
    MissingExtra,
    Outcome,
    Pause,
    Retry,
    SettingError,
    StartError,
)


def test_a_refused_setting_names_field_value_reason_fix_and_place() -> None:
    """The one line that reaches the operator has everything that is needed to mend it."""
    error = ConfigError("app.workers", 0, "too few", "give 1", source="flag --workers")

    assert str(error) == "app.workers=0: too few; give 1 (from flag --workers)"


def test_a_config_error_is_caught_as_a_setting_error_and_as_ours() -> None:
    """Callers may catch either the core's class or the framework's base."""
    error = ConfigError("a", 1, "why", "fix")

    assert isinstance(error, SettingError)
    assert isinstance(error, AckfloorError)


def test_a_core_refusal_keeps_its_words_and_gains_field_and_place() -> None:
    """The core does not know where a value came from; the shell adds it."""
    core = SettingError("value", "30", "no unit", 'write "30s"')

    told = ConfigError.of(core, field="handlers.bill.consume_timeout", source="file x.toml")

    assert str(told) == (
        "handlers.bill.consume_timeout='30': no unit; write \"30s\" (from file x.toml)"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a", 1, "why", "fix"), 3),
        (StartError("x"), 3),
        (KafkaUnreachable("x"), 4),
        (MissingExtra("registry", "Avro"), 1),
    ],
)
def test_each_error_knows_the_exit_code_of_its_process(error: AckfloorError, code: int) -> None:
    """3 for what the user wrote, 4 for a broker that is away, 1 for the rest."""
    assert error.exit_code == code


def test_a_missing_extra_prints_its_install_line() -> None:
    """What can be copied into a shell is in the message."""
    assert "pip install 'ackfloor[registry]'" in str(MissingExtra("registry", "Avro"))


def test_errors_survive_the_way_to_another_process() -> None:
    """Worker processes send what went wrong to their supervisor."""
    config = pickle.loads(pickle.dumps(ConfigError("a", 1, "why", "fix", source="code")))
    extra = pickle.loads(pickle.dumps(MissingExtra("otel", "Tracing")))
    retry = pickle.loads(pickle.dumps(Retry("5s", "busy")))

    assert str(config) == "a=1: why; fix (from code)"
    assert extra.extra == "otel"
    assert (retry.after_s, retry.reason) == (5.0, "busy")


@pytest.mark.parametrize(("after", "after_s"), [(None, None), ("1m30s", 90.0)])
def test_retry_takes_a_typed_duration(after: str | None, after_s: float | None) -> None:
    """None leaves the wait to the policy."""
    assert Retry(after).after_s == after_s
    assert Retry(timedelta(seconds=2)).after_s == 2.0


@pytest.mark.parametrize("bare", [30, "30"])
def test_a_bare_number_is_refused_where_the_outcome_is_made(bare: object) -> None:
    """The handler's own line is in the traceback, not the runtime's."""
    with pytest.raises(SettingError, match=r"after=.*unit"):
        Retry(bare)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"duration=.*unit"):
        Pause(bare)  # type: ignore[arg-type]


def test_outcomes_are_no_errors_of_the_framework() -> None:
    """`except AckfloorError` in a handler must not swallow what it raises on purpose."""
    for outcome in (Retry(), DeadLetter("no"), Discard("old"), Pause("1s")):
        assert isinstance(outcome, Outcome)
        assert not isinstance(outcome, AckfloorError)


def test_outcomes_read_as_their_reason() -> None:
    """The text of an outcome is what its author said."""
    assert str(Retry("1s", "busy")) == "busy"
    assert str(DeadLetter("no such customer")) == "no such customer"
    assert str(Discard("old")) == "old"
    assert str(Pause("1m30s", "bank away")) == "bank away"
    assert str(Pause("1m30s")) == "paused for 1m30s"


def test_a_decode_error_names_the_kind_of_what_went_wrong() -> None:
    """The kind goes into a header of its own."""
    assert DecodeError("x", error_type="UnicodeDecodeError").error_type == "UnicodeDecodeError"
    assert DecodeError("x").error_type == "DecodeError"


def test_every_public_error_is_listed() -> None:
    """`__all__` and the classes defined here agree."""
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }

    assert defined == set(errors.__all__)
