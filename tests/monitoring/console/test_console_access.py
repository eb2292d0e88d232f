"""Who may come in: tokens, sessions, hosts and origins, each attacked on its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackfloor import ConfigError
from ackfloor_monitoring.console.access.binding import refuse_unsafe, refuse_unsafe_url
from ackfloor_monitoring.console.access.gate import Gate, Refused
from ackfloor_monitoring.console.access.hosts import host_name, own_names, public_url
from ackfloor_monitoring.console.access.login_attempts import REFILL_S, TRIES, LoginAttempts
from ackfloor_monitoring.console.access.proxies import proxies_of
from ackfloor_monitoring.console.access.request_origin import foreign
from ackfloor_monitoring.console.access.roles import Person, Right, Role, may
from ackfloor_monitoring.console.access.sessions import IDLE_S, LONGEST_S, Sessions
from ackfloor_monitoring.console.access.tokens import add_token, hashed, read_tokens

OWN = "http://127.0.0.1:9700"
ALICE = Person("alice", Role.operator)
Ask = Callable[[Gate, str, str], object]


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """Of one test."""
    return Clock()


def rights(role: Role) -> set[Right]:
    """What a role may do."""
    return {right for right in Right if may(role, right)}


def test_a_role_has_all_rights_of_those_below_it() -> None:
    """And one more."""
    assert rights(Role.viewer) == {Right.see}
    assert rights(Role.reader) == {Right.see, Right.see_payloads}
    assert rights(Role.operator) == {Right.see, Right.see_payloads, Right.act}
    assert rights(Role.admin) == set(Right)


# The token file.


def test_a_token_that_was_added_is_its_persons(tmp_path: Path) -> None:
    """The file has no token, and nobody else may write or read it."""
    file = tmp_path / "tokens.toml"
    alice, bob = add_token(file, "alice:operator"), add_token(file, "bob@ops:viewer")
    tokens = read_tokens(file)
    assert tokens.person(alice) == ALICE
    assert tokens.person(bob) == Person("bob@ops", Role.viewer)
    assert tokens.person(alice[:-1]) is None
    assert tokens.person("") is None
    assert alice not in file.read_text()
    assert bob not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


GOOD = "0" * 64


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no tokens"),
        ("[a", "is not TOML"),
        ("a = 1", r"\[a\]: an entry has"),
        (f'[a]\nrole = "operator"\nsha256 = "{GOOD}"\nfor = "ever"', r"\[a\]: an entry has"),
        (f'[a]\nrole = "root"\nsha256 = "{GOOD}"', "no such role: 'root'; one of: viewer"),
        ('[a]\nrole = "admin"\nsha256 = "secret"', "is not 64 hexadecimal digits"),
        (f'["a\\n"]\nrole = "admin"\nsha256 = "{GOOD}"', "is no name"),
        (
            f'[a]\nrole="admin"\nsha256="{GOOD}"\n[b]\nrole="admin"\nsha256="{GOOD}"',
            "b and a have the same token",
        ),
    ],
)
def test_a_token_file_that_is_wrong_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """The message names the file, the entry and the fix, and nothing that it should hide."""
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=says) as refused:
        read_tokens(file)
    assert str(file) in str(refused.value) or "--add-token" in str(refused.value)


def test_a_token_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """They could log in as anybody."""
    file = tmp_path / "tokens.toml"
    add_token(file, "alice:operator")
    file.chmod(0o660)
    with pytest.raises(ConfigError, match=f"mode 660.*chmod 600 {file}"):
        read_tokens(file)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    """With the command that makes one."""
    with pytest.raises(ConfigError, match=r"No such file.*--add-token NAME:ROLE"):
        read_tokens(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_tokens(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("alice", "no role"),
        ("alice:root", "no such role: 'root'"),
        (":admin", "is no name"),
        ("a b:admin", "is no name"),
        ("alice:viewer", "alice has a token"),
    ],
)
def test_a_token_for_nobody_or_twice_is_not_added(tmp_path: Path, given: str, says: str) -> None:
    """And the file stays as it is."""
    file = tmp_path / "tokens.toml"
    add_token(file, "alice:operator")
    before = file.read_text()
    with pytest.raises(ConfigError, match=says):
        add_token(file, given)
    assert file.read_text() == before


def test_a_folder_that_takes_no_file_is_named(tmp_path: Path) -> None:
    """The file, and what to do."""
    with pytest.raises(ConfigError, match="can't be written"):
        add_token(tmp_path / "none" / "tokens.toml", "alice:admin")


# Sessions.


def test_a_session_ends_unused_and_after_a_day(clock: Clock) -> None:
    """Being asked whether it goes on is no use of it."""
    sessions = Sessions(clock)
    secret = sessions.begin(ALICE, "token")
    clock.now_s += IDLE_S - 1
    found = sessions.of(secret)
    assert found is not None
    assert found.person == ALICE
    clock.now_s += IDLE_S - 1
    assert sessions.has(secret)
    clock.now_s += 2
    assert not sessions.has(secret)
    assert sessions.of(secret) is None
    secret = sessions.begin(ALICE, "token")
    began_s = clock.now_s
    while clock.now_s - began_s <= LONGEST_S:
        assert sessions.of(secret) is not None
        clock.now_s += IDLE_S / 2
    assert sessions.of(secret) is None


def test_sessions_are_bounded_and_end_with_their_token(clock: Clock) -> None:
    """The one that was unused for longest ends first; a changed role ends one as well."""
    sessions = Sessions(clock, most=2)
    first, second = sessions.begin(ALICE, "a"), sessions.begin(ALICE, "b")
    assert sessions.of(first)
    third = sessions.begin(ALICE, "c")
    assert sessions.of(second) is None
    assert sessions.of(first)
    sessions.keep_only({hashed("a"): Person("alice", Role.admin), hashed("c"): ALICE})
    assert sessions.of(first) is None
    assert sessions.of(third)
    sessions.end(third)
    assert sessions.of(third) is None
    sessions.end("no such")


def test_who_tries_wrong_tokens_has_to_wait(clock: Clock) -> None:
    """An address alone; tries come back one after the other."""
    attempts = LoginAttempts(clock)
    for _ in range(TRIES):
        assert attempts.wait_s("evil") == 0
        attempts.failed("evil")
    assert attempts.wait_s("evil") == pytest.approx(REFILL_S)
    assert attempts.wait_s("good") == 0
    clock.now_s += REFILL_S
    assert attempts.wait_s("evil") == 0
    attempts.failed("evil")
    assert attempts.wait_s("evil") > 0
    for number in range(10_000):
        attempts.failed(f"address {number}")
    assert len(attempts._left) == 10_000


# Where a request comes from.


@pytest.mark.parametrize(
    ("headers", "sent", "comes"),
    [
        ({"sec-fetch-site": "same-origin", "origin": OWN}, "", "in"),
        ({"sec-fetch-site": "same-origin"}, "", "in"),
        ({"origin": OWN}, "", "in"),
        ({}, "secret", "in"),
        ({"sec-fetch-site": "cross-site"}, "secret", "Sec-Fetch-Site: cross-site"),
        ({"sec-fetch-site": "same-site"}, "secret", "Sec-Fetch-Site: same-site"),
        ({"sec-fetch-site": "none"}, "secret", "Sec-Fetch-Site: none"),
        ({"origin": "null"}, "secret", "comes from null"),
        ({"origin": "http://127.0.0.1:9701"}, "secret", "comes from http://127.0.0.1:9701"),
        ({"origin": "https://127.0.0.1:9700"}, "secret", "comes from https://127.0.0.1:9700"),
        (
            {"sec-fetch-site": "same-origin", "origin": "http://evil.example"},
            "secret",
            "comes from http://evil.example",
        ),
        ({}, "", "load the page again"),
        ({}, "another", "load the page again"),
    ],
)
def test_an_action_comes_from_our_own_page(headers: dict[str, str], sent: str, comes: str) -> None:
    """What a browser says counts; where it says nothing, the session's secret does."""
    why = foreign("POST", headers, OWN, "secret", sent)
    assert why == "" if comes == "in" else comes in why
    assert foreign("GET", headers, OWN, "secret", sent) == ""


def test_without_a_session_no_secret_is_right() -> None:
    """An empty one neither."""
    assert foreign("POST", {}, OWN, "", "") != ""


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:9700", "localhost"),
        ("LOCALHOST.", "localhost"),
        ("[::1]:9700", "::1"),
        ("::1", "::1"),
        ("console.example", "console.example"),
        ("evil.example:80", "evil.example"),
        ("", ""),
    ],
)
def test_a_host_is_known_by_its_name(host: str, name: str) -> None:
    """Whatever the port, and however it is written."""
    assert host_name(host) == name


def test_the_names_of_a_console_are_its_own() -> None:
    """With that of its proxy."""
    names = own_names("10.0.0.5", public_url("https://Console.Example:8443/"))
    assert names == {"127.0.0.1", "localhost", "::1", "10.0.0.5", "console.example"}
    assert own_names("127.0.0.1", None) == {"127.0.0.1", "localhost", "::1"}


@pytest.mark.parametrize(
    "given",
    [
        "", "console.example", "ftp://console.example", "https://", "https://a/path", "https://a?b",
        "https://me@console.example", "https://a:99999", "https://[::1",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_browser_is_refused(given: str) -> None:
    """With an example."""
    with pytest.raises(ConfigError, match="is not a scheme and a host; such as https://"):
        public_url(given)


# Where it may listen.


def test_beyond_this_machine_a_console_has_tokens_and_tls() -> None:
    """On it, neither."""
    file, certificate = Path("tokens.toml"), Path("cert.pem")
    for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost"):
        refuse_unsafe(f"{host}:9700", host, None, None, None)
    for host in ("0.0.0.0", "::", "10.0.0.5", "console.example"):
        with pytest.raises(ConfigError, match="without tokens everybody may come in"):
            refuse_unsafe(f"{host}:9700", host, None, certificate, None)
        with pytest.raises(ConfigError, match="without TLS tokens can be read"):
            refuse_unsafe(f"{host}:9700", host, file, None, None)
        refuse_unsafe(f"{host}:9700", host, file, certificate, None)
    with pytest.raises(ConfigError, match="has their roles"):
        refuse_unsafe("127.0.0.1:9700", "127.0.0.1", file, None, Role.admin)


def test_an_address_of_browsers_needs_tokens_and_tls_beyond_this_machine() -> None:
    """A proxy leads others to a loopback address; one that logs people in needs no tokens."""
    file, proxies = Path("tokens.toml"), proxies_of(["127.0.0.1"], "X-User", None, Role.admin)
    for url in ("http://localhost:9700", "http://127.0.0.1", "https://[::1]"):
        refuse_unsafe_url(url, public_url(url), None)
    for host in ("console.example", "10.0.0.5", "localhost.example", "0.0.0.0"):
        url = f"https://{host}"
        with pytest.raises(ConfigError, match=f"'{url}'.*everybody may come in.*--token-file"):
            refuse_unsafe_url(url, public_url(url), None)
        refuse_unsafe_url(url, public_url(url), file)
        refuse_unsafe_url(url, public_url(url), None, proxies)
        plain = f"http://{host}"
        for tokens, named in ((file, None), (None, proxies), (file, proxies)):
            with pytest.raises(ConfigError, match=f"'{plain}'.*without TLS.*https://"):
                refuse_unsafe_url(plain, public_url(plain), tokens, named)


# The gate.


def headers(**more: str) -> dict[str, str]:
    """Those of a browser on one of our pages."""
    given = {name.replace("_", "-"): value for name, value in more.items()}
    return {"host": "127.0.0.1:9700", "sec-fetch-site": "same-origin", **given}


def refusal(gate: Gate, method: str, given: dict[str, str], sent: str = "") -> int:
    """The status with which a request is refused."""
    with pytest.raises(Refused) as refused:
        gate.identify(method, given, sent)
    return refused.value.status


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A token file, without anybody."""
    return tmp_path / "tokens.toml"


def gate_of(file: Path | None, clock: Clock, *, secure: bool = False) -> Gate:
    """The gate of a console on this machine."""
    names = own_names("127.0.0.1", None)
    return Gate(names, secure=secure, token_file=file, clock=clock)


def test_without_tokens_everybody_is_a_reader(clock: Clock) -> None:
    """But not from another site, and not by another name."""
    gate = gate_of(None, clock)
    identity = gate.identify("GET", headers(), "")
    assert identity.person.role is Role.reader
    assert identity.goes_on()
    assert not gate.asks
    assert gate.identify("POST", {"host": "localhost"}, identity.csrf).person == identity.person
    assert refusal(gate, "POST", {"host": "localhost"}) == 403
    assert refusal(gate, "POST", headers(sec_fetch_site="cross-site"), identity.csrf) == 403
    assert refusal(gate, "GET", {"host": "evil.example:9700"}) == 421
    assert refusal(gate, "GET", {}) == 421
    assert refusal(gate, "GET", {"host": "127.0.0.1:9700, evil.example"}) == 421


def test_with_tokens_nobody_comes_in_without_one(file: Path, clock: Clock) -> None:
    """By a cookie or a header; who logs out, or whose token goes, is out."""
    token = add_token(file, "alice:operator")
    gate = gate_of(file, clock)
    assert refusal(gate, "GET", headers()) == 401
    assert refusal(gate, "GET", headers(cookie="ackfloor=guess")) == 401
    assert refusal(gate, "GET", headers(cookie='ackfloor="\\777')) == 401
    assert refusal(gate, "GET", headers(authorization="Bearer guess")) == 401
    assert gate.identify("POST", headers(authorization=f"Bearer {token}"), "").person == ALICE
    secret = gate.log_in(headers(), "10.0.0.1", token)
    cookie = headers(cookie=f"other=1; ackfloor={secret}")
    identity = gate.identify("POST", cookie, "")
    assert identity.person == ALICE
    assert identity.goes_on()
    gate.log_out(cookie, "")
    assert not identity.goes_on()
    assert refusal(gate, "GET", cookie) == 401


def test_a_cookie_of_tls_is_of_this_host_alone(file: Path, clock: Clock) -> None:
    """Its name tells browsers so."""
    token = add_token(file, "alice:operator")
    gate = gate_of(file, clock, secure=True)
    assert gate.cookie("") == "__Host-ackfloor"
    own = "https://127.0.0.1:9700"
    secret = gate.log_in(headers(origin=own), "10.0.0.1", token)
    identity = gate.identify("POST", headers(origin=own, cookie=f"__Host-ackfloor={secret}"), "")
    assert identity.person == ALICE
    assert refusal(gate, "GET", headers(cookie=f"ackfloor={secret}")) == 401
    with pytest.raises(Refused, match="comes from http://127"):
        gate.log_in(headers(origin=OWN), "10.0.0.1", token)


def test_what_is_wrong_with_the_token_file_is_for_the_log(
    file: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: whoever is not logged in reads neither its path nor a name that is in it."""
    token = add_token(file, "alice:operator")
    gate = gate_of(file, clock)
    with file.open("a") as text:
        text.write('["bob"]\nrole = "root"\nsha256 = ""\n')
    for given in (headers(), headers(authorization=f"Bearer {token}")):
        with pytest.raises(Refused, match="the console's log says") as refused:
            gate.identify("GET", given, "")
        assert refused.value.status == 503
        assert str(file.parent) not in str(refused.value)
        assert "bob" not in str(refused.value)
    with pytest.raises(Refused, match="the console's log says"):
        gate.log_in(headers(), "10.0.0.1", token)
    assert caplog.text.count(f"the console lets nobody in: --token-file='{file}': [bob]") == 1


def test_a_token_that_is_taken_out_ends_its_session(file: Path, clock: Clock) -> None:
    """While the console runs; a file that is broken lets nobody in, and says so."""
    alice = add_token(file, "alice:operator")
    before = file.read_text()
    bob = add_token(file, "bob:viewer")
    gate = gate_of(file, clock)
    secrets = [gate.log_in(headers(), "10.0.0.1", token) for token in (alice, bob)]
    cookies = [headers(cookie=f"ackfloor={secret}") for secret in secrets]
    streams = [gate.identify("GET", cookie, "") for cookie in cookies]
    file.write_text(before)
    assert gate.identify("GET", cookies[0], "").person == ALICE
    assert refusal(gate, "GET", cookies[1]) == 401
    assert [stream.goes_on() for stream in streams] == [True, False]
    file.write_text("[broken")
    for _ in range(2):
        assert refusal(gate, "GET", cookies[0]) == 503
    file.write_text(before)
    assert refusal(gate, "GET", cookies[0]) == 401
    assert gate.log_in(headers(), "10.0.0.1", alice)
    file.unlink()
    assert refusal(gate, "GET", cookies[0]) == 503


#: A token that somebody has made up, which others may guess.
MADE_UP = "hunter2"


def log_in(gate: Gate, address: str, token: str) -> object:
    """Send the form of the login page."""
    return gate.log_in(headers(), address, token)


def ask_with(gate: Gate, address: str, token: str) -> object:
    """Ask as a script does."""
    return gate.identify("GET", headers(authorization=f"Bearer {token}"), "", address)


@pytest.mark.parametrize(("ask", "other"), [(log_in, ask_with), (ask_with, log_in)])
def test_guessing_a_token_is_slowed_down(file: Path, clock: Clock, ask: Ask, other: Ask) -> None:
    """For the address that guesses; one that can be guessed is refused as well until then."""
    made = add_token(file, "alice:operator")
    another = made[:-1] + ("b" if made.endswith("a") else "a")
    with file.open("a") as text:
        text.write(f'["bob"]\nrole = "viewer"\nsha256 = "{hashed(MADE_UP)}"\n')
    gate = gate_of(file, clock)
    for n in range(TRIES):
        with pytest.raises(Refused, match="no such token") as wrong:
            ask(gate, "10.6.6.6", f"guess {n}")
        assert wrong.value.status == 401
    for guess in ("guess", MADE_UP, another, made[:-1], f"{made}x"):
        with pytest.raises(Refused) as late:
            ask(gate, "10.6.6.6", guess)
        assert str(late.value) == "too many wrong tokens: try again in 6 s"
        assert late.value.status == 429
    # Others behind the same proxy have that address as well: what nobody guesses goes on.
    for _ in range(TRIES):
        assert ask(gate, "10.6.6.6", made)
    assert ask(gate, "10.0.0.1", MADE_UP)
    assert other(gate, "10.6.6.6", MADE_UP)
    clock.now_s += REFILL_S
    assert ask(gate, "10.6.6.6", MADE_UP)


def test_another_site_cannot_log_somebody_in(file: Path, clock: Clock) -> None:
    """Who acts in somebody else's session does so under their name."""
    token = add_token(file, "alice:operator")
    gate = gate_of(file, clock)
    with pytest.raises(Refused, match="another site"):
        gate.log_in(headers(sec_fetch_site="cross-site"), "10.0.0.1", token)
    with pytest.raises(Refused, match="no name of this console"):
        gate.log_in(headers(host="evil.example"), "10.0.0.1", token)
