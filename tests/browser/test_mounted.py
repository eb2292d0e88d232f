"""A console below a path of another web app, with a mouse: each page, one action, the report."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from ackfloor.kafka.client import admin_client
from ackfloor_monitoring.console import ConsoleCluster, console_app, mounting
from ackfloor_monitoring.console.pages.menu import MENU
from tests.browser.window import Look
from tests.framework.cli.lanes.test_lanes import Stage
from tests.monitoring.console.acting_stage import notes, stages
from tests.monitoring.console.kept_notes import Notes
from tests.monitoring.console.mounted_console import PREFIX, cluster, outer_app, served
from tests.monitoring.console.shown_cluster import Kafka
from tests.monitoring.console.test_mounted_console import URL, ann, followed

__all__ = ["followed", "notes", "stages"]

#: What it reaches of the console is what it says.
REPORT = """<!doctype html><html lang="en"><title>Failures</title><h1>Failures of billing</h1>
<p id="drawn"></p><script>
const found = [];
const looks = [() => parent.document.title, () => document.cookie, () => localStorage.length];
for (const look of looks) {
  try { found.push(look()); } catch (error) { found.push(error.name); }
}
document.getElementById("drawn").textContent = `${origin}: ${found.join(", ")}`;
</script></html>"""


def test_all_pages_and_an_action_are_below_the_path(
    stages: tuple[Stage, Stage],
    notes: Notes,
    kafka: Kafka,
    look: Look,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """News come again and again; the report's script draws, and has no origin."""
    del kafka
    monkeypatch.setattr(mounting, "EVENTS_S", 1.0)
    # There is no broker: the pages that ask one themselves say so a little sooner.
    monkeypatch.setattr(admin_client, "PATIENCE_S", 0.1)
    first, report = stages[0].listen, tmp_path / "failures.html"
    report.write_text(REPORT)
    settings = cluster().settings
    shown = ConsoleCluster(settings, [first], report=report)
    console = console_app(shown, public_url=URL, who=ann, run_token_files={first: "token"})
    with served(outer_app(console)) as web:
        window = look(web.home)
        window.open(f"{PREFIX}/")
        page = window.page
        for each in MENU:
            window.type_for(f"g{each.key}", each.title)
            assert page.url.startswith(f"{window.home}{PREFIX}/c/kafka/{each.path}")
        frame = page.frame_locator("iframe.report")
        expect(frame.get_by_role("heading")).to_have_text("Failures of billing")
        said = "null: SecurityError, SecurityError, SecurityError"
        expect(frame.locator("#drawn")).to_have_text(said)
        assert window.barriers() == []
        window.type_for("gl", "Lanes")
        # Its news have ended meanwhile, and begun again.
        for _ in range(3):
            seen = page.get_by_text("As of").inner_text()
            expect(page.get_by_text("As of")).not_to_have_text(seen)
        page.get_by_role("checkbox", name="Choose orders/0/0").first.check()
        page.get_by_role("button", name="Discard").click()
        page.get_by_label("Why").fill("a test order")
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_text("discarded: the head of 1 lane", exact=True)).to_be_visible()
        assert page.url.startswith(f"{window.home}{PREFIX}/c/kafka/orders/")
        window.clean()
    assert notes.written[-1].counts == {"done": 1}
