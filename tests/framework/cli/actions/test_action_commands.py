"""`ackfloor actions ls`: who did what, when and why, and how it ended; on a real broker."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ackfloor.cli.main import cli
from ackfloor.errors import SettingError
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.redrive import operator
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Three dead letters."""
    stage.bury([(b"k%d" % n, b'{"card": "4711"}', [("token", b"s3cret")]) for n in range(3)])
    return stage


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, list(arguments), env={"COLUMNS": "250"})


def actions(stage: Stage, *more: str) -> list[dict[str, Any]]:
    """What `actions ls` prints as JSON of this group."""
    listed = run("actions", "ls", "--group", stage.group, "-o", "json", *more)
    assert listed.exit_code == 0, listed.output
    found: list[dict[str, Any]] = json.loads(listed.stdout)
    return found


def test_what_was_done_is_listed(stage: Stage) -> None:
    """Newest first, each action once; a dry run and what was not confirmed are none."""
    assert run("dlq", "discard", stage.dlq, "--dry-run").exit_code == 0
    assert run("dlq", "discard", stage.dlq).exit_code == 2
    assert actions(stage) == []
    asked = ("--key", "k1", "--header", "token=s3cret", "--because", "ticket 17", "--yes")
    discarded = run("dlq", "discard", stage.dlq, *asked)
    assert (discarded.exit_code, discarded.stderr) == (0, "")
    assert run("dlq", "replay", stage.dlq, "--rate", "100/s", "--yes").exit_code == 0
    replay, discard = actions(stage)
    assert (discard["by"], discard["program"], discard["action"], discard["reason"]) == (
        operator(), "command line", "dlq discard", "ticket 17",
    )  # fmt: skip
    assert (discard["targets"], discard["state"], discard["counts"]) == (
        [stage.dlq], "done", {"done": 1},
    )  # fmt: skip
    assert discard["arguments"]["filter"] == {"key": "k1", "headers": ["token=***"]}
    assert (replay["state"], replay["counts"]) == ("done", {"done": 2, "disposed": 1})
    assert replay["arguments"]["rate"] == "100/s"
    # The job, as `dlq jobs` names it, and another id for each time that somebody acts on it.
    [first, *_] = json.loads(run("dlq", "jobs", stage.dlq, "-o", "json").stdout)
    assert replay["job"] == replay["arguments"]["job"] == first["job"] != replay["id"]


def test_a_job_and_its_action_name_each_other(stage: Stage) -> None:
    """`actions ls` the job, `dlq jobs` the reason: that of who began it, not why it was ended."""
    asked = ("--key", "k1", "--because", "ticket 17", "--yes")
    assert run("dlq", "discard", stage.dlq, *asked).exit_code == 0
    assert run("dlq", "discard", stage.dlq, "--key", "k0", "--yes").exit_code == 0
    jobs = json.loads(run("dlq", "jobs", stage.dlq, "-o", "json").stdout)
    assert sorted((job["because"], job["why"]) for job in jobs) == [("", ""), ("ticket 17", "")]
    [job] = [job["job"] for job in jobs if job["because"]]
    ended = run("dlq", "cancel", stage.dlq, job, "--because", "wrong topic", "--yes")
    assert ended.exit_code == 0
    again = json.loads(run("dlq", "jobs", stage.dlq, "-o", "json").stdout)
    assert [each["because"] for each in again if each["job"] == job] == ["ticket 17"]
    table = run("dlq", "jobs", stage.dlq).stdout
    assert ("because" in table, "ticket 17" in table) == (True, True)
    assert {note["job"] for note in actions(stage)} == {each["job"] for each in jobs}
    assert job in run("actions", "ls", "--group", stage.group).stdout


def test_they_are_selected_and_printed(stage: Stage) -> None:
    """By action, by user and time, as table and CSV."""
    assert run("dlq", "discard", stage.dlq, "--key", "k0", "--yes").exit_code == 0
    assert run("dlq", "replay", stage.dlq, "--key", "k1", "--yes").exit_code == 0
    assert [each["action"] for each in actions(stage, "--action", "dlq discard")] == ["dlq discard"]
    assert [each["action"] for each in actions(stage, "--limit", "1")] == ["dlq replay"]
    user = operator().partition("@")[0]
    assert len(actions(stage, "--by", user, "--since", "1h")) == 2
    assert actions(stage, "--by", "somebody-else") == []
    table = run("actions", "ls", "--group", stage.group).stdout
    assert f"dlq replay   {stage.group}" in table
    [row, _] = csv.DictReader(
        io.StringIO(run("actions", "ls", "--group", stage.group, "-o", "csv").stdout)
    )
    assert (row["counts"], row["targets"]) == ("done 1", stage.dlq)
    assert json.loads(row["arguments"])["to"] == "retry"


def test_what_redaction_takes_away_is_in_no_note(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of keys, and of what operators write."""
    monkeypatch.setenv("ACKFLOOR_REDACTION__KEY", "hash")
    monkeypatch.setenv("ACKFLOOR_REDACTION__PATTERNS", "4711")
    asked = ("--key", "k1", "--because", "card 4711", "--yes")
    assert run("dlq", "discard", stage.dlq, *asked).exit_code == 0
    [note] = actions(stage)
    assert (note["reason"], "k1" in json.dumps(note["arguments"])) == ("card ***", False)


def test_a_job_that_was_ended_has_a_note_of_who_ended_it(stage: Stage) -> None:
    """One that has done its work is left as it is, and that is noted as well."""
    assert run("dlq", "discard", stage.dlq, "--yes").exit_code == 0
    [job] = json.loads(run("dlq", "jobs", stage.dlq, "-o", "json").stdout)
    ended = run("dlq", "cancel", stage.dlq, job["job"], "--because", "wrong topic", "--yes")
    assert ended.exit_code == 0, ended.output
    [cancel] = actions(stage, "--action", "dlq cancel")
    assert (cancel["arguments"], cancel["reason"]) == ({"job": job["job"]}, "wrong topic")
    refused = run("dlq", "cancel", stage.dlq, "nobody", "--yes")
    assert refused.exit_code == 1
    [failed, _] = actions(stage, "--action", "dlq cancel")
    assert (failed["state"], "no such job" in failed["error"]) == ("failed", True)


def test_a_reason_that_is_too_long_is_refused(stage: Stage) -> None:
    """Before anything is done."""
    reason = "x" * (LONGEST_REASON + 1)
    refused = run("dlq", "discard", stage.dlq, "--because", reason, "--yes")
    assert isinstance(refused.exception, SettingError)
    assert refused.exception.field == "--because"
    assert stage.notes() == {}
