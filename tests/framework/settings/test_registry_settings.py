"""`[registry]` in its file, variables and code."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackfloor.errors import ConfigError
from ackfloor.settings import RegistrySettings, Settings, rows, sections_of

URL = "https://registry.example:8081"


def test_settings_become_the_clients(tmp_path: Path) -> None:
    """Each by the client's own name; the password from a file of its own."""
    (tmp_path / "password").write_text("swordfish\n")
    settings = Settings.load(
        environment={
            "ACKFLOOR_REGISTRY__URL": f"{URL},http://second:8081",
            "ACKFLOOR_REGISTRY__USERNAME": "reader",
            "ACKFLOOR_REGISTRY__PASSWORD_FILE": str(tmp_path / "password"),
            "ACKFLOOR_REGISTRY__SSL_CA_LOCATION": "/etc/ca.pem",
            "ACKFLOOR_REGISTRY__TIMEOUT": "2s",
        }
    )
    assert settings.registry.client() == {
        "url": f"{URL},http://second:8081",
        "basic.auth.user.info": "reader:swordfish",
        "ssl.ca.location": "/etc/ca.pem",
        "timeout": 2.0,
        "max.retries": 0,
    }
    shown = {row.name: row.value for row in rows(settings)}
    assert shown["registry.password"] == "***"
    assert shown["registry.wait"] == "500ms"
    assert "swordfish" not in str(shown)


def test_an_app_may_name_it_in_code() -> None:
    """`App(registry={...})` is the weakest place, as `kafka={...}` is."""
    code = sections_of("billing", {"registry": {"url": URL}, "workers": 2})
    assert Settings.load(code, environment={}).registry.url == URL
    other = Settings.load(code, environment={"ACKFLOOR_REGISTRY__URL": "http://other:1"})
    assert other.registry.url == "http://other:1"
    assert other.app.workers == 2


def test_a_missing_password_is_told_when_it_is_needed() -> None:
    """Settings are shown where there are no secrets; who would ask the registry is refused."""
    registry = RegistrySettings(url=URL, username="reader")
    with pytest.raises(ConfigError, match=r"registry\.password.*REGISTRY__PASSWORD_FILE"):
        registry.check_complete("handlers.bill.order")
    RegistrySettings(url=URL, username="reader", password="x").check_complete("")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"URL": "registry:8081"}, "no URL of a registry"),
        ({"URL": "https://me:swordfish@registry:8081"}, "no password may be in it"),
        ({"URL": URL, "PASSWORD": "swordfish"}, "there is no user"),
        ({"URL": URL, "SSL_KEY_LOCATION": "/etc/key.pem"}, "there is no certificate"),
        ({"URL": URL, "TIMEOUT": "0s"}, "no time at all"),
        ({"URl_": URL}, "did you mean"),
    ],
)
def test_mistakes_name_the_setting_and_no_secret(given: dict[str, str], told: str) -> None:
    """Each with its fix; what is wrong may be a password."""
    variables = {f"ACKFLOOR_REGISTRY__{name}": value for name, value in given.items()}
    with pytest.raises(ConfigError) as caught:
        Settings.load(environment=variables)
    assert told in str(caught.value)
    assert "registry." in str(caught.value) or "REGISTRY" in str(caught.value)
    assert "swordfish" not in str(caught.value)
