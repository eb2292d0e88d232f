"""A run that is served over TLS: who is trusted, and what is said where somebody is not."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ackfloor import ConfigError
from ackfloor.cli.main import cli
from ackfloor.cli.shared.parameters import SettingsSource
from ackfloor.cli.shared.run_address import trust_of
from ackfloor.cli.status.run_answers import answers_of
from ackfloor.live.pause_orders import PATH, PauseControl
from ackfloor.live.requests import Change
from ackfloor.operations import ActionLog, ControlFailed, Trust, ask_settings, ask_state
from ackfloor.operations.run_client import NoAddress, address_of, post, read_readiness
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.settings import Settings
from ackfloor_monitoring.metrics.run_metrics import RunMetrics
from ackfloor_monitoring.serving.tls import ServerTls
from tests.certificates import Authority

TOKEN = "s3cret" * 8
#: A name of this machine that looks like one of another.
ELSEWHERE = "worker-1.shop.example"


class Run:
    """A run at an address; it keeps the orders that it gets."""

    def __init__(self, *certificate: Path) -> None:
        self.orders: list[str] = []
        self.metrics = RunMetrics("billing", 1)
        self.metrics.control(PATH, PauseControl(TOKEN, self._pause, anywhere=False))
        self.listen = self.metrics.start("127.0.0.1:0", *certificate)
        self.port = int(self.listen.rpartition(":")[2])

    def _pause(self, action: str, *_: Any) -> Change:
        self.orders.append(action)
        return Change((), (0,), {}, (), 0, ())


Serve = Callable[..., Run]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts runs, with the files of a certificate or without."""
    made = list[Run]()

    def serve(*certificate: Path) -> Run:
        made.append(Run(*certificate))
        return made[-1]

    yield serve
    for run in made:
        run.metrics.stop()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Whom a test trusts; in a folder without settings."""
    monkeypatch.chdir(tmp_path)
    return Authority(tmp_path)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name leads to this machine."""
    real = socket.getaddrinfo

    def resolve(host: str, *given: Any, **more: Any) -> Any:
        return real("127.0.0.1" if host == ELSEWHERE else host, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def asked(run: Run, trust: Trust, host: str = "127.0.0.1") -> str:
    """Why a run can't be asked."""
    with pytest.raises(ControlFailed) as failed:
        ask_state(f"https://{host}:{run.port}", trust)
    return str(failed.value)


def test_a_run_is_asked_over_tls(serve: Serve, authority: Authority) -> None:
    """By whoever trusts what has signed its certificate."""
    listen = f"https://{serve(*authority.signed('127.0.0.1')).listen}"
    assert ask_state(listen, Trust(authority.file))["group"] == "billing"
    assert read_readiness(listen, Trust(authority.file))["ready"] is False


def test_a_run_at_an_address_has_the_certificate_of_a_name(
    serve: Serve, authority: Authority
) -> None:
    """As those behind a name of DNS have; any other certificate is refused."""
    run = serve(*authority.signed(ELSEWHERE))
    trust = Trust(authority.file)
    assert ask_state(f"https://{run.listen}#{ELSEWHERE}", trust)["group"] == "billing"
    order = {"action": "resume", "handler": "bill"}
    post(f"https://{run.listen}#{ELSEWHERE}", TOKEN, PATH, order, trust)
    assert run.orders == ["resume"]
    for name in ("", "#other.example"):
        with pytest.raises(ControlFailed, match="its certificate is for another name"):
            post(f"https://{run.listen}{name}", TOKEN, PATH, order, trust)
    assert run.orders == ["resume"]


@pytest.mark.parametrize(
    "given",
    ["127.0.0.1:1#a", "http://127.0.0.1:1#a", "https://h:1#", "https://h:1#a/b", "https://h#a b"],
)
def test_a_name_of_a_certificate_is_one_and_needs_tls(given: str) -> None:
    """Otherwise nobody would look at it."""
    with pytest.raises(NoAddress, match="not an address"):
        address_of(given)


def test_who_is_not_trusted_is_said(
    serve: Serve, authority: Authority, tmp_path: Path, elsewhere: None
) -> None:
    """An unknown signer, another name, a time that is over or has not come; and what to do."""
    run = serve(*authority.signed("127.0.0.1"))
    other = Authority(tmp_path, "another")
    why = asked(run, Trust(other.file))
    assert "its certificate is signed by nobody that is trusted (" in why
    assert why.endswith("name who has signed it with --tls-ca or app.tls_ca")
    assert "signed by nobody that is trusted" in asked(run, Trust())
    why = asked(run, Trust(authority.file), ELSEWHERE)
    mismatch = f"Hostname mismatch, certificate is not valid for '{ELSEWHERE}'"
    assert f"its certificate is for another name ({mismatch}): name the run as" in why
    why = asked(serve(*authority.signed("127.0.0.1", days=(-3, -1))), Trust(authority.file))
    assert "its certificate has expired: renew it" in why
    why = asked(serve(*authority.signed("127.0.0.1", days=(1, 3))), Trust(authority.file))
    assert "its certificate is not valid yet" in why


def test_tls_on_one_side_alone_is_said(serve: Serve, authority: Authority) -> None:
    """Either way, with what to write; an order that came without it is not carried out."""
    secure, plain = serve(*authority.signed("127.0.0.1")), serve()
    for ask in (ask_state, read_readiness):
        with pytest.raises(ControlFailed, match=r"speaks TLS: write https:// in front of it"):
            ask(secure.listen)
    with pytest.raises(ControlFailed, match=r"speaks TLS: write https:// in front of it"):
        post(secure.listen, TOKEN, PATH, {"action": "resume", "handler": "bill"})
    with pytest.raises(ControlFailed, match=r"speaks TLS: write https:// in front of it"):
        ask_settings(secure.listen, TOKEN)
    assert secure.orders == []
    assert "it speaks no TLS: write http://" in asked(plain, Trust(authority.file))


def test_a_token_does_not_go_to_another_machine_without_tls(
    serve: Serve, authority: Authority, elsewhere: None
) -> None:
    """Unless that is allowed: whoever reads it on the way could do what operators do."""
    plain, order = serve(), {"action": "resume", "handler": "bill"}
    listen = f"{ELSEWHERE}:{plain.port}"
    with pytest.raises(ControlFailed, match=r"its token could be read on the way") as refused:
        post(listen, TOKEN, PATH, order)
    assert "app.plain_token = true" in str(refused.value)
    with pytest.raises(ControlFailed, match=r"its token could be read on the way"):
        ask_settings(listen, TOKEN)
    assert plain.orders == []
    assert ask_state(listen)["group"] == "billing"
    post(listen, TOKEN, PATH, order, Trust(plain_token=True))
    post(plain.listen, TOKEN, PATH, order)
    secure = serve(*authority.signed(ELSEWHERE))
    post(f"https://{ELSEWHERE}:{secure.port}", TOKEN, PATH, order, Trust(authority.file))
    assert (len(plain.orders), len(secure.orders)) == (2, 1)


def test_whom_to_trust_is_a_file_of_certificates(tmp_path: Path) -> None:
    """Refused before anybody is asked."""
    (tmp_path / "empty.pem").touch()
    for file, why in (("none.pem", "No such file"), ("empty.pem", "holds no certificate")):
        with pytest.raises(ConfigError, match=rf"app\.tls_ca='.*{file}': {why}"):
            ask_state("https://127.0.0.1:1", Trust(tmp_path / file))


def test_settings_say_whom_to_trust(tmp_path: Path) -> None:
    """They are read where that matters."""
    (tmp_path / "ackfloor.toml").write_text('[app]\ntls_ca = "ca.pem"\nplain_token = true\n')
    source = SettingsSource(tmp_path / "ackfloor.toml")
    assert trust_of(source, "127.0.0.1:9600", "https://w:9600") == Trust(Path("ca.pem"), True)
    assert trust_of(source, "w:9600").plain_token
    assert trust_of(SettingsSource(tmp_path / "none.toml"), "127.0.0.1:9600", "[::1]:1") == Trust()
    given = SettingsSource(tmp_path / "ackfloor.toml", tls_ca=Path("other.pem"))
    assert trust_of(given, "https://w:9600").ca_file == Path("other.pem")


# Commands.


def ackfloor(*arguments: object, **variables: str) -> Result:
    """What a command says."""
    return CliRunner().invoke(cli, list(map(str, arguments)), env=variables)


def test_commands_ask_over_tls(
    serve: Serve, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whom to trust is an option, a variable or a setting; the token goes with it."""
    notes = list[Any]()
    monkeypatch.setattr(ActionLog, "write", lambda _, note: notes.append(note))
    certificate, key = authority.signed("127.0.0.1")
    run = serve(certificate, key)
    named = ("--listen", f"https://{run.listen}")
    listed = ackfloor("handlers", "ls", *named, "--tls-ca", authority.file, "-o", "json")
    assert (listed.exit_code, json.loads(listed.stdout)) == (Exit.OK, [])
    assert ackfloor("inflight", *named, ACKFLOOR_RUN_TLS_CA=str(authority.file)).exit_code == 0
    refused = ackfloor("inflight", *named)
    assert "signed by nobody that is trusted" in str(refused.exception)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    (tmp_path / "ackfloor.toml").write_text(
        f'[app]\nlisten = "{run.listen}"\ntls_certificate = "{certificate}"\n'
        f'tls_ca = "{authority.file}"\n'
    )
    assert ackfloor("inflight").exit_code == Exit.OK
    for given in ((), named):
        paused = ackfloor("handlers", "pause", "bill", *given, "--token-file", token)
        assert paused.exit_code == Exit.OK, paused.output
    assert len(run.orders) == 2
    brokers = ("--bootstrap-servers", "127.0.0.1:1")
    brief = (*brokers, "--connect-timeout", "1s")
    said = ackfloor("doctor", *named, "--tls-ca", authority.file, *brief)
    assert f"run https://{run.listen}" in said.stdout
    assert "group billing, workers 1" in said.stdout


# The run's side.


def test_who_is_slow_with_tls_keeps_nobody_else_waiting(serve: Serve, authority: Authority) -> None:
    """Neither who says nothing, nor who begins and stops, nor who goes away."""
    run = serve(*authority.signed("127.0.0.1"))
    address = ("127.0.0.1", run.port)
    with socket.create_connection(address), socket.create_connection(address) as begun:
        begun.send(b"\x16\x03\x01")
        gone = socket.create_connection(address)
        gone.send(b"\x16")
        gone.close()
        assert ask_state(f"https://{run.listen}", Trust(authority.file))["group"] == "billing"


def test_whom_to_trust_is_read_once_and_for_tls_alone(
    serve: Serve, authority: Authority, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runs are asked; beyond this machine as well."""
    load, loads = SettingsSource.load, list[SettingsSource]()

    def counted(source: SettingsSource) -> Settings:
        loads.append(source)
        return load(source)

    monkeypatch.setattr(SettingsSource, "load", counted)
    plain, secure = serve(), [serve(*authority.signed(ELSEWHERE)) for _ in range(2)]
    source = SettingsSource(tls_ca=authority.file)
    of_plain = f"{ELSEWHERE}:{plain.port}"
    [answer] = answers_of([of_plain], source)
    assert (answer.error, loads) == ("", [])
    names = [of_plain, *(f"https://{ELSEWHERE}:{each.port}" for each in secure)]
    assert [each.error for each in answers_of(names, source)] == ["", "", ""]
    assert len(loads) == 1


@pytest.mark.parametrize(
    ("text", "source", "why"),
    [
        ("[app", SettingsSource(), "ackfloor.toml"),
        ("", SettingsSource(tls_ca=Path("none.pem")), "app.tls_ca='none.pem': No such file"),
    ],
)
def test_settings_that_are_refused_hide_no_run_without_tls(
    serve: Serve, authority: Authority, elsewhere: None, text: str, source: SettingsSource, why: str
) -> None:
    """It is asked all the same; of one with TLS they are the error."""
    del authority
    Path("ackfloor.toml").write_text(text)
    run = serve()
    names = [f"{ELSEWHERE}:{run.port}", "https://127.0.0.1:1"]
    plain, secure = answers_of(names, source)
    assert (plain.error, plain.group) == ("", "billing")
    assert why in secure.error


def test_a_renewed_certificate_counts_from_the_next_connection(
    serve: Serve, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that do not fit together leave the one before it, as while they are written."""
    certificate, key = authority.signed("127.0.0.1")
    run = serve(certificate, key)
    listen, trust = f"https://{run.listen}", Trust(authority.file)
    ask_state(listen, trust)
    renewed, its_key = authority.signed("127.0.0.2")
    renewed.replace(certificate)
    for _ in range(2):
        ask_state(listen, trust)
    assert caplog.text.count("keeps the certificate that it has") == 1
    its_key.replace(key)
    assert "not valid for '127.0.0.1'" in asked(run, trust)


def test_a_renewed_certificate_counts_as_soon_as_it_can_be_read(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where nothing but what is read shows that: its time and its number stay the same."""
    file = tmp_path / "both.pem"
    first, renewed = (
        b"".join(each.read_bytes() for each in authority.signed("127.0.0.1")) for _ in range(2)
    )
    file.write_bytes(first)
    tls = ServerTls(file, None)
    before = tls.context()
    file.write_bytes(renewed[:100])
    os.utime(file, ns=(1, 1))
    assert [tls.context() is before for _ in range(2)] == [True, True]
    assert caplog.text.count("keeps the certificate that it has") == 1
    file.write_bytes(renewed)
    os.utime(file, ns=(1, 1))
    after = tls.context()
    assert after is not before
    assert tls.context() is after


def test_a_certificate_that_can_not_be_used_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    """Nobody is asked for a password; the key of another one is named."""
    certificate, key = authority.signed("127.0.0.1")
    _, other = authority.signed("127.0.0.1")
    locked = authority.signed("127.0.0.1", password=b"hush")
    none = tmp_path / "none.pem"
    for given, why in (
        ((none,), f"{none}: No such file or directory"),
        ((certificate, none), f"{none}: No such file or directory"),
        ((certificate,), "no certificate with its key ("),
        ((key, certificate), "no certificate with its key ("),
        ((certificate, other), "the key is that of another certificate"),
        (locked, "no certificate with its key ("),
    ):
        with pytest.raises(ConfigError) as refused:
            RunMetrics("billing", 1).start("127.0.0.1:0", *given)
        assert f"app.tls_certificate='{given[0]}': {why}" in str(refused.value)
