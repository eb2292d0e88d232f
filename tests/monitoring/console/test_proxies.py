"""People whom a reverse proxy names: believed of the named addresses, and of nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from ackfloor import ConfigError
from ackfloor_monitoring.console.access.binding import refuse_unsafe
from ackfloor_monitoring.console.access.gate import PROXIED_S, Gate, Refused
from ackfloor_monitoring.console.access.hosts import own_names, public_url
from ackfloor_monitoring.console.access.proxies import Proxies, proxies_of
from ackfloor_monitoring.console.access.roles import Person, Role
from ackfloor_monitoring.console.access.tokens import add_token

PROXY = "10.0.0.7"
NAMES = own_names("10.0.0.5", public_url("https://console.example"))


def proxies(
    *given: str, role_header: str | None = None, address_header: str | None = None
) -> Proxies:
    """Those at these addresses, which name people in X-User."""
    where = given or (PROXY,)
    found = proxies_of(where, "X-User", role_header, Role.operator, address_header)
    assert found is not None
    return found


def headers(**more: str) -> dict[str, str]:
    """Those of a browser, as a proxy passes them on."""
    given = {name.replace("_", "-"): value for name, value in more.items()}
    return {"host": "console.example", "sec-fetch-site": "same-origin", **given}


def gate(found: Proxies, file: Path | None = None) -> Gate:
    """The gate of a console behind them."""
    return Gate(NAMES, secure=True, token_file=file, proxies=found)


def test_a_named_proxy_says_who_somebody_is() -> None:
    """With the role of everybody, or the one that it says."""
    identity = gate(proxies()).identify("GET", headers(x_user="ann"), "", PROXY)
    assert identity.person == Person("ann", Role.operator)
    with_roles = proxies(role_header="X-Role")
    given = headers(x_user="ann@ops", x_role="viewer")
    assert gate(with_roles).identify("GET", given, "", PROXY).person == Person(
        "ann@ops", Role.viewer
    )


@pytest.mark.parametrize("peer", ["10.0.0.8", "127.0.0.1", "::1", "", "testclient", "10.0.0.70"])
def test_from_elsewhere_the_header_counts_for_nothing(peer: str) -> None:
    """Whatever else says that it comes from the proxy."""
    given = headers(x_user="ann", x_forwarded_for=PROXY, forwarded=f"for={PROXY}")
    with pytest.raises(Refused, match="none of the proxies") as refused:
        gate(proxies()).identify("GET", given, "", peer)
    assert refused.value.status == 403


@pytest.mark.parametrize("peer", ["10.0.0.1", "10.0.0.6", "::ffff:10.0.0.3", "fd00::9"])
def test_a_network_of_proxies_is_believed(peer: str) -> None:
    """Also where the connection has the address in its newer form."""
    found = proxies("10.0.0.0/29", "fd00::/64")
    assert gate(found).identify("GET", headers(x_user="ann"), "", peer).person.name == "ann"


@pytest.mark.parametrize("name", ["", " ", "ann, eve", "<script>", "a" * 64])
def test_a_proxy_that_names_nobody_is_refused(name: str) -> None:
    """Also one whose header came twice: the browser has sent one of them."""
    with pytest.raises(Refused, match="in x-user"):
        gate(proxies()).identify("GET", headers(x_user=name), "", PROXY)


@pytest.mark.parametrize("role", ["", "root", "admin, viewer"])
def test_a_role_that_is_none_is_refused(role: str) -> None:
    """It is not taken for the least one either: nobody meant that."""
    found = proxies(role_header="X-Role")
    with pytest.raises(Refused, match="not one of viewer"):
        gate(found).identify("GET", headers(x_user="ann", x_role=role), "", PROXY)


@pytest.mark.parametrize(
    ("peer", "said", "origin"),
    [
        (PROXY, "192.0.2.9", "192.0.2.9"),
        # What the browser has sent itself comes first.
        (PROXY, "10.9.9.9, 192.0.2.9", "192.0.2.9"),
        # A proxy behind a proxy, both named.
        (PROXY, "6.6.6.6, 192.0.2.9, 10.0.0.6", "192.0.2.9"),
        (PROXY, "10.0.0.6", "10.0.0.6"),
        (PROXY, "192.0.2.9:4711", "192.0.2.9"),
        (PROXY, "[2001:db8::9]:4711", "2001:db8::9"),
        (PROXY, "::ffff:192.0.2.9", "192.0.2.9"),
        ("::ffff:10.0.0.7", "192.0.2.9", "192.0.2.9"),
        (PROXY, "", PROXY),
        (PROXY, "unknown", PROXY),
        (PROXY, "192.0.2.9, <script>", PROXY),
        ("10.0.0.9", "192.0.2.9", "10.0.0.9"),
        ("", "192.0.2.9", ""),
    ],
)
def test_a_named_proxy_alone_says_from_where(peer: str, said: str, origin: str) -> None:
    """The last address that none of them has; where it is none, the address of the connection."""
    given = headers(x_forwarded_for=said)
    named = proxies("10.0.0.0/29", address_header="X-Forwarded-For")
    assert gate(named).origin(given, peer) == origin
    assert gate(proxies("10.0.0.0/29")).origin(given, peer) == peer
    assert Gate(NAMES, secure=True).origin(given, peer) == peer


def test_a_header_goes_with_a_proxy() -> None:
    """Alone it would be anybody's; one that browsers use for something else is refused."""
    with pytest.raises(typer.BadParameter, match="goes with --proxy"):
        proxies_of((), None, None, Role.viewer, "X-Forwarded-For")
    with pytest.raises(ConfigError, match="--proxy-address='Cookie'"):
        proxies(address_header="Cookie")


def test_forms_of_other_sites_are_refused_behind_a_proxy_too() -> None:
    """The proxy adds its header to what they make a browser send."""
    ours = gate(proxies())
    with pytest.raises(Refused):
        ours.identify("POST", headers(x_user="ann", sec_fetch_site="cross-site"), "", PROXY)
    old = {"host": "console.example", "x-user": "ann"}
    of_ann = ours.identify("GET", old, "", PROXY).csrf
    of_eve = ours.identify("GET", {**old, "x-user": "eve"}, "", PROXY).csrf
    assert ours.identify("POST", old, of_ann, PROXY).person.name == "ann"
    for sent in ("", of_eve):
        with pytest.raises(Refused):
            ours.identify("POST", old, sent, PROXY)


def test_a_token_of_the_proxys_own_login_is_none_of_ours() -> None:
    """Some proxies pass it on; from elsewhere it opens nothing."""
    given = headers(x_user="ann", authorization="Bearer of-the-proxy")
    assert gate(proxies()).identify("GET", given, "", PROXY).person.name == "ann"
    with pytest.raises(Refused, match="none of the proxies"):
        gate(proxies()).identify("GET", given, "", "10.0.0.9")


def test_a_page_that_is_open_ends_so_that_the_proxy_is_asked_again() -> None:
    """It may have logged them out, or given them another role."""
    now = [0.0]
    ours = Gate(NAMES, secure=True, proxies=proxies(), clock=lambda: now[0])
    identity = ours.identify("GET", headers(x_user="ann"), "", PROXY)
    now[0] = PROXIED_S - 1
    assert identity.goes_on()
    now[0] = PROXIED_S
    assert not identity.goes_on()
    assert identity.asks_again


def test_beside_proxies_tokens_go_on(tmp_path: Path) -> None:
    """Scripts come without the proxy; a browser from elsewhere is led to the login."""
    file = tmp_path / "tokens.toml"
    token = add_token(file, "ci:viewer")
    ours = gate(proxies(), file)
    given = headers(authorization=f"Bearer {token}", x_user="ann")
    assert ours.identify("GET", given, "", "10.0.0.9").person == Person("ci", Role.viewer)
    with pytest.raises(Refused, match="log in first"):
        ours.identify("GET", headers(x_user="ann"), "", "10.0.0.9")


def test_behind_proxies_a_console_may_be_reached_from_elsewhere(tmp_path: Path) -> None:
    """With tokens beside them it needs TLS: they could be read on the way."""
    refuse_unsafe("10.0.0.5:9700", "10.0.0.5", None, None, Role.viewer, proxies())
    with pytest.raises(ConfigError, match="without TLS"):
        refuse_unsafe("10.0.0.5:9700", "10.0.0.5", tmp_path / "t", None, None, proxies())
