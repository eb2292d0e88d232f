"""`ackfloor dlq replay --edit|--edit-with` on a real broker: what is sent, shown and refused."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ackfloor.core.records.envelope import PREFIX, read_envelope
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor.dead_letters.rules.redrive_edit import read_mark
from ackfloor.errors import RedriveRefused, StartError
from ackfloor.redrive import operator
from tests.framework.kafka.wire import fresh
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka

VALUES = [b'{"n": 0}', b'{"n": "one", "card": "4711"}', b"\xff\x00", None]
WAS = {hashlib.sha256(value or b"").hexdigest() for value in VALUES}

#: What is changed in the second line, and what is said of it.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"key": "k9"}, "line 2 key can't be edited: only value and headers can"),
    ({"attempt": 1}, "line 2 attempt can't be edited"),
    ({"valeu": "x"}, "line 2 valeu can't be edited"),
    ({"value": {"n": 1}}, "line 2 has a value of type dict: make it text, also of JSON"),
    ({"value_base64": "AA=="}, "line 2 has value and value_base64: leave one out"),
    ({"value": "\ud800"}, "line 2 has a value that can't be read"),
    ({"headers": [["h", "1"]]}, "line 2 has ['h', '1'] for a header"),
    ({"headers": [{"name": "ackfloor.replays", "value": "0"}]}, "under ackfloor. is changed"),
    ({"topic": "other"}, "line 2 is not of "),
    ({"offset": "1"}, "line 2 has no partition and offset"),
    ({"offset": 2**63}, "line 2 has no partition and offset"),
    ({"offset": -1}, "line 2 has no partition and offset"),
    ({"partition": 2**31}, "line 2 has no partition and offset"),
    ({"partition": 0, "offset": 0}, "line 2 names the dead letter of line 1"),
]


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Four dead letters: JSON, JSON, no text, no value."""
    stage.bury([(b"k%d" % n, value, [("tenant", b"acme")]) for n, value in enumerate(VALUES)])
    return stage


@pytest.fixture
def fixes() -> Iterator[str]:
    """The name of a module of the user's in the working directory."""
    name = fresh("fixes").replace("-", "_")
    before = list(sys.path)
    yield name
    sys.path[:] = before
    sys.modules.pop(name, None)


def dlq(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(dlq_app, list(arguments))


def lines(stage: Stage) -> list[dict[str, Any]]:
    """What `dlq export` writes, by key."""
    found = [json.loads(line) for line in dlq("export", stage.dlq, "--all").stdout.splitlines()]
    return sorted(found, key=lambda each: str(each["key"]))


def write(*facts: object) -> str:
    """A file of these lines, whose name has no folder."""
    Path("edited.jsonl").write_text("\n".join(map(json.dumps, facts)) + "\n\n")
    return "edited.jsonl"


def sent(stage: Stage) -> dict[bytes, tuple[Any, list[Any], str | None]]:
    """Key -> value, own headers and the mark of what is in the tier."""
    return {
        bytes(m.key() or b""): (  # type: ignore[arg-type]
            m.value(),
            [each for each in m.headers() or () if not each[0].startswith(PREFIX)],
            hash_in(read_envelope(m.headers()).edited),
        )
        for m in stage.read(stage.tier)
    }


def hash_in(mark: str | None) -> str | None:
    """The hash that a mark begins with; who edited it now follows."""
    if mark is None:
        return None
    found = read_mark(mark)
    assert found.by == operator()
    assert abs((found.at_ms or 0) - time.time() * 1000) < 600_000
    return found.was


def test_lines_of_an_export_are_corrected_and_sent(stage: Stage) -> None:
    """Those alone; the dry run shows the difference; what is as it was bears no mark."""
    first, second, third, _ = lines(stage)
    second["value"] = '{"n": 1, "card": "4711"}'
    third.pop("value_base64")
    third |= {"value": None, "headers": [{"name": "tenant", "value_base64": "/w=="}]}
    file = write(first, second, third)
    dry = dlq("replay", stage.dlq, "--edit", file, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "3 would be sent" in dry.stdout
    assert "2  of them edited" in dry.stdout
    assert '      - "n": "one",\n      + "n": 1,\n' in dry.stdout
    assert "      -header tenant: acme\n      -0xff00\n      +header tenant: 0xff\n" in dry.stdout
    assert stage.read(stage.tier) == []
    assert dlq("replay", stage.dlq, "--edit", file, "--yes").exit_code == 0
    own = [("tenant", b"acme")]
    assert sent(stage) == {
        b"k0": (VALUES[0], own, None),
        b"k1": (b'{"n": 1, "card": "4711"}', own, hashlib.sha256(VALUES[1] or b"").hexdigest()),
        b"k2": (None, [("tenant", b"\xff")], hashlib.sha256(VALUES[2] or b"").hexdigest()),
    }
    again = dlq("replay", stage.dlq, "--edit", file, "--yes")
    assert (again.exit_code, stage.sent_once()) == (0, 3)


def test_a_line_that_is_wrong_is_named_before_anything_is_sent(stage: Stage) -> None:
    """Also where the lines before it are right."""
    first, second, *_ = lines(stage)
    first["value"] = "{}"
    for change, why in WRONG:
        ended = dlq("replay", stage.dlq, "--edit", write(first, second | change), "--yes")
        assert isinstance(ended.exception, RedriveRefused), ended.output
        assert why in str(ended.exception)
    assert stage.read(stage.tier) == []


def test_a_function_edits_what_is_meant(stage: Stage, fixes: str) -> None:
    """Of those that the filter leaves; a fault of its own is told with its place."""
    Path(f"{fixes}.py").write_text(
        "from dataclasses import replace\n\n"
        "def repair(letter):\n"
        '    return replace(letter, value=letter.value.replace(b\'"one"\', b"1"))\n\n'
        "def forget(letter):\n    pass\n\n"
        "answer = 42\n"
    )
    meant = ["replay", stage.dlq, "--edit-with", f"{fixes}:repair", "--yes"]
    broken = dlq(*meant)
    assert isinstance(broken.exception, RedriveRefused)
    assert f"{stage.dlq}/1/1 at " in str(broken.exception)
    assert f"{fixes}.py:4: AttributeError" in str(broken.exception)
    forgot = dlq("replay", stage.dlq, "--edit-with", f"{fixes}:forget", "--yes")
    assert f"the edit of {stage.dlq}/0/0: it returned None; return the " in str(forgot.exception)
    assert stage.read(stage.tier) == []
    assert dlq(*meant, "--key", "k1").exit_code == 0
    [(value, _, mark)] = sent(stage).values()
    assert (value, mark in WAS) == (b'{"n": 1, "card": "4711"}', True)
    [note] = json.loads(dlq("jobs", stage.dlq, "-o", "json").stdout)
    resumed = dlq("replay", stage.dlq, "--resume", note["job"], "--yes")
    assert f"it edited what it sent ({fixes}:repair)" in str(resumed.exception)
    for name, why in [("answer", "not a function"), ("no", "no attribute"), ("", "not MODULE:")]:
        refused = dlq("replay", stage.dlq, "--edit-with", f"{fixes}:{name}")
        assert isinstance(refused.exception, StartError)
        assert why in str(refused.exception)


def test_what_redaction_hides_is_not_shown_and_not_lost(stage: Stage, fixes: str) -> None:
    """A file has not all of it and is refused; a function edits the original bytes."""
    file = write(lines(stage)[1])
    Path(f"{fixes}.py").write_text(
        "from dataclasses import replace\n\n"
        "def repair(letter):\n"
        '    return replace(letter, value=letter.value.replace(b"4711", b"4712"))\n'
    )
    Path("ackfloor.toml").write_text('[redaction]\nfields = ["card"]\n')
    refused = dlq("replay", stage.dlq, "--edit", file)
    assert (refused.exit_code, "use --edit-with" in " ".join(refused.stderr.split())) == (2, True)
    meant = ["replay", stage.dlq, "--edit-with", f"{fixes}:repair", "--key", "k1"]
    dry = dlq(*meant, "--dry-run", "-o", "json")
    [report] = json.loads(dry.stdout)
    assert report["edited"] == 1
    assert report["changes"][0]["lines"] == ["what is changed is hidden by [redaction]"]
    assert "4711" not in dry.output
    assert dlq(*meant, "--yes").exit_code == 0
    assert sent(stage)[b"k1"][0] == b'{"n": "one", "card": "4712"}'


def test_what_does_not_go_together_is_refused(stage: Stage, tmp_path: Path) -> None:
    """A file says itself what is meant; and it must be there."""
    file = write(*lines(stage))
    for more in (["--edit-with", "a:b"], ["--resume", "job"]):
        ended = dlq("replay", stage.dlq, "--edit", file, *more)
        assert (ended.exit_code, "give" in ended.stderr) == (2, True)
    one = dlq("replay", f"{stage.dlq}/0/0", "--edit", file)
    assert (one.exit_code, "give the topic alone" in " ".join(one.stderr.split())) == (2, True)
    for path, why in [("none.jsonl", "No such file"), (str(tmp_path), "Is a directory")]:
        gone = dlq("replay", stage.dlq, "--edit", path)
        assert isinstance(gone.exception, RedriveRefused)
        assert why in str(gone.exception)
    Path("odd.jsonl").write_text("[1]\n")
    odd = dlq("replay", stage.dlq, "--edit", "odd.jsonl")
    assert "line 1 is no JSON object" in str(odd.exception)
    Path("odd.jsonl").write_text("{\n")
    assert "line 1 is no JSON: " in str(dlq("replay", stage.dlq, "--edit", "odd.jsonl").exception)
