"""What an operator does with a mouse: seen, ticked, judged, confirmed, and readable by anybody."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.dead_letters import console_with_index
from tests.browser.window import NARROW, Look, Window
from tests.framework.cli.lanes.test_lanes import Stage as RunStage
from tests.framework.kafka.wire import until
from tests.monitoring.console.acting_stage import console, notes, stages
from tests.monitoring.console.kept_notes import Notes
from tests.monitoring.console.shown_cluster import Kafka
from tests.redrive_stage import Stage

__all__ = ["notes", "stages"]


def test_a_lane_is_chosen_moved_and_gone(
    stages: tuple[RunStage, RunStage],
    notes: Notes,
    kafka: Kafka,
    look: Look,
) -> None:
    """What was ticked stays ticked while the page is renewed; then it is gone from it."""
    del kafka  # for the overview: nobody waits there for a broker
    with console(stages) as served:
        window = look(served.home)
        window.open("/")
        page = window.page
        window.type_for("gl", "Lanes")
        chosen = page.get_by_role("checkbox", name="Choose orders/0/0").first
        chosen.check()
        seen = page.get_by_text("As of").inner_text()
        expect(page.get_by_text("As of")).not_to_have_text(seen)
        expect(chosen).to_be_checked()
        assert page.locator("input[name=place]:checked").count() == 1
        page.get_by_role("button", name="Discard").click()
        expect(page.get_by_text("would be discarded: the head of 1 lane")).to_be_visible()
        # A browser asks for what has to be there.
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_label("Why")).to_be_focused()
        assert notes.written == []
        page.get_by_label("Why").fill("a test order")
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_text("discarded: the head of 1 lane", exact=True)).to_be_visible()
        page.get_by_role("link", name="Actions").click()
        expect(page.get_by_role("row").nth(1)).to_contain_text("a test order")
        window.clean()
    assert notes.written[-1].counts == {"done": 1}


def test_pages_that_act_can_be_read(
    stages: tuple[RunStage, RunStage],
    look: Look,
) -> None:
    """On a desk and on a phone, dark and light: nothing that axe knows of."""
    with console(stages) as served:
        window = look(served.home, width=NARROW)
        page = window.page
        for name in ("handlers", "actions", "lanes"):
            window.open(f"/c/kafka/{name}")
            window.readable(name)
        page.get_by_role("checkbox", name="all").check()
        page.get_by_role("button", name="Try in").click()
        expect(page.get_by_role("button", name="Do it")).to_be_visible()
        window.readable("what would be done")
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_text("What was done")).to_be_visible()
        window.readable("what was done")
        window.open("/c/kafka/actions")
        expect(page.get_by_text("lanes delay").first).to_be_visible()
        window.readable("actions")
        window.clean()


@pytest.mark.kafka
def test_a_cause_is_redriven_in_four_clicks(
    broker: str,
    tmp_path: Path,
    look: Look,
) -> None:
    """From a group's dead letters to one cause that is sent: its count and where it goes first."""
    stage = Stage(broker)
    stage.bury([(b"k", b"v%d" % n, []) for n in range(120)])
    stage.died = stage.died._replace(error_type="shop.Other")
    stage.bury([(b"k", b"other", [])])
    with console_with_index(stage.servers, tmp_path) as served:
        window = look(served.home, width=NARROW)
        page = window.page
        window.open(f"/c/kafka/dead-letters?group={stage.group}")
        until(lambda: _has_all(window, stage.dlq))
        window.readable("by cause")
        row = page.get_by_role("row").filter(has_text=stage.dlq).filter(has_text="shop.Boom")
        row.get_by_role("link", name="120", exact=True).click()
        expect(page.get_by_role("heading", name="120 match")).to_be_visible()
        window.readable("one by one")
        page.get_by_role("checkbox", name="all 120").check()
        page.get_by_role("button", name="Redrive to").click()
        expect(page.get_by_text(f"120 would be sent to {stage.tier}")).to_be_visible()
        window.readable("what would be done")
        page.get_by_label("Why").fill("the bank is back")
        page.get_by_role("button", name="Redrive them").click()
        expect(page.get_by_text("120 of 120 sent.")).to_be_visible()
        # Until then the page loads itself again, under whoever looks at it.
        expect(page.get_by_role("heading", name="What was done")).to_be_visible()
        window.readable("what was done")
        window.type_for("gj", "Jobs")
        expect(page.get_by_text("120 of 120 replayed").first).to_be_visible()
        window.readable("jobs")
        window.clean()
    assert stage.sent_once() == 120


def _has_all(window: Window, dlq: str) -> bool:
    """Whether the page has both causes of a topic."""
    window.page.reload()
    found: Page = window.page
    rows = found.get_by_role("row").filter(has_text=dlq)
    # The name of a topic may have these digits as well.
    counted = rows.get_by_role("link", name="120", exact=True)
    return rows.count() == 2 and counted.count() == 1
