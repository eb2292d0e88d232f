"""Jobs with a mouse: one that was killed goes on, and is readable by anybody meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.dead_letters import console_with_index
from tests.browser.window import NARROW, Look
from tests.framework.kafka.wire import until
from tests.monitoring.console.test_resumes import killed
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka


def test_a_job_that_was_killed_goes_on(
    broker: str,
    tmp_path: Path,
    look: Look,
) -> None:
    """What it was, is read before it is confirmed; nothing on the way that axe knows of."""
    stage = Stage(broker)
    stage.bury([(b"k1", b"v", [])] * 50)
    killed(stage, "nightly")
    with console_with_index(stage.servers, tmp_path) as served:
        window = look(served.home, width=NARROW)
        page = window.page
        window.open("/c/kafka/jobs")
        job = page.get_by_role("region", name=f"Job nightly of {stage.dlq}")
        until(lambda: page.reload() and job.count())
        window.readable("jobs")
        job.get_by_role("button", name="Go on with it").click()
        expect(page.get_by_text("replayed 0 of 50 dead letters")).to_be_visible()
        window.readable("what would be done")
        page.get_by_label("Why").fill("the machine is back")
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_text("50 of 50 sent, 50 of them now.")).to_be_visible()
        expect(page.get_by_role("heading", name="What was done")).to_be_visible()
        window.readable("what was done")
        window.clean()
    assert stage.sent_once() == 50
