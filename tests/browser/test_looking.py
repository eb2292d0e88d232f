"""Looking at pages: what is wrong is there, is renewed without a jump, and anybody can read it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from ackfloor.cli.status.group_look import GroupLook
from ackfloor.core.acks.progress import Progress
from ackfloor.kafka.client import admin_client
from ackfloor.observe import RunningDelivery
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.pages.console_page import Page
from ackfloor_monitoring.console.pages.menu import MENU
from tests.browser.window import NARROW, WATCH, Look
from tests.monitoring.console.page_text import IN_FLIGHT, OVERVIEW, SCRIPT
from tests.monitoring.console.served_console import NOWHERE, console_of
from tests.monitoring.console.shown_cluster import Kafka, Run
from tests.monitoring.samples import HANDLER, LONG_STACK, OPEN

#: Selects the first command of a page and reads what is selected: in one step, as nobody else acts.
SELECT = """() => {
  getSelection().selectAllChildren(document.querySelector(".next code"));
  return getSelection().toString();
}"""
#: Whether the stack that is open is no wider than its window.
FITS = """() => {
  const box = document.querySelector("details[open] pre").getBoundingClientRect();
  return box.width > 0 && box.x >= 0 && box.right <= innerWidth;
}"""
#: Pages that are renewed while one looks, of those that need no broker.
RENEWED = [
    f"/c/kafka/{each.path}" for each in MENU if isinstance(each, Page) and not each.asks_actions
]


def running(offset: int, running_s: float) -> RunningDelivery:
    """A record that a handler has."""
    return RunningDelivery(
        "orders", 0, offset, 1, running_s=running_s, left_s=-2.0, stack=LONG_STACK
    )


def in_trouble(run: Run) -> None:
    """A breaker that is open, blocked lanes, and many records in flight."""
    oldest = tuple(running(offset, 90.0 - offset) for offset in range(30))
    run.show(
        breaker=OPEN, blocked=HANDLER.blocked, quarantined=HANDLER.quarantined,
        noisy_keys=HANDLER.noisy_keys, running=30, oldest=oldest,
    )  # fmt: skip


def test_what_is_wrong_comes_and_goes_while_one_looks(run: Run, kafka: Kafka, look: Look) -> None:
    """Nothing is loaded again: what was put into the page stays in it."""
    del kafka
    with console_of(run.listen) as console:
        window = look(console.home)
        window.open("/")
        page = window.page
        expect(page).to_have_title("Overview · kafka · ackfloor")
        wrong = page.get_by_role("region", name="What is wrong")
        expect(wrong).to_contain_text("Nothing.")
        page.evaluate("document.body.dataset.seen = 'before'")
        in_trouble(run)
        expect(wrong).to_contain_text("70 records withheld")
        expect(wrong.get_by_role("code").first).to_contain_text("ackfloor breaker show")
        run.show()
        expect(wrong).to_contain_text("Nothing.")
        assert page.evaluate("document.body.dataset.seen") == "before"
        window.clean()


def test_what_one_has_opened_and_scrolled_to_stays(run: Run, kafka: Kafka, look: Look) -> None:
    """Records before it end, others come: it is still the same record's, at the same place."""
    del kafka
    in_trouble(run)
    with console_of(run.listen) as console:
        window = look(console.home, height=500)
        window.open(IN_FLIGHT)
        page = window.page
        row = page.locator("tr", has=page.get_by_role("rowheader", name="orders/0/20", exact=True))
        summary = row.locator("xpath=following-sibling::tr[1]//summary")
        summary.focus()
        page.keyboard.press("Enter")
        expect(summary.locator("xpath=..")).to_have_attribute("open", "")
        row.evaluate("row => row.scrollIntoView({block: 'center'})")
        before = row.bounding_box()
        oldest = tuple(running(offset, 190.0 - offset) for offset in (*range(3, 30), 77))
        run.show(running=28, oldest=oldest)
        expect(page.get_by_text("28 records in flight")).to_have_count(1)
        expect(page.get_by_role("rowheader", name="orders/0/1", exact=True)).to_have_count(0)
        expect(summary.locator("xpath=..")).to_have_attribute("open", "")
        expect(page.locator("details[open]")).to_have_count(1)
        expect(summary).to_be_focused()
        after = row.bounding_box()
        assert before is not None
        assert after is not None
        assert abs(before["y"] - after["y"]) < 3, "it jumped"
        window.clean()


def test_what_is_as_it_was_is_not_touched(run: Run, kafka: Kafka, look: Look) -> None:
    """A text that somebody has selected to copy it stays so, also where Kafka becomes late."""
    in_trouble(run)
    with console_of(run.listen) as console:
        window = look(console.home)
        window.open(OVERVIEW)
        page = window.page
        expect(page.get_by_role("row", name="billing 1 300")).to_be_visible()
        chosen = page.evaluate(SELECT)
        assert chosen.startswith("ackfloor breaker show")
        kafka.error = "no broker has answered within 10 s"
        expect(page.get_by_role("alert")).to_contain_text(kafka.error)
        kafka.error = ""
        expect(page.get_by_role("alert")).to_have_count(0)
        assert page.evaluate("getSelection().toString()") == chosen
        window.clean()


@pytest.mark.parametrize("path", RENEWED)
def test_news_replace_no_element_that_is_as_it_was(
    run: Run, kafka: Kafka, look: Look, path: str
) -> None:
    """Not the first ones either, which come in the moment after a page was loaded."""
    del kafka
    in_trouble(run)
    with console_of(run.listen) as console:
        window = look(console.home)
        window.page.add_init_script(WATCH)
        window.open(path)
        time = window.page.get_by_text("As of").locator("time")
        for _ in range(2):
            seen = time.get_attribute("datetime")
            expect(time).not_to_have_attribute("datetime", seen or "")
        assert window.page.evaluate("gone") == []
        window.clean()


def test_a_console_that_goes_away_says_so_until_it_is_back(
    run: Run, kafka: Kafka, look: Look
) -> None:
    """What it has shown stays, with a word that it is getting old."""
    del kafka
    in_trouble(run)
    with console_of(run.listen) as console:
        window = look(console.home)
        window.open(OVERVIEW)
        page = window.page
        expect(page.get_by_text("70 records withheld")).to_be_visible()
    live = page.get_by_role("status")
    expect(live).to_have_text("The console does not answer. What you see is getting old.")
    expect(page.get_by_text("70 records withheld")).to_be_visible()
    run.show()
    with console_of(run.listen, port=console.port):
        expect(page.get_by_text("70 records withheld")).to_have_count(0)
        expect(live).to_be_hidden()


def test_pages_by_keyboard(run: Run, kafka: Kafka, look: Look) -> None:
    """`g` and a letter; the first Tab leads past the links; not while one writes."""
    del kafka
    with console_of(run.listen) as console:
        window = look(console.home)
        window.open("/")
        page = window.page
        for keys, title in (("gi", "In flight"), ("go", "Overview")):
            window.type_for(keys, title)
        page.wait_for_load_state("load")
        page.keyboard.press("Control+g")
        page.keyboard.press("i")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{console.home}{OVERVIEW}#main")
        window.clean()


def test_times_are_those_of_the_reader(run: Run, kafka: Kafka, look: Look) -> None:
    """With the exact one in UTC behind the pointer; also after the page was renewed."""
    del kafka
    with console_of(run.listen) as console:
        window = look(console.home, timezone_id="Asia/Kolkata", locale="en-GB")
        window.open(OVERVIEW)
        time = window.page.locator("time").first
        first = time.get_attribute("title") or ""
        assert first.endswith(" UTC")
        expect(time).not_to_have_attribute("title", first)
        expect(time).to_have_text(
            window.page.evaluate(
                """() => new Date(document.querySelector("time").dateTime).toLocaleTimeString(
                "en-GB", {timeZone: "Asia/Kolkata", hourCycle: "h23"})"""
            )
            + " GMT+5:30"
        )
        window.clean()


def test_a_stack_is_read_on_a_phone_without_scrolling_sideways(
    run: Run, kafka: Kafka, look: Look
) -> None:
    """Its table is wider than the window; the stack is not."""
    del kafka
    in_trouble(run)
    with console_of(run.listen) as console:
        window = look(console.home, width=NARROW)
        window.open(IN_FLIGHT)
        opened = window.page.locator("details").first
        opened.locator("summary").click()
        expect(opened.locator("pre")).to_contain_text(LONG_STACK[0])
        window.page.wait_for_function(FITS)
        window.clean()


# By anybody.

PAGES = (*(f"/c/kafka/{each.path}" for each in MENU), "/login", "/none")


def test_pages_can_be_read(
    run: Run, kafka: Kafka, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a desk and on a phone, dark and light, with long names: nothing that axe knows of."""
    # Two pages ask the broker themselves, and there is none: they say so a little sooner.
    monkeypatch.setattr(admin_client, "PATIENCE_S", 0.1)
    in_trouble(run)
    place = Progress("billing", "o" * 200, 0, "source", start=0, end=400, floor=100, note="n" * 300)
    kafka.looks = [GroupLook("billing", 1, [place], errors=["x" * 300])]
    with console_of(run.listen, NOWHERE, role=Role.operator) as console:
        window = look(console.home)
        for path in PAGES:
            window.open(path)
            window.readable(path)


# What comes from outside.


@pytest.mark.parametrize("path", [OVERVIEW, IN_FLIGHT])
def test_a_stored_script_stays_text(run: Run, kafka: Kafka, look: Look, path: str) -> None:
    """In a handler's name, a topic, a group, an error and a stack; in what is sent later, too."""
    delivery = RunningDelivery(SCRIPT, 0, 5, 1, running_s=7.0, left_s=3.0, stack=(SCRIPT,))
    place = Progress(SCRIPT, SCRIPT, 0, "source", start=0, end=400, floor=100, note=SCRIPT)
    kafka.looks = [GroupLook(SCRIPT, 1, [place], errors=[SCRIPT])]
    with console_of(run.listen) as console:
        window = look(console.home)
        window.page.on("dialog", lambda dialog: window.complaints.append(dialog.message))
        window.open(path)
        # Two handlers: one is there when the page is loaded, or comes with its events.
        run.show(name=SCRIPT, running=1, oldest=(delivery,), paused=True, paused_reason=SCRIPT)
        expect(window.page.locator("main")).to_contain_text(SCRIPT)
        window.page.reload()
        expect(window.page.locator("main")).to_contain_text(SCRIPT)
        assert window.page.locator("main script, main img").count() == 0
        window.clean()


def test_what_got_in_all_the_same_would_not_run(run: Run, kafka: Kafka, look: Look) -> None:
    """The browser refuses inline scripts and other hosts, and that is seen here."""
    del kafka
    with console_of(run.listen) as console:
        window = look(console.home)
        window.open(OVERVIEW)
        window.page.evaluate(
            """() => {
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
            const image = document.createElement("img");
            image.src = "http://127.0.0.2:1/x.png";
            document.body.append(image);
            }"""
        )
        assert window.page.evaluate("window.ran") is None
        fetched = "fetch('http://127.0.0.2:1/').then(() => 'came', () => 'refused')"
        assert window.page.evaluate(fetched) == "refused"
        said = "\n".join(window.complaints)
        assert said.count("Content Security Policy") >= 3, said
        with pytest.raises(AssertionError):
            window.clean()
