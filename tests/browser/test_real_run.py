"""A page beside a real run on a real broker: what happens to the run is seen without loading it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.real_run import APP, listening
from tests.browser.window import Look
from tests.e2e.stage import Stage, ready
from tests.monitoring.console.page_text import IN_FLIGHT, OVERVIEW
from tests.monitoring.console.served_console import console_of

pytestmark = pytest.mark.kafka


def test_a_worker_is_killed_and_started_again_while_one_looks(
    make_stage: Callable[..., Stage], look: Look
) -> None:
    """First what is wrong with it, then that it is gone, then the same again; no page is loaded."""
    stage = make_stage(APP)
    run = stage.run()
    listen = listening(run)
    with console_of(listen, servers=stage.servers) as console:
        overview, in_flight = (look(console.home) for _ in range(2))
        overview.open(OVERVIEW)
        in_flight.open(IN_FLIGHT)
        expect(in_flight.page.get_by_text("No record is in flight.")).to_be_visible()
        stage.produce(1, b"bad", key=b"a")
        stage.produce(7, key=b"a")
        stage.produce(1, b"slow", key=b"b")
        wrong = overview.page.get_by_role("region", name="What is wrong")
        expect(wrong).to_contain_text("1 blocked lane, 7 records behind")
        expect(wrong).to_contain_text("no price <b>here</b>")
        groups = overview.page.get_by_role("table").filter(has_text="Members")
        expect(groups.get_by_role("row", name=stage.group)).to_contain_text("9")
        expect(in_flight.page.get_by_text("1 record in flight.")).to_be_visible()
        expect(in_flight.page.get_by_text("Where it is:")).to_contain_text("stage_app.py")
        run.process.kill()
        run.process.wait()
        expect(wrong).to_contain_text("no run answers")
        again = stage.run(ACKFLOOR_RUN_LISTEN=listen)
        again.until(ready(again), "ready")
        expect(wrong).not_to_contain_text("no run answers")
        expect(wrong).to_contain_text("1 blocked lane, 7 records behind")
        expect(in_flight.page.get_by_text("1 record in flight.")).to_be_visible()
        stage.open_gate()
        expect(in_flight.page.get_by_text("No record is in flight.")).to_be_visible()
        for window in (overview, in_flight):
            assert window.page.evaluate("performance.getEntriesByType('navigation').length") == 1
            window.clean()
