"""Coming in and going out: the login, what a session's cookie keeps to itself, and its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ackfloor_monitoring.console.access.tokens import add_token
from tests.browser.walk import Walk
from tests.browser.window import TASTES, WIDE, Look
from tests.monitoring.console.page_text import OVERVIEW
from tests.monitoring.console.served_console import Console, console_of
from tests.monitoring.console.shown_cluster import Kafka, Run

#: What a browser says of an answer that is a refusal.
REFUSED = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A file of tokens, of nobody yet."""
    return tmp_path / "tokens.toml"


@pytest.fixture
def token(tokens: Path) -> str:
    """That of ann, an operator."""
    return add_token(tokens, "ann:operator")


@pytest.fixture
def console(run: Run, kafka: Kafka, tokens: Path, token: str) -> Iterator[Console]:
    """One that asks for tokens."""
    del kafka, token
    with console_of(run.listen, token_file=tokens) as made:
        yield made


def log_in(page: Page, token: str) -> None:
    """As a person does."""
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")


def take_out(tokens: Path, name: str) -> None:
    """Write the file without somebody's entry; nobody finds half of it."""
    entries = re.split(r"(?m)^(?=\[)", tokens.read_text())
    kept = [each for each in entries if not each.startswith(f'["{name}"]')]
    assert len(kept) == len(entries) - 1
    fresh = tokens.with_suffix(".fresh")
    fresh.touch(mode=0o600)
    fresh.write_text("".join(kept))
    fresh.replace(tokens)


def test_a_wrong_token_is_refused_and_a_right_one_enters(
    console: Console, token: str, look: Look
) -> None:
    """The field has the focus, and says why it was refused; no script can read the cookie."""
    window = look(console.home)
    page = window.page
    window.open(OVERVIEW)
    expect(page.get_by_label("Token")).to_be_focused()
    log_in(page, "guess")
    expect(page.get_by_role("alert")).to_contain_text("no such token")
    expect(page.get_by_label("Token")).to_have_accessible_description(
        page.get_by_role("alert").inner_text()
    )
    expect(page.get_by_label("Token")).to_have_value("")
    log_in(page, token)
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(page.get_by_role("banner")).to_contain_text("ann operator")
    assert page.evaluate("document.cookie") == ""
    cookies = window.context.cookies()
    assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [(True, "Strict")]
    assert cookies[0]["value"] not in page.content()
    assert token not in page.content()
    assert (window.complaints, window.strange) == ([REFUSED], [])


def test_the_login_can_be_read(
    console: Console, look: Look, pictures: Path | None, tmp_path: Path
) -> None:
    """On a desk and on a phone, dark and light, after a wrong token as well."""
    window = look(console.home, height=480)
    window.open("/login")
    window.readable("the login")
    window.page.locator("summary").click()
    window.readable("who gets a token")
    for width, is_dark in () if pictures is None else TASTES:
        window.show(width, 480, is_dark=is_dark)
        is_kept = (width, is_dark) == (WIDE, False)
        kind = "" if is_kept else f"-{width}-{'dark' if is_dark else 'light'}"
        Walk(window, {}, pictures if is_kept else tmp_path).picture(f"console-login{kind}")
    log_in(window.page, "guess")
    expect(window.page.get_by_role("alert")).to_contain_text("no such token")
    window.readable("a wrong token")


def test_who_has_logged_out_sees_nothing_more(console: Console, token: str, look: Look) -> None:
    """Neither by the way back, nor in another window of theirs."""
    window = look(console.home)
    page = window.page
    window.open("/")
    log_in(page, token)
    other = window.context.new_page()
    other.goto(f"{window.home}{OVERVIEW}")
    expect(other.get_by_role("heading", level=1)).to_have_text("Overview")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    expect(other.get_by_role("status")).to_have_text("Your session is over: load the page again.")
    page.go_back()
    expect(page.get_by_label("Token")).to_be_visible()
    other.reload()
    expect(other.get_by_label("Token")).to_be_visible()


def test_a_session_ends_when_its_token_is_taken_out(
    console: Console, token: str, tokens: Path, look: Look
) -> None:
    """Who looks is told so; another's session goes on."""
    others = add_token(tokens, "bob:reader")
    windows = [look(console.home) for _ in range(2)]
    for window, theirs in zip(windows, (token, others), strict=True):
        window.open("/")
        log_in(window.page, theirs)
        expect(window.page.get_by_role("heading", level=1)).to_have_text("Overview")
    ann, bob = (window.page for window in windows)
    take_out(tokens, "ann")
    expect(ann.get_by_role("status")).to_have_text("Your session is over: load the page again.")
    ann.reload()
    expect(ann.get_by_label("Token")).to_be_visible()
    bob.reload()
    expect(bob.get_by_role("banner")).to_contain_text("bob reader")
    expect(bob.get_by_role("status")).to_be_hidden()


def test_a_console_that_was_restarted_asks_for_the_token_again(
    run: Run, kafka: Kafka, tokens: Path, token: str, look: Look
) -> None:
    """It has forgotten the sessions; a page that was open says so, and not that nobody answers."""
    del kafka
    with console_of(run.listen, token_file=tokens) as console:
        window = look(console.home)
        window.open("/")
        log_in(window.page, token)
        expect(window.page.get_by_role("heading", level=1)).to_have_text("Overview")
    live = window.page.get_by_role("status")
    expect(live).to_contain_text("The console does not answer.")
    with console_of(run.listen, token_file=tokens, port=console.port):
        expect(live).to_have_text("Your session is over: load the page again.")


@pytest.mark.parametrize(
    ("host", "said"),
    [("localhost", "Who gets a token"), ("127.0.0.1", "the request comes from another site")],
)
def test_another_site_cannot_send_a_form(
    console: Console, run: Run, token: str, look: Look, host: str, said: str
) -> None:
    """Of another host it comes without the cookie; of another port with it, and is refused."""
    window = look(console.home)
    window.open("/")
    log_in(window.page, token)
    expect(window.page.get_by_role("heading", level=1)).to_have_text("Overview")
    other = window.context.new_page()
    other.goto(f"http://{host}:{run.listen.rpartition(':')[2]}/livez")
    with other.expect_navigation():
        other.evaluate(
            """to => {
            const form = document.createElement("form");
            form.method = "post";
            form.action = to;
            document.body.append(form);
            form.submit();
            }""",
            f"{window.home}/logout",
        )
    expect(other.get_by_role("main")).to_contain_text(said)
    window.page.reload()
    expect(window.page.get_by_role("banner")).to_contain_text("ann operator")
