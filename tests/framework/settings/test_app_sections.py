"""Several apps in one settings file: the section of an app's group, and its variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackfloor.errors import ConfigError
from ackfloor.settings import Settings, sections_of

FILE = """
[kafka]
bootstrap_servers = "kafka:9092"
[kafka.consumer]
fetch.min.bytes = 1

[app]
workers = 2
max_open = 100

[apps.billing.app]
workers = 4
listen = "127.0.0.1:9601"
[apps.billing.kafka.consumer]
fetch.min.bytes = 1024
[apps.billing.handlers.bill]
consume_timeout = "10s"
retry = { max_redeliveries = 3 }
[apps.billing.redaction]
fields = ["card"]
[apps.billing.registry]
url = "http://registry:8081"

[apps."shop.audit-log".app]
workers = 8
"""


@pytest.fixture(autouse=True)
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a settings file of two apps."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "ackfloor.toml"
    path.write_text(FILE, "utf-8")
    return path


def load(group: str = "", **environment: str) -> Settings:
    """The settings of the app of a group."""
    code = sections_of(group, {}) if group else {}
    return Settings.load(code, environment={f"ACKFLOOR_{k}": v for k, v in environment.items()})


def refused(group: str, **environment: str) -> str:
    """What is said about settings that are refused."""
    with pytest.raises(ConfigError) as caught:
        load(group, **environment)
    return str(caught.value)


def test_an_app_has_its_section_and_what_is_common() -> None:
    """Each section of the top level may stand in an app's; the source names which counts."""
    billing = load("billing")
    assert (billing.app.workers, billing.app.max_open) == (4, 100)
    assert billing.source_of("app.workers") == "file ackfloor.toml [apps.billing]"
    assert billing.source_of("app.max_open") == "file ackfloor.toml"
    assert billing.kafka.librdkafka("consumer")["fetch.min.bytes"] == 1024
    assert billing.kafka.bootstrap_servers == "kafka:9092"
    assert billing.handlers["bill"].consume_timeout_s == 10.0
    assert billing.handlers["bill"].retry.max_redeliveries == 3
    assert billing.redaction.fields == ("card",)
    assert billing.registry.url == "http://registry:8081"


def test_what_is_another_apps_does_not_count() -> None:
    """Neither for an app without a section, nor where no app is named."""
    for settings in (load("refunds"), load()):
        assert (settings.app.workers, settings.handlers) == (2, {})
        assert settings.kafka.librdkafka("consumer")["fetch.min.bytes"] == 1


def test_the_group_may_be_named_anywhere(toml: Path) -> None:
    """In code, in `[app]`, in a variable or by a flag: the strongest selects the section."""
    assert load("other", APP__GROUP="billing").app.workers == 4
    assert Settings.load(flags={"app.group": "billing"}, environment={}).app.workers == 4
    toml.write_text(FILE.replace("[app]\n", '[app]\ngroup = "billing"\n'))
    assert load("other").app.workers == 4
    assert load("other", APP__GROUP="third").app.workers == 2


def test_a_group_with_dots_is_quoted(toml: Path) -> None:
    """TOML reads an unquoted dot as a table in a table: refused, and told how to write it."""
    audit = load("shop.audit-log")
    assert audit.app.workers == 8
    assert audit.source_of("app.workers") == 'file ackfloor.toml [apps."shop.audit-log"]'
    toml.write_text("[apps.shop.audit-log.app]\nworkers = 8")
    told = refused("shop.audit-log")
    assert told.startswith("apps.shop.audit-log='***': a dot in a group parts the names of tables")
    assert 'quote the group: [apps."shop.audit-log".app] (from file ackfloor.toml)' in told
    assert "audit-log='***': no such section" in refused("shop")
    assert load("billing").app.workers == 1


@pytest.mark.parametrize(
    ("variable", "group"),
    [
        ("APPS__BILLING__APP__WORKERS", "billing"),
        ("APPS__BILLING__APP__WORKERS", "Billing"),
        ("APPS__SHOP_AUDIT_LOG__APP__WORKERS", "shop.audit-log"),
        ("APPS__A__B__APP__WORKERS", "a__b"),
        ("APPS__A__KAFKA__APP__WORKERS", "a__kafka"),
        ("APPS__APP__APP__WORKERS", "app"),
    ],
)
def test_variables_of_an_app(variable: str, group: str) -> None:
    """The group in capitals, an underscore for a dot or a dash."""
    settings = load(group, **{variable: "7"})
    assert settings.app.workers == 7
    assert settings.source_of("app.workers") == f"environment ACKFLOOR_{variable}"
    assert load("refunds", **{variable: "7"}).app.workers == 2


def test_variables_reach_all_that_the_top_level_has() -> None:
    """Properties of clients, a handler's tables, and secrets in files."""
    settings = load(
        "billing",
        APPS__BILLING__KAFKA__CONSUMER__FETCH_MIN_BYTES="9",
        APPS__BILLING__HANDLERS__BILL__RETRY__MAX_REDELIVERIES="5",
        APPS__BILLING__HANDLERS__APP__CONCURRENCY="6",
    )
    assert settings.kafka.librdkafka("consumer")["fetch.min.bytes"] == "9"
    assert settings.handlers["bill"].retry.max_redeliveries == 5
    assert settings.handlers["app"].concurrency == 6


def test_the_stronger_place_counts_before_the_nearer_section() -> None:
    """A variable for all apps is stronger than an app's section of the file."""
    assert load("billing", APP__WORKERS="5").app.workers == 5
    both = {"APP__WORKERS": "5", "APPS__BILLING__APP__WORKERS": "6"}
    assert load("billing", **both).app.workers == 6
    assert load("refunds", **both).app.workers == 5


def test_a_secret_of_another_app_is_not_read(toml: Path, tmp_path: Path) -> None:
    """Its file may be one that only the other app's user can read."""
    secret = tmp_path / "password"
    toml.write_text(
        '[kafka]\nsasl_username = "x"\nsecurity_protocol = "sasl_ssl"\n'
        f'[apps.billing.kafka]\nsasl_password_file = "{secret}"\n'
    )
    assert load("refunds").kafka.sasl_password is None
    assert "No such file" in refused("billing")
    secret.write_text("s3cret\n")
    assert load("billing").kafka.librdkafka("producer")["sasl.password"] == "s3cret"
    assert load("refunds", APPS__BILLING__KAFKA__SASL_PASSWORD_FILE="/none").kafka is not None


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (
            "[apps.billing.app]\nworkrs = 1",
            "app.workrs=1: no such setting; did you mean app.workers?",
        ),
        ("[apps.billing.ap]\nworkers = 1", "ap='***': no such section; did you mean app?"),
        ("[apps.billing]\nworkers = 1", "workers='***': no such section; sections are kafka"),
        ("[apps.billing.app]\nworkers = 0", "app.workers=0: input should be greater"),
        ("[apps.billing.apps.x]\n", "apps='***': no such section; did you mean app?"),
        (
            '[apps.billing.app]\ngroup = "x"',
            "app.group='x': this is the section of group 'billing'",
        ),
    ],
)
def test_a_mistake_in_the_own_section_names_it(toml: Path, file: str, told: str) -> None:
    """And is none of any other app's business."""
    toml.write_text(file)
    message = refused("billing")
    assert message.startswith(told)
    assert message.endswith("(from file ackfloor.toml [apps.billing])")
    assert load("refunds").app.workers == 1
    assert load().app.workers == 1


@pytest.mark.parametrize(
    "variable",
    ["APPS__BILLING__APP__WORKRS", "APPS__BILLING__HANDLERS__BILL", "APPS__BILLING__APP__GROUP"],
)
def test_a_mistake_in_an_own_variable_is_told(variable: str) -> None:
    """With the variable, which names the app."""
    assert f"(from environment ACKFLOOR_{variable})" in refused("billing", **{variable: "4"})
    assert load("refunds", **{variable: "4"}).app.workers == 2


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("apps = 3", "apps='***': not a table; write [apps.<group>.app]"),
        ("[apps]\nworkers = 3", "apps.workers='***': not the section of a group; write [apps.<g"),
        (
            "[apps.shop-audit.app]\n[apps.'shop.audit'.app]",
            "its variables would be those of apps.shop-audit; rename one of the groups",
        ),
        ("[aps.billing.app]\nworkers = 3", "aps='***': no such section; did you mean app"),
        ("[xyz.billing.app]\n", "sections are kafka, app, registry, redaction, handlers, apps"),
    ],
)
def test_what_can_be_no_apps_is_refused_for_all(toml: Path, file: str, told: str) -> None:
    """Nobody would ever miss it else."""
    toml.write_text(file)
    for group in ("billing", "refunds", ""):
        message = refused(group)
        assert told in message
        assert "ackfloor.toml" in message


@pytest.mark.parametrize("variable", ["APPS__BILLING__WORKERS", "APPS__BILLING", "APPS__WORKERS"])
def test_a_variable_without_a_section_is_refused_for_all(variable: str) -> None:
    """It could be anybody's."""
    for group in ("billing", "refunds"):
        told = refused(group, **{variable: "4"})
        assert told.startswith(f"ACKFLOOR_{variable}='***': no such setting; write ACKFLOOR_APPS__")


def test_a_mistake_at_the_top_level_is_told_although_the_section_counts(toml: Path) -> None:
    """It counts for the next app."""
    toml.write_text("[app]\nworkers = 0\n[apps.billing.app]\nworkers = 3")
    assert "app.workers=0" in refused("billing")
    hides = {"APP__WORKERS": "0", "APPS__BILLING__APP__WORKERS": "3"}
    toml.write_text("")
    assert "app.workers='0'" in refused("billing", **hides)


def test_two_variables_of_one_setting_must_agree() -> None:
    """The twin of one app is no twin of another's."""
    told = refused("billing", apps__billing__app__workers="1", APPS__BILLING__APP__WORKERS="2")
    assert "sets app.workers to something else" in told


def test_a_handler_of_another_app_is_told_where_it_belongs(toml: Path) -> None:
    """At the top level it would be every app's."""
    toml.write_text("[handlers.audit_it]\nconcurrency = 3")
    with pytest.raises(ConfigError, match=r"belongs in \[apps\.<group>\.handlers\.audit_it\]"):
        load("billing").applied([])
