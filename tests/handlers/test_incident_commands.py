"""`python -m ackfloor_handlers.incident`: what it says before there is an incident."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ackfloor import KafkaUnreachable
from ackfloor_handlers.incident import __main__ as command
from ackfloor_handlers.incident import beginning


def test_the_help_says_what_each_word_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who has not read the page learns here what to type next."""
    monkeypatch.setattr(sys, "argv", ["incident", "--help"])
    with pytest.raises(SystemExit):
        command.main()
    told = capsys.readouterr().out
    lines = [line.split(" ")[0] for line in told.splitlines()]
    assert [word for word in ("begin", "mend", "watch") if word not in lines] == []
    assert "ackfloor run ackfloor_handlers.incident.app:app" in told
    assert "(default: 7)" in told


def test_without_a_broker_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line that says what is missing, and no trouble that nobody has begun."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["incident", "begin"])
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(beginning, "_FIRST_ANSWER_S", 0.2)
    assert command.main() == KafkaUnreachable.exit_code
    told = capfd.readouterr().err
    assert told.startswith("error: no broker answers at 127.0.0.1:1 within 0.2 s: begin with")
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
