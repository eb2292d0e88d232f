"""Retry topics with a mouse: what is due is seen, chosen, made due, and readable by anybody."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from ackfloor_monitoring.console.access.roles import Role
from tests.browser.window import NARROW, Look
from tests.monitoring.console.served_console import console_of
from tests.monitoring.console.waiting_stage import WaitingStage, run_of

pytestmark = pytest.mark.kafka


def test_what_waits_is_made_due(
    broker: str,
    tmp_path: Path,
    look: Look,
) -> None:
    """From all retry topics to one cause that is due now; nothing on the way that axe knows of."""
    stage = WaitingStage(broker)
    with (
        run_of(stage, tmp_path) as run,
        console_of(
            run.listen,
            servers=stage.servers,
            role=Role.operator,
            token_files={run.listen: tmp_path / "token"},
        ) as served,
    ):
        window = look(served.home, width=NARROW)
        page = window.page
        window.open("/")
        window.type_for("gr", "Retry topics")
        window.readable("all retry topics")
        page.get_by_role("link", name=stage.tier).first.click()
        expect(page.get_by_role("heading", name="7 match")).to_be_visible()
        window.readable("one retry topic")
        cause = page.get_by_role("row").filter(has_text="shop.Other")
        cause.get_by_role("link", name="2", exact=True).click()
        expect(page.get_by_role("heading", name="2 match")).to_be_visible()
        page.get_by_role("checkbox", name="all 2").check()
        page.get_by_role("button", name="Make due now").click()
        expect(page.get_by_text("2 of 2 records would be due now")).to_be_visible()
        window.readable("what would be done")
        page.get_by_label("Why").fill("the bank is back")
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_text("2 of 2 records due now")).to_be_visible()
        window.readable("what was done")
        window.type_for("ga", "Actions")
        expect(page.get_by_role("row").filter(has_text=stage.tier)).to_contain_text("retry promote")
        window.clean()
    assert run.has == {0, 1, 2, 3}
