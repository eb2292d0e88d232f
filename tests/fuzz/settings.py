"""Targets: durations, sizes, policies, the settings file, the environment, names of topics."""

from __future__ import annotations

import json
import tomllib
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ackfloor.core.parking.topic_names import (
    check_group,
    check_names,
    check_source_topic,
    dlq_topic,
    parse_topic,
    tier_topic,
)
from ackfloor.core.records.retry_policy import MOST_STEPS, RetryPolicy, warnings
from ackfloor.core.values.durations import LONGEST_S, format_duration, parse_duration
from ackfloor.core.values.setting_error import SettingError
from ackfloor.core.values.sizes import parse_size
from ackfloor.errors import ConfigError
from ackfloor.settings import Settings
from ackfloor.settings.layers import set_layer
from ackfloor.settings.names import APP, HANDLER, KAFKA, REDACTION
from ackfloor.settings.show import rows
from ackfloor.settings.variables import environment_place
from tests.fuzz.target import Target, halves, joined, scratch, text_of

SECRET = "hunter2-is-secret"


def check_durations(data: bytes) -> None:
    """A duration, a size, or a SettingError; a duration is printed so that it can be read."""
    text = text_of(data)
    with suppress(SettingError):
        seconds = parse_duration(text, field="f")
        assert 0 <= seconds <= LONGEST_S
        shown = parse_duration(format_duration(seconds), field="f")
        # Half a millisecond, and what floats make of it.
        assert abs(shown - seconds) <= 0.000_501
    with suppress(SettingError):
        assert parse_size(text, field="f") >= 0


def check_policies(data: bytes) -> None:
    """A policy with a finite schedule and a tier for each delay, or a SettingError."""
    try:
        given: Any = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(given, dict):
        return
    names = ("initial_delay", "multiplier", "max_delay", "max_redeliveries", "jitter", "delays")
    chosen = {name: given[name] for name in names if name in given}
    if not isinstance(chosen.get("delays", []), list):
        return
    try:
        policy = RetryPolicy(**chosen)
    except SettingError:
        return
    tiers = policy.tiers()
    assert list(tiers) == sorted(set(tiers))
    assert len(tiers) <= MOST_STEPS
    assert all(0 < each <= LONGEST_S for each in tiers)
    if policy.total_s() != inf and (policy.max_redeliveries or 0) < 5_000:
        schedule = policy.schedule()
        assert len(schedule) == policy.max_redeliveries
        assert policy.delay_s(len(schedule) + 1) is None
    assert all(warnings(policy, retention_s=60.0))
    for tier in tiers:
        parsed = parse_topic(tier_topic("t", "g", tier))
        assert parsed is not None
        assert parsed.delay_s == tier


@cache
def _file() -> Path:
    return scratch("ackfloor.toml")


def check_files(data: bytes) -> None:
    """A file is taken or refused by a ConfigError; what is secret in it is never shown."""
    _file().write_bytes(data)
    _load(data, config=_file(), environment={})


def check_environments(data: bytes) -> None:
    """So are variables, and what `config set` tells a run."""
    pairs = [(text_of(name), text_of(value or b"")) for name, value in halves(data)]
    variables = {f"ACKFLOOR_{name}": value for name, value in pairs if "_FILE" not in name.upper()}
    _load(data, environment=variables, config=None)
    with suppress(ConfigError):
        environment_place(variables)
    named = {name: value for name, value in pairs if name and "_file" not in name.lower()}
    with suppress(ConfigError):
        _load(data, environment={}, above=set_layer(named), file={})


def _load(data: bytes, **places: Any) -> None:
    try:
        settings = Settings.load({"app": {"group": "g"}}, **places)
        shown = " ".join(f"{row.name} {row.value}" for row in rows(settings))
        shown += repr(settings)
    except ConfigError as exc:
        shown = str(exc)
    if data.count(SECRET.encode()) == 1 and _is_secret(data):
        assert SECRET not in shown


def _is_secret(data: bytes) -> bool:
    """Whether the word stands where a secret belongs; elsewhere it may be shown."""
    with suppress(ValueError, RecursionError, KeyError, TypeError):
        return bool(tomllib.loads(data.decode())["kafka"]["sasl_password"] == SECRET)
    return f"KAFKA__SASL_PASSWORD\x1f{SECRET}".encode() in data


def check_topics(data: bytes) -> None:
    """A name is ours in one way or not at all; parts that are accepted are found again."""
    topic, group = (text_of(each or b"") for each in halves(data)[0])
    parse_topic(topic)
    with suppress(SettingError):
        check_source_topic(topic)
        check_group(group)
        check_names([topic], group, [1.0, 90.0, 0.25])
        parsed = parse_topic(dlq_topic(topic, group))
        assert parsed is not None
        assert (parsed.topic, parsed.group, parsed.kind) == (topic, group, "dlq")


_values = st.sampled_from(
    ["30s", "1h30m", "512MiB", "none", "unlimited", "7", "-1", "0.5", "true", "json", "", "x"]
)
_durations = st.sampled_from(["1d", "2h", "3m", "4s", "5ms", "1.5s", "0.1", "365d", "9" * 70])
_numbers = st.integers(-2, 200) | st.floats() | st.booleans() | st.none() | _durations
_policies = st.fixed_dictionaries(
    {},
    optional={
        "initial_delay": _durations,
        "multiplier": _numbers,
        "max_delay": _durations,
        "max_redeliveries": _numbers,
        "jitter": _numbers,
        "delays": st.lists(_durations, max_size=4),
    },
)
_SETTINGS = (*KAFKA, *APP, *REDACTION, *HANDLER)
_literals = st.one_of(
    _values.map(json.dumps), st.integers(-5, 10**20).map(str), st.sampled_from(["true", "1.5"]),
    st.lists(_values, max_size=2).map(json.dumps),
)  # fmt: skip


def _toml(pairs: list[tuple[str, Any, str]]) -> bytes:
    """A file that says each of these settings once, at the top level or in an app's section."""
    tables: dict[str, dict[str, str]] = {"kafka": {"sasl_password": json.dumps(SECRET)}}
    for section, setting, literal in pairs:
        *table, key = (part.strip("<>") for part in setting.path)
        tables.setdefault(section + ".".join(table), {})[key] = literal
    lines = []
    for name, entries in tables.items():
        lines += [f"[{name}]", *(f"{key} = {literal}" for key, literal in entries.items())]
    return "\n".join(lines).encode()


def _variables(pairs: list[tuple[str, Any, str]]) -> bytes:
    named = [
        (section.replace(".", "__").upper() + each.variable.removeprefix("ACKFLOOR_"), value)
        for section, each, value in pairs
    ]
    encoded = [(name.encode(), value.encode()) for name, value in named]
    return joined([(b"KAFKA__SASL_PASSWORD", SECRET.encode()), *encoded])


#: The top level, the section of the app, and that of another one.
_sections = st.sampled_from(["", "apps.g.", "apps.other."])
_pairs = st.lists(st.tuples(_sections, st.sampled_from(_SETTINGS), _literals), max_size=5)
_said = st.lists(st.tuples(_sections, st.sampled_from(_SETTINGS), _values), max_size=5)
_paths = st.lists(
    st.tuples(st.sampled_from([each.name.replace("<", "").replace(">", "") for each in _SETTINGS]),
              _values),
    max_size=3,
).map(lambda pairs: joined([(name.encode(), value.encode()) for name, value in pairs]))  # fmt: skip
_parts = st.from_regex(r"[a-zA-Z0-9._-]{0,8}", fullmatch=True)
_WORDS = [
    b"[kafka.common]", b"[handlers.a]", b"\n", b"'''", b"=", b"{ a = 1 }", b"1979-05-27", b"none",
    b"inf", b"nan", b"1e999", "٣".encode(), b"9" * 5_000, b".", b"__", b"_FILE", b"\x1e", b"\x1f",
]  # fmt: skip

TARGETS = (
    Target(
        "durations",
        check_durations,
        (_durations | _values).map(str.encode) | st.lists(_durations).map("".join).map(str.encode),
        [b"ms", b"d", b"GiB", b"kb", b".", b" ", "٣".encode(), b"9" * 5_000],
    ),
    Target("policies", check_policies, _policies.map(json.dumps).map(str.encode), _WORDS),
    Target("files", check_files, _pairs.map(_toml), _WORDS),
    Target("environments", check_environments, _said.map(_variables) | _paths, _WORDS),
    Target(
        "topics",
        check_topics,
        st.builds(lambda a, b: joined([(a.encode(), b.encode())]), _parts, _parts)
        | st.builds(lambda a, b: f"{a}--{b}--retry-5s".encode(), _parts, _parts),
        [b"--", b"--dlq", b"--retry-", b"1m", b"60s", b".", b"\n", "é".encode()],
    ),
)
