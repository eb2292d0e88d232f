"""A bad value of an option is wrong usage, exit code 2, whichever command it is given to."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackfloor.cli.main import main
from ackfloor.cli.reference.cli_reference import commands, options
from ackfloor.runtime.supervision.exit_codes import Exit

APP = """
from ackfloor import App
app = App("billing")

@app.handler("orders")
async def bill(order: bytes) -> None: ...
"""
#: Options that take any text, a file, or what only the cluster or the user's code knows.
ANYTHING = {
    "--action", "--because", "--bootstrap-servers", "--by", "--config", "--edit", "--edit-with",
    "--error", "--file", "--group", "--handler", "--key", "--log", "--name", "--reason",
    "--release", "--report", "--resume", "--to", "--token-file", "--topic", "--data",
}  # fmt: skip
#: What a command needs before its options.
NEEDS = {
    "run": ["shop:app"], "policy preview": ["shop:app"], "topics plan": ["shop:app"],
    "topics apply": ["shop:app"], "config set": ["app.log_level", "info"],
    "dlq show": ["t/0/0"], "dlq cancel": ["t", "job"], "dlq archive": ["t", "--file", "f"],
    "retry show": ["t"], "retry promote": ["t"], "retry bury": ["t"], "dlq ls": ["t"],
    "breaker open": ["bill"], "breaker close": ["bill"], "breaker auto": ["bill"],
    "lanes retry": ["bill", "t/0/0"], "lanes delay": ["bill", "10m", "t/0/0"],
    "lanes park": ["bill", "t/0/0"], "lanes dead-letter": ["bill", "t/0/0"],
    "lanes discard": ["bill", "t/0/0", "--reason", "old"],
    "handlers pause": ["bill"], "handlers resume": ["bill"],
    "dlq export": ["t"], "dlq replay": ["t"], "dlq discard": ["t"],
}  # fmt: skip
#: Where the same bad value would do: a file is no folder.
BAD = {
    "--header": "=x", "--only": "biil", "--handler": "biil", "--index-folder": "shop.py",
    "--report": "no/folder",
}  # fmt: skip
#: Of these, any text would do elsewhere.
TOLD = {("policy preview", "--handler"), ("console", "--report")}


def _bad() -> list[pytest.param]:  # type: ignore[valid-type]
    found = []
    for path, command in commands():
        name = path.removeprefix("ackfloor ")
        if name.startswith("spark"):
            continue
        for option in options(command):
            flag = option.opts[-1]
            if not option.is_flag and (flag not in ANYTHING or (name, flag) in TOLD):
                found.append(pytest.param(name, flag, id=f"{name} {flag}"))
    return found


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(("name", "option"), _bad())
def test_a_bad_value_is_wrong_usage(
    name: str,
    option: str,
    taken_port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anybody is asked for anything, or a port is taken; the option is named."""
    (tmp_path / "shop.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("ACKFLOOR_APP__LISTEN", f"127.0.0.1:{taken_port}")
    monkeypatch.setenv("COLUMNS", "200")
    given = [*name.split(), *NEEDS.get(name, []), option, BAD.get(option, "no such value")]
    monkeypatch.setattr(sys, "argv", ["ackfloor", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    sys.modules.pop("shop", None)
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (Exit.USAGE, ""), told.err
    assert option.lstrip("-").replace("-", "_") in told.err.replace("-", "_")
