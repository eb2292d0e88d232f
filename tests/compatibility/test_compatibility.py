"""Everything that a released version wrote to Kafka says today what it said then."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ackfloor import __version__
from ackfloor.core.acks.gap_set import decode
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import PREFIX, read_envelope, write_headers
from ackfloor.dead_letters.commands.dlq_replay import Replay
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor.dead_letters.rules.redrive_jobs import read_job
from tests.compatibility.cases import FILES, written

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "headers.json").exists())


def stored(version: str, kind: str) -> list[dict[str, Any]]:
    """What a version wrote."""
    found: list[dict[str, Any]] = json.loads((HERE / version / f"{kind}.json").read_text())
    assert found
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_headers_say_what_they_said(version: str) -> None:
    """Each field that the version knew; and the record's own pass through the next park."""
    for case in stored(version, "headers"):
        raw = [(n, None if v is None else bytes.fromhex(v)) for n, v in case["headers"]]
        told = read_envelope(raw)
        assert told.unreadable == ()
        assert {name: getattr(told, name) for name in case["says"]} == case["says"]
        own = raw[: next((n for n, (name, _) in enumerate(raw) if name.startswith(PREFIX)), None)]
        assert write_headers(told, raw, spring=True, kafka=True)[: len(own)] == own


@pytest.mark.parametrize("version", VERSIONS)
def test_commits_say_what_they_said(version: str) -> None:
    """In every codec."""
    cases = stored(version, "commits")
    assert {case["text"][3] for case in cases} >= set("rRbB")
    for case in cases:
        gaps, says = decode(case["text"], "bestellungen.ä", 7), case["says"]
        assert [list(run) for run in gaps.runs] == says.pop("runs")
        assert {name: getattr(gaps, name) for name in says} == says


@pytest.mark.parametrize("version", VERSIONS)
def test_dispositions_hide_and_jobs_are_resumed(version: str) -> None:
    """What was done is not done again, and what was begun can be gone on with."""
    for case in stored(version, "notes"):
        key, value = case["key"].encode(), case["value"].encode()
        disposed = Disposed("Jq0bS6aTQ")
        disposed.note(key, value)
        if "hides" in case:
            assert disposed.hides(*case["hides"])
            assert len(disposed) == 1
            continue
        note = read_job(key, value)
        assert note is not None
        told = asdict(note)
        assert {name: told[name] for name in case["says"]} == case["says"]
        again = Replay.of("d", note)
        assert again.wanted == DeadLetterFilter.from_dict(case["says"]["asked"]["filter"])
        assert (again.to, again.limit, again.ends) == ("retry", 5, {0: 7})


@pytest.mark.parametrize("version", VERSIONS)
def test_names_of_topics_are_taken_apart_as_then(version: str) -> None:
    """A tier that an old worker filled is drained by a new one."""
    for case in stored(version, "topics"):
        parsed = parse_topic(case["name"])
        assert parsed is not None
        assert asdict(parsed) == case["says"]


def test_this_version_is_written_down() -> None:
    """As it writes today; what differs is a change of what is in Kafka, see the package's head."""
    for kind, cases in FILES.items():
        now, then = json.loads(json.dumps(cases())), stored(__version__, kind)
        # How far a deflated text is deflated is zlib's own business; what it says is read above.
        for case in (*now, *then):
            if case.get("text", "r")[3:4] in {"R", "B"}:
                del case["text"]
        assert now == then, kind
    assert written([("h", b"\xff"), ("n", None)]) == [["h", "ff"], ["n", None]]
