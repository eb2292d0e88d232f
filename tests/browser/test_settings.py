"""Settings in a browser: read by anybody, also on a phone, and changed by an admin with a mouse."""

from __future__ import annotations

from playwright.sync_api import expect

from ackfloor.live.frames import Overdue
from tests.browser.window import NARROW, Look
from tests.monitoring.console.kept_notes import Notes
from tests.monitoring.console.settings_stage import SettingsRun, console, notes, runs

__all__ = ["notes", "runs"]


def test_a_setting_is_changed(runs: tuple[SettingsRun, ...], notes: Notes, look: Look) -> None:
    """From where the runs differ, over what it would do, to what came of it, and who did it."""
    runs[0].overdue = tuple(Overdue("bill", "orders" * 20, 0, n, 1, 9.0) for n in range(3))
    with console(runs) as served:
        window = look(served.home, width=NARROW, color_scheme="dark")
        window.open("/c/kafka/settings")
        page = window.page
        expect(page.get_by_role("heading", name="Where its runs differ")).to_be_visible()
        window.readable("all settings")
        page.locator("summary").first.click()
        window.readable("where a value comes from")
        page.get_by_role("combobox").select_option("handlers.bill.concurrency")
        page.get_by_label("New value").fill("4")
        page.get_by_role("button", name="See what it does").click()
        expect(page.get_by_text("3 deliveries would time out at once")).to_be_visible()
        window.readable("what it would do")
        assert notes.written == []
        page.get_by_label("Why").fill("as the others")
        page.get_by_role("button", name="Change it").click()
        expect(page.get_by_text("3 deliveries in flight timed out by it")).to_be_visible()
        window.readable("what was done")
        page.get_by_role("link", name="All settings").click()
        expect(page.get_by_text("Its runs have the same settings")).to_be_visible()
        expect(page.get_by_role("row", name="as the others")).to_be_visible()
        window.readable("what was changed")
        window.clean()
    assert {run.concurrency() for run in runs} == {4}
