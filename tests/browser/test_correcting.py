"""An admin corrects a payload with a mouse: revealed, typed over, compared, sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from ackfloor_monitoring.console.access.roles import Role
from tests.browser.window import NARROW, Look
from tests.monitoring.console.page_text import SCRIPT
from tests.monitoring.console.served_console import console_of
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka

#: Its first line end is one that a page's parser leaves out.
PAYLOAD = f'\n{{\n  "note": "{SCRIPT}</textarea>",\n  "total": "seven"\n}}\n'.replace('"x"', "'x'")


def test_a_payload_is_corrected(
    broker: str,
    tmp_path: Path,
    look: Look,
) -> None:
    """What was not typed over is the same byte for byte; a stored script stays text."""
    (tmp_path / "ackfloor.toml").write_text("[redaction]\npayload = 'drop'\n")
    stage = Stage(broker)
    stage.bury([(b"k1", PAYLOAD.encode(), [])])
    with console_of(servers=stage.servers, role=Role.admin) as served:
        window = look(served.home, width=NARROW, color_scheme="dark")
        page = window.page
        window.open(f"/c/kafka/dead-letters/{stage.dlq}/0/0")
        expect(page.get_by_text("Hidden by [redaction].")).to_be_visible()
        window.readable("the dead letter")
        page.get_by_label("Why").fill("INC-17")
        page.get_by_role("button", name="Reveal it").click()
        payload = page.get_by_label("The payload as it is to be sent")
        expect(payload).to_have_value(PAYLOAD)
        window.readable("revealed")
        payload.fill(PAYLOAD.replace('"seven"', "7"))
        page.get_by_role("button", name="See what changes").click()
        expect(page.get_by_text('- "total": "seven"')).to_be_visible()
        window.readable("what changes")
        page.get_by_label("Why").fill("INC-17, the till is mended")
        page.get_by_role("button", name="Send it corrected").click()
        expect(page.get_by_text("It was sent, corrected.")).to_be_visible()
        expect(page.get_by_role("heading", name="What was done")).to_be_visible()
        window.readable("what was done")
        window.clean()
    [sent] = stage.read(stage.tier)
    assert sent.value() == PAYLOAD.replace('"seven"', "7").encode()
