"""Attacks in a real browser: who may not act, pages of others, addresses and input out of bounds.

Nothing is done, nothing is noted, and what is not theirs is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ackfloor.operations import ActionState
from ackfloor_monitoring.console.access.tokens import add_token
from ackfloor_monitoring.console.pages.menu import MENU
from tests.browser.conftest import OTHER_SITE
from tests.browser.window import Look, Window
from tests.framework.cli.lanes.test_lanes import TOKEN, Stage
from tests.monitoring.console.acting_stage import OF_BILL, console, notes, stages
from tests.monitoring.console.kept_notes import Notes
from tests.monitoring.console.page_text import OVERVIEW
from tests.monitoring.console.served_console import Console
from tests.monitoring.console.shown_cluster import Kafka

__all__ = ["notes", "stages"]

Stages = tuple[Stage, Stage]

LANES, ORDERS = "/c/kafka/lanes", "/c/kafka/orders"
#: What a page of lanes sends.
FORM = {**dict(OF_BILL), "action": "discard", "all": "yes"}
#: Sends a form from the page that is open, as its script could.
SEND = """([to, fields]) => {
  const form = document.createElement("form");
  form.method = "post";
  form.action = to;
  for (const [name, value] of Object.entries(fields)) {
    const field = document.createElement("input");
    [field.name, field.value] = [name, value];
    form.append(field);
  }
  document.body.append(form);
  form.submit();
}"""
#: What a script gets of an address: the answer's status and text, or that the browser refuses.
FETCH = """([to, options]) => fetch(to, options).then(
  async (answer) => [answer.status, await answer.text()]).catch(() => [0, "the browser refuses"])"""
#: Likewise of several addresses.
FETCH_ALL = """(all) => Promise.all(all.map((to) =>
  fetch(to).then(async (answer) => [answer.status, await answer.text()])))"""
#: Where nobody looks for a page, from within the console's folder and from the root of the disk.
PATHS = [
    f"/{front}/{up * 5}{file}"
    for front in ("static", "c", "c/kafka", "c/kafka/report", "c/kafka/dead-letters")
    for up in ("..%2f", "%2e%2e%2f", "..%5c", "....//", "%252e%252e%252f")
    for file in ("etc/passwd", "access/gate.py", "token")
]


@pytest.fixture
def tokens(tmp_path: Path) -> Mapping[str, str]:
    """Those of two operators and a viewer."""
    file = tmp_path / "tokens.toml"
    roles = {"ann": "operator", "bob": "operator", "eve": "viewer"}
    return {name: add_token(file, f"{name}:{role}") for name, role in roles.items()}


@pytest.fixture
def guarded(
    stages: Stages, kafka: Kafka, tmp_path: Path, tokens: Mapping[str, str]
) -> Iterator[Console]:
    """A console that asks for them."""
    del tokens, kafka
    with console(stages, token_file=tmp_path / "tokens.toml") as served:
        yield served


@pytest.fixture
def opened(stages: Stages, kafka: Kafka) -> Iterator[Console]:
    """A console in which everybody is an operator."""
    del kafka
    with console(stages) as served:
        yield served


def logged_in(look: Look, home: str, token: str) -> Window:
    """The window of somebody, on the page of lanes."""
    window = look(home)
    window.open("/")
    window.page.get_by_label("Token").fill(token)
    window.page.keyboard.press("Enter")
    expect(window.page.get_by_role("heading", level=1)).to_have_text("Overview")
    window.open(LANES)
    return window


def discarding(page: Page, place: str) -> None:
    """Ask for it on the page of lanes: what it would do is seen."""
    page.get_by_role("checkbox", name=f"Choose {place}", exact=True).first.check()
    page.get_by_role("button", name="Discard").click()
    expect(page.get_by_role("button", name="Do it")).to_be_visible()


def blocked(stages: Stages) -> int:
    """Lanes that wait for a record that failed."""
    return sum(world.blocked.count for stage in stages for world in stage.run.workers)


def test_a_viewer_does_nothing(
    guarded: Console, stages: Stages, notes: Notes, tokens: Mapping[str, str], look: Look
) -> None:
    """No page has an action; a form that they make up is refused, and so is another's order."""
    before = blocked(stages)
    ann = logged_in(look, guarded.home, tokens["ann"]).page
    discarding(ann, "orders/0/0")
    order = ann.url.removeprefix(guarded.home)
    eve = logged_in(look, guarded.home, tokens["eve"])
    page = eve.page
    for each in ("overview", "handlers", "in-flight", "lanes", "actions"):
        assert each in {item.path for item in MENU}
        eve.open(f"/c/kafka/{each}")
        acts = page.locator("form[method=post]:not([action$='/logout'])")
        assert acts.get_by_role("button").or_(page.get_by_role("checkbox")).count() == 0, each
    secret = page.locator("input[name=csrf]").first.input_value()
    for to, fields in ((ORDERS, FORM), (order, {"reason": "mine now"})):
        eve.open(OVERVIEW)
        with page.expect_navigation():
            page.evaluate(SEND, [to, {**fields, "csrf": secret}])
        expect(page.get_by_role("alert")).to_contain_text("a viewer may look, not act")
    eve.open(order)
    expect(page.get_by_role("alert")).to_contain_text("a viewer may look, not act")
    assert (notes.written, blocked(stages)) == ([], before)


def test_two_operators_act_on_one_lane_at_once(
    guarded: Console, stages: Stages, notes: Notes, tokens: Mapping[str, str], look: Look
) -> None:
    """Both have seen it and confirm: it is discarded once, and who came second is told so."""
    before = blocked(stages)
    ann, bob = (logged_in(look, guarded.home, tokens[each]).page for each in ("ann", "bob"))
    for page in (ann, bob):
        discarding(page, "orders/0/0")
        expect(page.get_by_text("would be discarded: the head of")).to_be_visible()
        page.get_by_label("Why").fill("a test order")
    for page in (ann, bob):
        page.get_by_role("button", name="Do it").click()
    expect(ann.get_by_text("discarded: the head of", exact=False)).to_be_visible()
    expect(bob.get_by_role("heading", name="What was done")).to_be_visible()
    expect(bob.get_by_text("discarded: the head of", exact=False)).to_have_count(0)
    first, second = (each for each in notes.written if each.state is not ActionState.BEGUN)
    assert (first.by, second.by) == ("ann", "bob")
    assert before - blocked(stages) == first.counts["done"]
    assert not second.counts.get("done")


def test_a_name_that_was_bound_anew_reads_and_does_nothing(
    opened: Console, stages: Stages, notes: Notes, look: Look
) -> None:
    """To the browser the console is by now the site that the page in its window came from."""
    before = blocked(stages)
    foreign = f"http://{OTHER_SITE}:{opened.port}"
    window = look(foreign)
    page = window.page
    # Whether the console is up, anybody may ask; Chromium takes the page for one of this machine.
    window.open("/livez")
    form = {
        "method": "POST", "body": "&".join(f"{name}={text}" for name, text in FORM.items()),
        "headers": {"Content-Type": "application/x-www-form-urlencoded"},
    }  # fmt: skip
    for path, options in (
        (LANES, {}), (f"{LANES}/events", {}), ("/login", {}), ("/static/console.js", {}),
        (ORDERS, form),
    ):  # fmt: skip
        status, text = page.evaluate(FETCH, [path, options])
        assert (status, "is no name of this console" in text) == (421, True), path
        assert "orders/0/0" not in text
    window.open(LANES)
    expect(page.get_by_role("alert")).to_contain_text("is no name of this console")
    page.goto(f"{opened.home}{LANES}")
    [status, text] = page.evaluate(FETCH, [LANES, {}])
    assert (status, "orders/0/0" in text) == (200, True)
    assert (notes.written, blocked(stages)) == ([], before)


def test_another_site_gets_neither_the_cookie_nor_a_page(
    guarded: Console, tokens: Mapping[str, str], look: Look
) -> None:
    """Nor does a script that got into our own page, nor who has put a cookie there before."""
    window = look(guarded.home)
    planted = {"name": "ackfloor", "value": "planted", "url": guarded.home}
    window.context.add_cookies([planted])  # type: ignore[list-item] -- names of its TypedDict
    window.open("/")
    page = window.page
    page.get_by_label("Token").fill(tokens["ann"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    [cookie] = window.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert cookie["value"] not in {"planted", tokens["ann"]}
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("cookieStore.getAll()") == []

    site = f"http://{OTHER_SITE}"
    bait = f'<!doctype html><a href="{guarded.home}{LANES}">Look</a>'
    page.route(f"{site}/", lambda route: route.fulfill(body=bait, content_type="text/html"))
    page.goto(f"{site}/")
    for mode in ("cors", "no-cors"):
        asked = {"mode": mode, "credentials": "include"}
        assert page.evaluate(FETCH, [f"{guarded.home}{LANES}", asked])[1] == "the browser refuses"
    with page.expect_navigation() as navigated:
        page.get_by_role("link", name="Look").click()
    came = navigated.value
    assert came is not None
    assert "cookie" not in came.request.all_headers()
    expect(page.get_by_label("Token")).to_be_visible()
    # Their session goes on: it was the other site's link alone that came without it.
    page.get_by_role("link", name="I am logged in already").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Lanes")
    expect(page.get_by_role("banner")).to_contain_text("ann operator")


def test_no_path_leads_out_of_the_console(opened: Console, look: Look) -> None:
    """Neither to its own files, nor to its tokens, nor to those of the machine."""
    window = look(opened.home)
    window.open(OVERVIEW)
    answers = window.page.evaluate(FETCH_ALL, PATHS)
    for path, (status, text) in zip(PATHS, answers, strict=True):
        assert status in {400, 404}, path
        assert not any(each in text for each in (TOKEN, "root:", "class Gate")), path


def test_input_without_bounds_is_refused_and_named(
    opened: Console, stages: Stages, notes: Notes, look: Look
) -> None:
    """A reason, a form, a search and an address; what is within them is done as ever."""
    before = blocked(stages)
    window = look(opened.home)
    page = window.page
    window.open(LANES)
    discarding(page, "orders/0/0")
    for text, said in (
        ("x" * 201, "write at most 200 characters"),
        ("x" * 70_000, "a form has at most 65,536 bytes"),
    ):
        order = page.url
        page.get_by_label("Why").evaluate("(field) => field.removeAttribute('maxlength')")
        page.get_by_label("Why").fill(text)
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_role("alert")).to_contain_text(said)
        assert (notes.written, blocked(stages)) == ([], before)
        page.goto(order)
    window.open(f"/c/kafka/retry?handler={'x' * 1_001}")
    expect(page.get_by_role("alert")).to_contain_text("handler has 1,001 characters")
    status, _ = page.evaluate(FETCH, [f"{LANES}?{'x' * 200_000}", {}])
    # The server hangs up where it comes in parts, or the console refuses what came whole.
    assert status in {0, 400, 414, 431}
    page.goto(order)
    page.get_by_label("Why").fill("a test order")
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("heading", name="What was done")).to_be_visible()
    assert blocked(stages) < before
