"""`ackfloor console`: what it can't start with."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ackfloor.cli.main import main
from ackfloor.runtime.supervision.exit_codes import Exit

ANY_PORT = ("--listen", "127.0.0.1:0")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a settings file."""
    monkeypatch.chdir(tmp_path)


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
        (["--public-url", "a:1"], Exit.USAGE, "--public-url='a:1': is not a scheme and a host"),
        (["--tls-certificate", "none.pem"], Exit.USAGE, "--tls-certificate='none.pem'"),
        (["--run", "nowhere"], Exit.USAGE, "--run='nowhere': not an address"),
        (["--index-folder", __file__], Exit.USAGE, "File exists"),
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


def test_an_address_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        assert refused("--listen", where) == Exit.USAGE
    assert f"--listen='{where}': Address already in use" in capsys.readouterr().err
