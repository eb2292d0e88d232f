"""Settings: five places in order, each value with its source, each mistake with its fix."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.errors import ConfigError
from ackfloor.settings import KafkaSettings, Settings, sections_of
from ackfloor.settings.variables import environment_place


def load(
    environment: Mapping[str, str] | None = None, *, file: str | None = None, **rest: Any
) -> Settings:
    """Settings of these places and of no other."""
    if file is not None:
        Path("ackfloor.toml").write_text(file, "utf-8")
    return Settings.load(environment=environment or {}, **rest)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds a file it did not write."""
    monkeypatch.chdir(tmp_path)


def test_the_strongest_place_wins_and_is_named() -> None:
    """flag > environment > file > code > built-in, one setting at a time."""
    code = {"app": {"workers": 2, "max_open": 2, "commit_count": 2, "tier_buffer": 2}}
    file = "[app]\nworkers = 3\nmax_open = 3\ncommit_count = 3"
    environment = {"ACKFLOOR_APP__WORKERS": "4", "ACKFLOOR_APP__MAX_OPEN": "4"}

    settings = load(environment, file=file, code=code, flags={"app.workers": 5})

    app = settings.app
    assert (app.workers, app.max_open, app.commit_count, app.tier_buffer) == (5, 4, 3, 2)
    assert app.partition_span == 100_000
    assert [
        settings.source_of(f"app.{name}")
        for name in ("workers", "max_open", "commit_count", "tier_buffer", "partition_span")
    ] == [
        "flag --workers",
        "environment ACKFLOOR_APP__MAX_OPEN",
        "file ackfloor.toml",
        "code",
        "built-in",
    ]


def test_the_defaults_are_those_of_the_contract() -> None:
    """What a user reads in the reference is what runs."""
    app = load().app

    assert app.limits == FlowLimits(50_000, 256 * 1024 * 1024, 100_000, 500)
    assert (app.commit_interval_s, app.start, app.create_topics) == (1.0, "earliest", True)
    assert (app.shutdown_timeout_s, app.cancel_grace_s) == (30.0, 5.0)
    assert app.listen == "127.0.0.1:9600"


def test_code_alone_reads_no_file_and_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test kit gives the same result on every machine."""
    Path("ackfloor.toml").write_text("[app]\nworkers = 3", "utf-8")
    monkeypatch.setenv("ACKFLOOR_APP__WORKERS", "4")
    monkeypatch.setenv("ACKFLOOR_NONSENSE", "1")

    settings = Settings.from_code({"app": {"group": "billing"}})

    assert (settings.app.workers, settings.group) == (1, "billing")
    assert Settings.from_code().app.workers == 1


def test_the_process_environment_is_read_unless_another_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`load()` is what a worker calls."""
    monkeypatch.setenv("ACKFLOOR_APP__WORKERS", "4")

    assert Settings.load().app.workers == 4


def test_an_app_without_a_group_is_refused_when_it_is_needed() -> None:
    """Showing settings needs none."""
    with pytest.raises(ConfigError, match=r"app\.group='': no consumer group; pass App"):
        _ = load().group


def test_an_apps_arguments_are_sections() -> None:
    """`App("billing", start="latest", kafka={...})`."""
    code = sections_of("billing", {"start": "latest", "kafka": {"client_id": "x"}})

    settings = Settings.from_code(code)

    assert (settings.group, settings.app.start) == ("billing", "latest")
    assert settings.kafka.client_id == "x"
    assert settings.source_of("kafka.client_id") == "code"


def test_a_section_may_be_given_as_its_model() -> None:
    """Only what was set in it counts as code's."""
    settings = Settings.from_code({"kafka": KafkaSettings(client_id="x")})

    assert settings.kafka.client_id == "x"
    assert settings.source_of("kafka.bootstrap_servers") == "built-in"


@pytest.mark.parametrize("name", ["ACKFLOOR_APP__WORKERS", "ackfloor_app__workers"])
def test_variables_are_case_insensitive(name: str) -> None:
    """The source shows the variable as it was written."""
    settings = load({name: "4"})

    assert settings.app.workers == 4
    assert settings.source_of("app.workers") == f"environment {name}"


def test_short_variables_stand_for_the_long_ones() -> None:
    """The two that are set by hand most often."""
    settings = load({"ACKFLOOR_BOOTSTRAP_SERVERS": "k:1,k:2", "ACKFLOOR_RELEASE": "v7"})

    assert (settings.kafka.bootstrap_servers, settings.app.release) == ("k:1,k:2", "v7")
    assert settings.source_of("app.release") == "environment ACKFLOOR_RELEASE"


def test_two_variables_for_one_setting_must_agree() -> None:
    """Neither is silently ignored."""
    pair = {"ACKFLOOR_BOOTSTRAP_SERVERS": "a:1", "ACKFLOOR_KAFKA__BOOTSTRAP_SERVERS": "b:1"}
    with pytest.raises(ConfigError, match=r"sets kafka.bootstrap_servers to something else"):
        load(pair)

    assert load(dict.fromkeys(pair, "a:1")).kafka.bootstrap_servers == "a:1"


def test_variables_of_commands_and_of_others_are_left_alone() -> None:
    """Flag twins, folders and whatever has another prefix are no settings."""
    others = load(
        {
            "ACKFLOOR_RUN_WORKERS": "4",
            "ACKFLOOR_BROKER_NODES": "3",
            "ACKFLOOR_STATE_DIR": "/x",
            "ACKFLOOR_OUTPUT": "json",
            "_ACKFLOOR_COMPLETE": "x",
            "OTHER": "x",
        }
    )
    assert others == load()


def test_settings_of_a_handler_come_from_file_and_environment() -> None:
    """The longest name wins: a handler's may hold two underscores."""
    settings = load(
        {
            "ACKFLOOR_HANDLERS__BILL__CONSUME_TIMEOUT": "10s",
            "ACKFLOOR_HANDLERS__BILL__RETRY__MAX_REDELIVERIES": "unlimited",
            "ACKFLOOR_HANDLERS__A__B__CONCURRENCY": "2",
        },
        file='[handlers.Bill]\nconcurrency = 3\nretry = { initial_delay = "2s" }\n'
        "[handlers.Bill.guard]\nlimit = 0.8",
    )

    bill = settings.handlers["bill"]
    assert (bill.consume_timeout_s, bill.concurrency) == (10.0, 3)
    assert (bill.retry.initial_delay_s, bill.retry.max_redeliveries) == (2.0, None)
    assert (bill.guard.limit, bill.guard.model_fields_set) == (0.8, {"limit"})
    assert settings.handlers["a__b"].concurrency == 2
    assert settings.source_of("handlers.bill.retry.initial_delay") == "file ackfloor.toml"


def test_values_are_read_as_people_write_them() -> None:
    """Durations with units, sizes, lists, yes and no."""
    app = load(
        {
            "ACKFLOOR_APP__DRAIN_TIMEOUT": "1m30s",
            "ACKFLOOR_APP__MAX_OPEN_BYTES": "1 GiB",
            "ACKFLOOR_APP__FOREIGN_HEADERS": "spring, kafka",
            "ACKFLOOR_APP__CREATE_TOPICS": "no",
            "ACKFLOOR_APP__LOG_LEVEL": "WARNING",
        },
        code={"app": {"commit_interval": timedelta(seconds=2)}},
    ).app

    assert (app.drain_timeout_s, app.commit_interval_s) == (90.0, 2.0)
    assert app.max_open_bytes == 1024**3
    assert app.foreign_headers == ("spring", "kafka")
    assert (app.create_topics, app.log_level) == (False, "warning")
    assert Settings.from_code({"app": {"max_open_bytes": 4096}}).app.max_open_bytes == 4096
    servers = Settings.from_code({"kafka": {"bootstrap_servers": ["a:1", "b:1"]}}).kafka
    assert servers.bootstrap_servers == "a:1,b:1"


def test_what_kubernetes_tells_of_a_service_is_no_setting() -> None:
    """Each pod beside a service whose name begins with `ackfloor` has these variables."""
    links = {
        "ACKFLOOR_SERVICE_HOST": "10.0.0.1",
        "ACKFLOOR_METRICS_SERVICE_PORT": "9600",
        "ACKFLOOR_METRICS_SERVICE_PORT_HTTP_WEB": "9600",
        "ACKFLOOR_PORT": "tcp://10.0.0.1:9600",
        "ACKFLOOR_PORT_9600_TCP": "tcp://10.0.0.1:9600",
        "ACKFLOOR_PORT_9600_TCP_ADDR": "10.0.0.1",
    }
    assert environment_place(links).top == {}
    for mistaken in ({"ACKFLOOR_PORT": "9600"}, {"ACKFLOOR_APP__SERVICE_HOST": "10.0.0.1"}):
        with pytest.raises(ConfigError, match="no such setting"):
            Settings.load({"app": {"group": "g"}}, environment=mistaken)


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"ACKFLOOR_APP__WORKRS": "4"}, "did you mean app.workers? (from environment ACKFLOOR_APP"),
        ({"ACKFLOOR_WORKERS": "4"}, "did you mean ACKFLOOR_APP__WORKERS?"),
        ({"ACKFLOOR_GROPU": "billing"}, "did you mean ACKFLOOR_GROUP?"),
        ({"ACKFLOOR_AP__GROUP": "billing"}, "did you mean ACKFLOOR_APP__GROUP?"),
        ({"ACKFLOOR_ZZZZ": "4"}, "sections are ACKFLOOR_KAFKA__..., ACKFLOOR_APP__..."),
        ({"ACKFLOOR_HANDLERS__BILL": "4"}, "ACKFLOOR_HANDLERS__BILL='***': no such setting"),
        (
            {"ACKFLOOR_HANDLERS__BILL__SASL_PASSWORD": "hunter2"},
            "handlers.bill.sasl_password='***': no such setting",
        ),
        ({"ACKFLOOR_HANDLERS__BILL__TIMEOUT": "4s"}, "did you mean handlers.bill.consume_timeout?"),
        ({"ACKFLOOR_HANDLERS__BILL__X__Y": "4s"}, "`ackfloor config show` lists all names"),
        ({"ACKFLOOR_KAFKA__CONSUMER": "4"}, "set one property of it, such as ACKFLOOR_KAFKA__CONS"),
        ({"ACKFLOOR_APP__WORKERS": "four"}, "app.workers='four': input should be a valid integer"),
        ({"ACKFLOOR_APP__WORKERS": "0"}, "app.workers='0': input should be greater than or equal"),
        ({"ACKFLOOR_APP__COMMIT_INTERVAL": "30"}, "app.commit_interval='30': a bare number has no"),
        ({"ACKFLOOR_APP__COMMIT_INTERVAL": "0s"}, "app.commit_interval='0s': no time at all"),
        ({"ACKFLOOR_APP__MAX_OPEN_BYTES": "lots"}, 'not a size; write one such as "256MiB"'),
        ({"ACKFLOOR_APP__START": "newest"}, "not one of the choices; write `earliest` or `latest`"),
        ({"ACKFLOOR_APP__FOREIGN_HEADERS": "x"}, "app.foreign_headers='x': not one of the choices"),
        ({"ACKFLOOR_APP__GROUP": "a--b"}, "app.group='a--b': '--' separates"),
        ({"ACKFLOOR_APP__LISTEN": "9600"}, 'not an address; write host:port, such as "127'),
        ({"ACKFLOOR_APP__LISTEN": "h:99999"}, "app.listen='h:99999': not an address"),
        ({"ACKFLOOR_HANDLERS__B__CONCURRENCY": "0"}, "handlers.b.concurrency='0': input should"),
        ({"ACKFLOOR_HANDLERS__B__CONSUME_TIMEOUT": "9"}, "handlers.b.consume_timeout='9': a bare"),
    ],
)
def test_mistakes_name_setting_value_fix_and_place(environment: dict[str, str], told: str) -> None:
    """One line that can be acted on without the manual."""
    with pytest.raises(ConfigError) as caught:
        load(environment)

    message = str(caught.value)
    assert told in message
    assert f"(from environment {next(iter(environment))})" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("[ap]\nworkers = 1", "no such section; did you mean app?"),
        ("[app]\nworkers = ", "not TOML"),
        pytest.param(f"[app]\nworkers = {'9' * 5_000}", "not TOML", id="a number without an end"),
        pytest.param(f"deep = {'[' * 5_000}", "not TOML", id="lists without an end"),
        ("app = 3", "app=3: not a table; write a table: [app]"),
        ("[kafka]\nconsumer = 3", "kafka.consumer=3: not a table; write a table: [kafka.consumer]"),
        ("[handlers]\nbill = 3", "handlers.bill=3: not a table"),
        ("[app]\ncommit_interval = 30", "app.commit_interval=30: a bare number has no unit"),
        ("[app]\nworkers = 1.5", "app.workers=1.5: input should be a valid integer"),
        ("[app]\nmax_open = true", "app.max_open=True: no number; write a whole number"),
        ("[app]\nmax_open_bytes = true", "app.max_open_bytes=True: no number; write a size"),
        ("[handlers.bill.retry]\njitter = false", "handlers.bill.retry.jitter=False: no number"),
        (
            '[handlers.bill]\nordering = "key"',
            "it is said in code: @app.handler(..., ordering=...)",
        ),
        ("[app]\nconcurrency = 3", "it is a handler's: set handlers.<name>.concurrency"),
        ('[kafka]\n"linger.ms" = 5', "belong in one of [kafka.properties], [kafka.consumer],"),
        ("[kafka]\nfetch.min.bytes = 5", "kafka.fetch.min.bytes='***': no such setting; librd"),
    ],
)
def test_mistakes_in_the_file_are_told_with_its_name(file: str, told: str) -> None:
    """The file's name is in the line."""
    with pytest.raises(ConfigError) as caught:
        load(file=file)

    assert told in str(caught.value)
    assert "ackfloor.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "above"),
    [
        ("[app]\ncommit_interval = 30", {"ACKFLOOR_APP__COMMIT_INTERVAL": "3s"}),
        ("[handlers.bill]\nconcurrency = 0", {"ACKFLOOR_HANDLERS__BILL__CONCURRENCY": "3"}),
    ],
)
def test_a_mistake_is_told_although_something_stronger_counts(
    file: str, above: dict[str, str]
) -> None:
    """It would count one day: when the variable goes, or the run with its `config set` ends."""
    with pytest.raises(ConfigError, match=r"ackfloor\.toml"):
        load(above, file=file)


def test_half_of_a_login_that_is_replaced_is_no_mistake() -> None:
    """What is judged together is judged as it counts."""
    file = '[kafka]\nsecurity_protocol = "sasl_ssl"\nsasl_mechanism = "PLAIN"'
    kafka = load({"ACKFLOOR_KAFKA__SASL_MECHANISM": "SCRAM-SHA-256"}, file=file).kafka
    assert kafka.sasl_mechanism == "SCRAM-SHA-256"


def test_the_file_can_be_named_and_must_exist_then(tmp_path: Path) -> None:
    """By argument or by variable; a file that is only looked for may be missing."""
    other = tmp_path / "other.toml"
    other.write_text("[app]\nworkers = 7", "utf-8")

    assert load(config=other).app.workers == 7
    assert load({"ACKFLOOR_CONFIG": str(other)}).app.workers == 7
    with pytest.raises(ConfigError, match=r"config='none\.toml': No such file"):
        load({"ACKFLOOR_CONFIG": "none.toml"})


def test_an_unknown_flag_name_is_a_mistake_of_ours_that_is_told() -> None:
    """And a flag that was not given is no value."""
    with pytest.raises(ConfigError, match=r"did you mean app\.workers"):
        load(flags={"app.worker": 3})
    assert load(flags={"app.workers": None}).app.workers == 1


def test_settings_are_immutable() -> None:
    """A reload makes new ones."""
    with pytest.raises(ValidationError):
        load().app.workers = 3  # type: ignore[misc]


def test_settings_survive_the_way_to_a_worker_process() -> None:
    """Sources included, so that a worker can say where a value came from."""
    settings = load({"ACKFLOOR_APP__WORKERS": "4", "ACKFLOOR_KAFKA__SSL_KEY_PASSWORD": "pw"})

    copy = pickle.loads(pickle.dumps(settings))

    assert copy == settings
    assert copy.source_of("app.workers") == "environment ACKFLOOR_APP__WORKERS"
    assert copy.kafka.librdkafka("admin")["ssl.key.password"] == "pw"


def test_what_was_set_can_be_listed() -> None:
    """Everything that is not built in."""
    settings = load({"ACKFLOOR_APP__WORKERS": "4"})

    assert {path: assigned.value for path, assigned in settings.assigned.items()} == {
        ("app", "workers"): "4"
    }


def test_none_and_text_are_allowed_where_a_limit_may_be_missing() -> None:
    """In code None, elsewhere a word."""
    code = {"handlers": {"bill": {"consume_timeout": None, "max_extend": "none"}}}

    bill = Settings.from_code(code).handlers["bill"]

    assert (bill.consume_timeout_s, bill.max_extend_s) == (None, None)


def test_a_list_may_be_given_as_one() -> None:
    """TOML and code have lists of their own."""
    app = load(file='[app]\nforeign_headers = ["spring"]').app

    assert app.foreign_headers == ("spring",)
