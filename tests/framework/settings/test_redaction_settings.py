"""`[redaction]` in its file and variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackfloor.core.records.redaction import Redaction
from ackfloor.errors import ConfigError
from ackfloor.settings import Settings


def test_rules_come_from_the_file(tmp_path: Path) -> None:
    """Each setting becomes the rule of its name."""
    file = tmp_path / "ackfloor.toml"
    file.write_text(
        '[redaction]\npayload = "drop"\nkey = "hash"\nfields = ["email"]\n'
        'headers = ["x-*"]\npatterns = ["[0-9]{13,16}"]\n'
    )
    rules = Settings.load(config=file, environment={}).redaction.rules()
    assert rules == Redaction("drop", "hash", ("email",), ("x-*",), ("[0-9]{13,16}",))


def test_lists_in_variables() -> None:
    """Names have commas between them, patterns lines."""
    variables = {
        "ACKFLOOR_REDACTION__FIELDS": "email, card.number",
        "ACKFLOOR_REDACTION__PATTERNS": "[0-9]{13,16}\nsecret",
    }
    rules = Settings.load(environment=variables).redaction.rules()
    assert rules.fields == ("email", "card.number")
    assert rules.patterns == ("[0-9]{13,16}", "secret")


def test_a_bad_pattern_is_told_with_its_place() -> None:
    """Before any record is read."""
    with pytest.raises(
        ConfigError, match=r"redaction\.patterns='\('.*ACKFLOOR_REDACTION__PATTERNS"
    ):
        Settings.load(environment={"ACKFLOOR_REDACTION__PATTERNS": "("})
