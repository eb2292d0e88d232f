"""The pages of dead letters, over HTTP: found, paged, opened, and nothing of them is obeyed."""

from __future__ import annotations

import hashlib
import html
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import RedriveRefused
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.index import known_causes
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex
from ackfloor_monitoring.console.index.follower import Follower
from ackfloor_monitoring.console.index.index_file import IndexFile
from ackfloor_monitoring.console.index.index_search import Progress
from ackfloor_monitoring.console.pages import dead_letter_page
from ackfloor_monitoring.console.pages.dead_letters_page import building
from ackfloor_monitoring.console.reads import searches
from tests.monitoring.console.dead_letter_source import (
    DLQ,
    FIRST_MS,
    DeadLetterSource,
    StoppedReading,
)
from tests.monitoring.console.page_text import SCRIPT, Tags, words
from tests.monitoring.console.served_console import NOWHERE, Console, console_of

PAGE = "/c/kafka/dead-letters"
Serve = Callable[..., AbstractContextManager[Console]]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DeadLetterSource:
    """An empty topic, from which single dead letters are read as well; no settings file."""
    monkeypatch.chdir(tmp_path)
    made = DeadLetterSource()

    def one(_options: object, topic: str, partition: int, offset: int) -> DeadLetter:
        log = made.logs.get(partition, [])
        found = log[offset] if topic == made.name and offset < len(log) else None
        if found is None:
            raise RedriveRefused(f"{topic}/{partition}/{offset} is not there")
        return found

    monkeypatch.setattr(dead_letter_page, "one_dead_letter", one)
    return made


@pytest.fixture
def serve(source: DeadLetterSource, tmp_path: Path) -> Serve:
    """Serves a console whose index has read the source once."""

    @contextmanager
    def served(
        rules: Redaction | None = None, *, read: bool = True, **more: Any
    ) -> Iterator[Console]:
        rules, path = rules or Redaction(), tmp_path / "kafka.sqlite"
        index = DeadLetterIndex(KafkaOptions(), path, rules, 10_000)
        if read:
            file = IndexFile(path, rules)
            Follower(lambda: source, file, rules, 10_000, wait=lambda _s: True).follow(source)
        with console_of(NOWHERE, index=index, **more) as console:
            yield console

    return served


def commands(text: str) -> list[list[str]]:
    """The commands of a page, taken apart as a shell does."""
    return [shlex.split(html.unescape(each)) for each in re.findall("<code>(.*?)</code>", text)]


def places(text: str) -> list[str]:
    """The dead letters of a list, in order."""
    return re.findall(rf'href="{PAGE}/([^"?]+)"', text)


def test_dead_letters_are_shown_by_cause(source: DeadLetterSource, serve: Serve) -> None:
    """The largest first, with a trend; each leads to its dead letters and to the latest."""
    source.bury(3)
    source.bury(2, partition=1, handler="ship", error_type="shop.Late", error_fingerprint="f2",
                error_message="too late")  # fmt: skip
    with serve() as console:
        page = console.ask(PAGE)
        link = re.findall(r'<td><a href="([^"]+)">3</a>', page.text)[0]
        listed = console.ask(PAGE + html.unescape(link))
    assert page.status == listed.status == 200
    said = words(page.text)
    assert "5 open" in said
    assert said.index("shop.Boom: no stock") < said.index("shop.Late: too late")
    assert '<a href="/c/kafka/dead-letters" data-key="d" aria-current="page">' in page.text
    assert places(page.text) == [f"{DLQ}/0/2", f"{DLQ}/1/1"]
    assert "3 match" in words(listed.text)
    assert places(listed.text) == [f"{DLQ}/0/{n}" for n in (2, 1, 0)]


def test_causes_that_are_not_kept_are_told(
    source: DeadLetterSource, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their dead letters are listed all the same, and may be opened."""
    monkeypatch.setattr(known_causes, "MOST_CAUSES", 1)
    source.bury()
    with serve() as console:
        assert "more causes than the index keeps" not in console.ask(PAGE).text
    source.bury(2, error_type="shop.Late", error_fingerprint="f2")
    with serve() as console:
        said = words(console.ask(PAGE).text)
        assert "3 open" in said
        assert "more causes than the index keeps: of 2 dead letters it has no handler" in said
        assert "one of too many causes: no stock" in said
        listed = console.ask(f"{PAGE}?list=1&topic={DLQ}").text
    assert places(listed) == [f"{DLQ}/0/{n}" for n in (2, 1, 0)]


def test_causes_of_one_group_are_shown(source: DeadLetterSource, serve: Serve) -> None:
    """As the overview leads to them; one by one they are of that group as well."""
    source.bury(3)
    with serve() as console:
        page = console.ask(f"{PAGE}?group=billing").text
        other = words(console.ask(f"{PAGE}?group=shipping").text)
    assert "shop.Boom: no stock" in words(page)
    assert 'href="?list=1&amp;group=billing"' in page
    assert "No dead letter is open in group shipping." in other


@pytest.mark.parametrize(
    "query",
    [
        "handler=ship", "error=shop.Late", "error=Late", "error=f2", "text=too+LATE", "key=order-9",
        "header=tenant", "header=tenant=acme",
        "reason=timeout", "release=r2", "since=2026-09-21T14:00", f"topic={DLQ}&handler=ship",
        "group=billing&key=order-9&until=2026-11-28",
    ],
)  # fmt: skip
def test_a_search_is_an_address(source: DeadLetterSource, serve: Serve, query: str) -> None:
    """It can be sent to a colleague; the form has what was asked, and so has the command."""
    source.bury(3, failed_at_ms=FIRST_MS - 10**9)
    source.bury(2, partition=1, handler="ship", error_type="shop.Late", error_fingerprint="f2",
                error_message="Too late", key=b"order-9", reason="timeout", release="r2",
                own=[("tenant", b"acme")],
                failed_at_ms=1_790_003_000_000)  # fmt: skip
    with serve() as console:
        page = console.ask(f"{PAGE}?{query}").text
    assert "2 match" in words(page)
    assert places(page) == [f"{DLQ}/1/1", f"{DLQ}/1/0"]
    name, _, value = query.replace("+", " ").split("&")[-1].partition("=")
    assert re.search(rf'name="{name}" value="{re.escape(value)}"|selected>{value}<', page)
    if name == "text":
        assert commands(page) == []
        assert "does not select by the text" in words(page)
    else:
        [command] = commands(page)
        assert command[:4] == ["ackfloor", "dlq", "replay", DLQ] or "--group=billing" in command
        assert "--dry-run" in command
        assert f"--{name}={value}" in command or name == "topic"


def test_a_list_goes_on_where_the_page_before_ended(source: DeadLetterSource, serve: Serve) -> None:
    """Each dead letter once, the filter kept, the last page without a further one."""
    source.bury(70, failed_at_ms=FIRST_MS)
    source.bury(55, partition=1, failed_at_ms=FIRST_MS, handler="ship")
    seen, sizes = list[str](), list[int]()
    with serve() as console:
        link = "?error=f1"
        while link:
            page = console.ask(PAGE + link).text
            assert "125 match" in words(page)
            seen += places(page)
            sizes.append(len(places(page)))
            found = re.findall(r'rel="next" href="([^"]+)"', page)
            link = html.unescape(found[0]) if found else ""
            assert not link or "error=f1" in link
    assert sizes == [50, 50, 25]
    assert len(set(seen)) == 125


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("reason=bored", 400, "reason='bored' is none: there are timeout"),
        ("since=soon", 400, "since: 'soon' is neither a time nor a duration"),
        ("since=1h&until=2h", 400, "nothing lies between"),
        ("header==x", 400, "names no header: write NAME or NAME=VALUE"),
        ("behind=x", 400, "behind='x' is no place"),
        ("behind=1.2.3", 400, "is no place"),
        ("text=" + "x" * 1001, 400, "at most 1,000"),
    ],
)
def test_a_value_that_is_wrong_is_named(
    source: DeadLetterSource, serve: Serve, query: str, status: int, says: str
) -> None:
    """With the fix."""
    source.bury()
    with serve() as console:
        page = console.ask(f"{PAGE}?{query}")
    assert page.status == status
    assert says in html.unescape(words(page.text))


def test_nothing_is_said_as_well(source: DeadLetterSource, serve: Serve) -> None:
    """Where none is open, where none matches, and where the index is not there yet."""
    with serve() as console:
        assert "No dead letter is open." in words(console.ask(PAGE).text)
    source.bury()
    with serve() as console:
        assert "None." in words(console.ask(f"{PAGE}?handler=nobody").text)
        assert "0 match" in words(console.ask(f"{PAGE}?handler=nobody").text)
    (Path() / "kafka.sqlite").unlink()
    with serve(read=False) as console:
        page = console.ask(PAGE)
        assert page.status == 200
        assert "The index is being built" in words(page.text)
        assert "Nothing is known yet" in words(page.text)
    (Path() / "kafka.sqlite").write_bytes(b"no database" * 500)
    with serve(read=False) as console:
        assert "file is not a database" in words(console.ask(PAGE).text)
    with console_of(NOWHERE) as console:
        assert console.ask(PAGE).status == 404


def test_a_page_says_how_far_the_index_is(source: DeadLetterSource, serve: Serve) -> None:
    """And shows what is there; the newest failure of Kafka is named."""
    source.bury(1_500)
    source.batch, source.stop_after = 500, 1_000
    with pytest.raises(StoppedReading), serve():
        pass
    with serve(read=False) as console:
        said = words(console.ask(PAGE).text)
    assert "The index is being built: 1,000 of 1,500 read" in said
    assert "shop.Boom" in said


def test_how_long_the_index_takes_is_said(source: DeadLetterSource, serve: Serve) -> None:
    """While it is built, as far as that can be told; then for ever, also after a restart."""
    part, now_s = Progress(read=1_000, total=1_500), time.monotonic()
    assert building(None, part) == {}
    assert list(building(now_s - 10, Progress(total=1_500))) == ["building_s"]
    told = building(now_s - 10, part)
    assert [round(told[name]) for name in ("building_s", "left_s")] == [10, 5]
    source.bury(5)
    for _ in range(2):
        with serve() as console:
            assert "5 open. The index was built in 1s." in words(console.ask(PAGE).text)


def test_few_searches_run_at_once(
    source: DeadLetterSource, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for Kafka is told after a while; too many are refused at once."""
    source.bury()
    answers = threading.Event()
    monkeypatch.setattr(dead_letter_page, "one_dead_letter", lambda *_: answers.wait(60))
    monkeypatch.setattr(searches, "PATIENCE_S", 0.2)
    monkeypatch.setattr(searches, "MOST_WAITING", 1)
    try:
        with serve() as console:
            late = console.ask(f"{PAGE}/{DLQ}/0/0")
            assert (late.status, "no answer came within 0.2 s" in late.text) == (504, True)
            assert console.ask(PAGE).status == 200
            monkeypatch.setattr(searches, "MOST_WAITING", 0)
            refused = console.ask(PAGE)
            assert (refused.status, "too many searches" in refused.text) == (503, True)
    finally:
        answers.set()


def test_one_is_opened(source: DeadLetterSource, serve: Serve) -> None:
    """Why it died, its way, its own headers, key and payload, and the commands for it."""
    source.bury(key=b"order-9", value=b'{"total": 12}', own=[("tenant", b"acme")], replays=1)
    source.dispose(0, 0)
    with serve() as console:
        page = console.ask(f"{PAGE}/{DLQ}/0/0")
    assert page.status == 200
    said = html.unescape(words(page.text))
    for text in (
        "shop.Boom: no stock", "Traceback boom", "written as orders/1/0", "order-9", "acme",
        'Payload, 13 bytes {"total": 12}', "Header tenant", "failed for the first time, on handler",
        "failed for the last time: exhausted, shop.Boom", f"written as {DLQ}/0/0",
        "delivered 7 times in all", "it was redriven once", "it is not open",
    ):  # fmt: skip
        assert text in said
    way = said.partition("Its way")[2]
    assert way.index("orders/1/0") < way.index("first time") < way.index("last time")
    assert ["ackfloor", "dlq", "show", f"{DLQ}/0/0"] in [each[:4] for each in commands(page.text)]


@pytest.mark.parametrize(
    "place",
    [f"{DLQ}/0/5", f"{DLQ}/9/0", "orders/0/0", f"{DLQ}/x/0", f"{DLQ}/0/-1", f"{DLQ}/0/{10**30}",
     f"{DLQ}/%C2%B2/0"],
)  # fmt: skip
def test_one_that_is_not_there_is_not_found(
    source: DeadLetterSource, serve: Serve, place: str
) -> None:
    """Nor is what is no dead letter."""
    source.bury()
    with serve() as console:
        assert console.ask(f"{PAGE}/{place}").status == 404


def test_a_viewer_sees_neither_keys_nor_headers_nor_payloads(
    source: DeadLetterSource, serve: Serve
) -> None:
    """And can't find out by searching for them."""
    source.bury(key=b"hidden-key", value=b"hidden-payload", own=[("x", b"hidden-header")])
    with serve(role=Role.viewer) as console:
        pages = [console.ask(path) for path in (PAGE, f"{PAGE}?list=1", f"{PAGE}/{DLQ}/0/0")]
        refused = [console.ask(f"{PAGE}?{each}") for each in ("key=hidden-key", "header=x")]
    for page in pages:
        assert page.status == 200
        assert "hidden" not in page.text.replace('type="hidden"', "").replace("aria-hidden", "")
        assert "shop.Boom" in page.text
    for answer in refused:
        assert answer.status == 403
        assert "that takes a reader" in words(answer.text)
    with serve(role=Role.reader) as console:
        assert "hidden-key" in console.ask(f"{PAGE}?list=1").text


def test_what_redaction_hides_is_on_no_page(source: DeadLetterSource, serve: Serve) -> None:
    """As `ackfloor dlq show` hides it; a hashed key is found by the key itself."""
    source.bury(
        key=b"card-4111", value=b'{"card": "4111", "total": 3}', own=[("auth", b"secret-4111")],
        error_message="card 4111 refused", error_stack="at 4111",
    )  # fmt: skip
    rules = Redaction(key="hash", fields=("card",), headers=("auth",), patterns=("4111",))
    text = "[redaction]\nkey = 'hash'\nfields = ['card']\nheaders = ['auth']\npatterns = ['4111']\n"
    (Path() / "ackfloor.toml").write_text(text)
    with serve(rules) as console:
        pages = [console.ask(path).text for path in (PAGE, f"{PAGE}?list=1", f"{PAGE}/{DLQ}/0/0")]
        found = console.ask(f"{PAGE}?key=card-4111").text
    assert "1 matches<" in found
    for page in pages:
        assert "4111" not in page
        assert "secret" not in page
    assert "card *** refused" in pages[0]
    assert "total" in pages[2]
    with serve(Redaction(headers=("auth",), patterns=("4111",))) as console:
        for query, why in (("key=card-4111", "this key"), ("header=auth=guess", "this value")):
            refused = console.ask(f"{PAGE}?{query}")
            assert refused.status == 400
            assert f"hides {why}" in words(refused.text)
        assert "1 matches" in words(console.ask(f"{PAGE}?header=auth").text)


@pytest.mark.parametrize(
    ("role", "fields", "seen"),
    [(Role.reader, (), True), (Role.viewer, (), False), (Role.reader, ("card",), False)],
)
def test_the_hash_of_a_payload_is_seen_by_who_sees_the_payload(
    source: DeadLetterSource, serve: Serve, role: Role, fields: tuple[str, ...], *, seen: bool
) -> None:
    """A short secret can be guessed from it; who corrected it is said to everybody."""
    was = hashlib.sha256(b"4711").hexdigest()
    source.bury(edited=f"{was} {FIRST_MS} ann@ops")
    Path("ackfloor.toml").write_text(f"[redaction]\nfields = {list(fields)}\n")
    with serve(Redaction(fields=fields), role=role) as console:
        page = console.ask(f"{PAGE}/{DLQ}/0/0").text
    assert "Corrected by ann@ops" in words(page)
    assert (was in page) is seen


@pytest.mark.parametrize("path", ["", "?list=1", f"?handler={SCRIPT}", f"?text={SCRIPT}", "/one"])
def test_a_stored_script_stays_text(source: DeadLetterSource, serve: Serve, path: str) -> None:
    """In a key, a header, an error, a stack, a payload, a handler, and in what is searched for."""
    raw = SCRIPT.encode()
    source.bury(
        key=raw, value=raw, own=[(SCRIPT, raw)], handler=SCRIPT, error_type=SCRIPT,
        error_message=SCRIPT, error_stack=SCRIPT, error_fingerprint=SCRIPT, release=SCRIPT,
        origin_topic=SCRIPT, group=SCRIPT,
    )  # fmt: skip
    path = f"/{DLQ}/0/0" if path == "/one" else path.replace(" ", "%20")
    with serve() as console:
        page = console.ask(PAGE + path)
    assert page.status == 200
    tags = Tags(page.text)
    assert not tags.scripts
    assert tags.sources == ["/static/console.js"]
    assert "img" not in tags.names
    assert "&lt;script&gt;" in page.text


def test_a_page_is_bounded(source: DeadLetterSource, serve: Serve) -> None:
    """Whatever a record has: payload, key and headers are cut, and it is said."""
    source.bury(
        key=b"k" * 900_000, value=b"\x00" * 900_000,
        own=[(f"h{n}", b"v" * 90_000) for n in range(90)], error_stack="s" * 16_000,
    )  # fmt: skip
    with serve() as console:
        page = console.ask(f"{PAGE}/{DLQ}/0/0").text
        listed = console.ask(f"{PAGE}?list=1").text
        by_header = words(console.ask(f"{PAGE}?header=h0").text)
    assert len(page) < 200_000
    assert "Of 1 dead letters not all headers are in the index" in by_header
    assert len(listed) < 20_000
    said = words(page)
    assert "900,000 bytes" in said
    assert "1,780,002 more characters are not shown" in said
    assert "40 more headers are not shown" in said


def test_a_trend_shows_a_single_one_among_thousands() -> None:
    """Each hour has its place; an hour without any has no bar."""
    from ackfloor_monitoring.console.pages.dead_letters_page import drawn

    assert drawn([0] * 24) == ""
    assert drawn([0, 1, 5000, 2500]) == "M4 20v-1h3v1zM8 20v-20h3v20zM12 20v-10h3v10z"
