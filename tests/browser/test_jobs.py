"""Jobs with a mouse: one that was killed goes on, and is readable by anybody meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ackfloor.core.records.redaction import Redaction
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.index import follower
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from tests.browser.test_acting import readable
from tests.browser.window import NARROW, WIDE, Window
from tests.framework.kafka.wire import options, until
from tests.monitoring.console.served_console import console_of
from tests.monitoring.console.test_resumes import killed
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_a_job_that_was_killed_goes_on(
    bootstrap_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    look: Callable[..., Window],
    width: int,
    scheme: str,
) -> None:
    """What it was, is read before it is confirmed; nothing on the way that axe knows of."""
    monkeypatch.setenv("ACKFLOOR_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.setattr(follower, "EVERY_S", 0.2)
    stage = Stage(bootstrap_servers)
    stage.bury([(b"k1", b"v", [])] * 50)
    killed(stage, "nightly")
    index = DeadLetterIndex(options(stage.servers), tmp_path / "i.sqlite", Redaction(), 100_000)
    with (
        index.following(),
        console_of(servers=stage.servers, index=index, role=Role.operator) as served,
    ):
        window = look(f"http://{served.host}", width=width, color_scheme=scheme)
        page = window.page
        window.open("/c/kafka/jobs")
        job = page.get_by_role("region", name=f"Job nightly of {stage.dlq}")
        until(lambda: page.reload() and job.count())
        readable(window, "jobs")
        job.get_by_role("button", name="Go on with it").click()
        expect(page.get_by_text("replayed 0 of 50 dead letters")).to_be_visible()
        readable(window, "what would be done")
        page.get_by_label("Why").fill("the machine is back")
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_text("50 of 50 sent, 50 of them now.")).to_be_visible()
        expect(page.get_by_role("heading", name="What was done")).to_be_visible()
        readable(window, "what was done")
        window.clean()
    assert stage.sent_once() == 50
