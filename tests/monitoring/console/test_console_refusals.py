"""`ackfloor console`: what it can't start with."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ackfloor.cli.main import main
from ackfloor.cli.shared.parameters import Brokers
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor_monitoring.console.shown_clusters import shown_clusters

ANY_PORT = ("--listen", "127.0.0.1:0")
#: Where browsers reach a console by a proxy of this machine.
ELSEWHERE = "https://console.example"
NAMED = ("--proxy", "127.0.0.1", "--proxy-user", "X-User")
TOKENS = ("--token-file", "tokens.toml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a settings file; variables of whoever runs the tests are not those of a cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACKFLOOR_BOOTSTRAP_SERVERS", raising=False)


def refused(*arguments: str) -> int:
    """The exit code of a console that does not start."""
    with pytest.raises(SystemExit) as ended:
        main(["console", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--listen", "0.0.0.0:9700"], Exit.USAGE, "without tokens everybody may come in"),
        (["--listen", "9700"], Exit.USAGE, "expected host:port"),
        (["--add-token", "ann:admin"], Exit.USAGE, "goes with --token-file"),
        (["--token-file", "none.toml"], Exit.USAGE, "--token-file='none.toml': No such file"),
        (["--role", "root"], Exit.USAGE, "root"),
        (["--cluster", "a/b"], Exit.USAGE, "--cluster='a/b': can't be a part of an address"),
        (["--cluster", "a", "--cluster", "b"], Exit.USAGE, "write a=FILE"),
        (["--cluster", "a", "--cluster", "a"], Exit.USAGE, "a name is there twice"),
        (["--cluster", "a=x.toml", "--cluster", "b"], Exit.USAGE, "'b' names no settings file"),
        (["--cluster", "a=none.toml"], Exit.START, "none.toml"),
        (["--cluster", "a=x.toml", "--run", "b=h:1"], Exit.USAGE, "'b=h:1' is of none of the"),
        (["--cluster", "a=x.toml", "--run", "a=h"], Exit.USAGE, "--run='a=h': not an address"),
        (["--run", "dns+ftp://h"], Exit.USAGE, "--run='dns+ftp://h': not an address"),
        (
            ["--cluster", "a=x.toml", "--bootstrap-servers", "h:1"],
            Exit.USAGE,
            "is of one cluster",
        ),
        (["--proxy", "10.0.0.7"], Exit.USAGE, "needs --proxy-user"),
        (["--proxy-user", "X-User"], Exit.USAGE, "goes with --proxy"),
        (["--proxy-role", "X-Role"], Exit.USAGE, "goes with --proxy"),
        (["--proxy", "p", "--proxy-user", "X-User"], Exit.USAGE, "--proxy='p': 'p' does not"),
        (["--proxy", "::/0", "--proxy-user", "X-User"], Exit.USAGE, "believes everybody"),
        (["--proxy", "10.0.0.7", "--proxy-user", "Cookie"], Exit.USAGE, "can't be such a header"),
        (["--proxy", "10.0.0.7", "--proxy-user", ""], Exit.USAGE, "is empty"),
        (["--public-url", "a:1"], Exit.USAGE, "--public-url='a:1': is not a scheme and a host"),
        (["--public-url", ELSEWHERE], Exit.USAGE, "without tokens everybody may come in"),
        (["--public-url", ELSEWHERE, "--role", "admin"], Exit.USAGE, f"--public-url='{ELSEWHERE}'"),
        (["--public-url", "http://c.example", *NAMED], Exit.USAGE, "without TLS what lets people"),
        (["--public-url", "http://c.example", *TOKENS], Exit.USAGE, "without TLS what lets people"),
        (["--tls-certificate", "none.pem"], Exit.USAGE, "--tls-certificate='none.pem'"),
        (["--run", "nowhere"], Exit.USAGE, "--run='nowhere': not an address"),
        (["--index-folder", __file__], Exit.USAGE, "File exists"),
        (["--report", "."], Exit.USAGE, "--report='.': is a folder"),
        (["--report", "none/r.html"], Exit.USAGE, "there is no folder none"),
        (["--report", "a.html", "--report", "b.html"], Exit.USAGE, "kafka has two"),
        (["--prometheus", "h:9090"], Exit.USAGE, "--prometheus='h:9090': is no address of"),
        (["--prometheus", "http://h/?a=1"], Exit.USAGE, "is no address of a Prometheus"),
        (["--prometheus", "http://u:secret@h"], Exit.USAGE, "http://***@h': a password"),
        (["--index-rows", "5"], Exit.USAGE, "greater than or equal to 1000"),
        (["--tls-key", "console.key"], Exit.USAGE, "goes with --tls-certificate"),
    ],
)
def test_what_it_can_not_start_with_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: Exit, says: str
) -> None:
    """In one line that names the option, its value and the fix."""
    listen = () if "--listen" in arguments else ANY_PORT
    assert refused(*listen, *arguments) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err


def test_two_clusters_at_the_same_brokers_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable counts for all files, or both say the same: one would act on the wrong cluster."""
    given = list[str]()
    for name in ("blue", "green"):
        file = tmp_path / f"{name}.toml"
        file.write_text(f'[kafka]\nbootstrap_servers = "{name}:9092"\n')
        given += ["--cluster", f"{name}={file}"]
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", "red:9092")
    assert refused(*ANY_PORT, *given) == Exit.USAGE
    printed = " ".join(capsys.readouterr().err.split())
    assert "is of one cluster" in printed
    monkeypatch.delenv("ACKFLOOR_BOOTSTRAP_SERVERS")
    assert (
        refused(*ANY_PORT, *given[:2], "--cluster", f"red={tmp_path / 'blue.toml'}") == Exit.USAGE
    )
    printed = " ".join(capsys.readouterr().err.split())
    assert "blue and red are one, both at blue:9092" in printed


def test_clusters_have_brokers_and_runs_of_their_own(tmp_path: Path) -> None:
    """Each is reached by its own file."""
    given = list[str]()
    for name in ("blue", "green"):
        file = tmp_path / f"{name}.toml"
        file.write_text(f'[kafka]\nbootstrap_servers = "{name}:9092"\n')
        given.append(f"{name}={file}")
    blue, green = shown_clusters(given, ["green=g:1", "blue=b:1", "green=dns+g:2"], Brokers())
    assert (blue.name, blue.runs) == ("blue", ["b:1"])
    assert (green.name, green.runs) == ("green", ["g:1", "dns+g:2"])
    assert blue.brokers.settings().kafka.bootstrap_servers == "blue:9092"
    assert green.brokers.settings().kafka.bootstrap_servers == "green:9092"


def test_an_address_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        assert refused("--listen", where) == Exit.USAGE
    assert f"--listen='{where}': Address already in use" in capsys.readouterr().err
