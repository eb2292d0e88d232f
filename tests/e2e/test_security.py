"""Logins, certificates and least rights, end to end on a broker with SASL_SSL listeners and ACLs.

Each role has exactly what docs/guide/security.md lists for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.core.records.envelope import Envelope, Reason, write_headers
from tests.e2e.secure_broker import PASSWORD, Right, SecureBroker, least_rights, secure_broker
from tests.e2e.stage import page
from tests.framework.cli.command import PATIENCE_S, Running, ackfloor
from tests.written import whole_lines

# One broker for all of them.
pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.xdist_group("security")]

DLQ, RETRY = "orders--billing--dlq", "orders--billing--retry-100ms"
APP = """
import logging, os, time
from ackfloor import App, DeadLetter, Delivery, RetryPolicy

handled = os.open("handled", os.O_APPEND | os.O_CREAT | os.O_WRONLY)


def token(_config):
    # An unsigned one, as the broker of the test takes it.
    from base64 import urlsafe_b64encode as b64
    from json import dumps
    now = time.time()
    claims = {"sub": "worker", "iat": now, "exp": now + 600}
    parts = [b64(dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)]
    return ".".join(parts) + ".", now + 600


oauth = os.environ["ACKFLOOR_KAFKA__SASL_MECHANISM"] == "OAUTHBEARER"
app = App("billing", kafka={"properties": {"oauth_cb": token}} if oauth else {})


@app.handler("orders", retry=RetryPolicy.fixed("100ms", 1), breaker=None)
async def bill(delivery: Delivery) -> None:
    value = delivery.value.decode()
    if "note" in value:
        try:
            raise ValueError("leaked " + value[-11:-2])
        except ValueError:
            logging.getLogger("shop").exception("cannot bill")
            raise
    if value.startswith("hopeless"):
        raise DeadLetter("no such account")
    if value.startswith("flaky") and delivery.attempt == 1:
        raise ConnectionError("away")
    os.write(handled, f"{value}#{delivery.attempt}\\n".encode())
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """One for all tests here, with the source topic alone."""
    with secure_broker(tmp_path_factory.mktemp("secure")) as made:
        made.topic("orders")
        yield made


class Desk:
    """Where somebody works: a folder with the app, and a login."""

    def __init__(self, broker: SecureBroker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self._runs: list[Running] = []
        (folder / "secured_billing.py").write_text(APP)

    def run(self, **login: str) -> Running:
        """Start the app."""
        given = {"ACKFLOOR_RUN_LISTEN": "127.0.0.1:0", **login}
        self._runs.append(Running("secured_billing:app", cwd=self.folder, **given))
        return self._runs[-1]

    def send(self, *values: str) -> None:
        """Write orders, from inside."""
        producer = Producer({"bootstrap.servers": self.broker.inner, "log_level": 0})
        for value in values:
            producer.produce("orders", value.encode())
        assert producer.flush(60) == 0

    def handled(self) -> set[str]:
        """What the handler has written down: value and attempt."""
        return set(whole_lines(self.folder / "handled"))

    def command(self, *words: str, **login: str) -> subprocess.CompletedProcess[str]:
        """A command of ackfloor's."""
        return ackfloor(*words, cwd=self.folder, **login)

    def found(self, **login: str) -> dict[str, dict[str, str]]:
        """What the doctor finds, by check."""
        with chdir(self.folder):
            words = ["doctor", "secured_billing:app", "-o", "json"]
            done = CliRunner().invoke(cli, words, env=login)
        assert done.stdout, done
        assert PASSWORD not in done.output
        return {each["check"]: each for each in json.loads(done.stdout)}

    def close(self) -> None:
        """Leave no process behind."""
        for run in self._runs:
            run.close()


@pytest.fixture
def desk(broker: SecureBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A folder of the test's own; who was granted something has nothing afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in os.environ if name.startswith("ACKFLOOR_")]:
        monkeypatch.delenv(name)
    desk = Desk(broker, tmp_path)
    with ExitStack() as ends:
        # Each of them, whatever becomes of the others.
        for user in ("worker", "operator"):
            ends.callback(broker.take, user)
        ends.callback(desk.close)
        yield desk


def until(done: Callable[[], object], what: str) -> None:
    """Wait with the patience of a busy machine: what is granted takes a moment to count."""
    until_s = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until_s, what
        time.sleep(0.1)


def reasons(run: Running) -> str:
    """Why a run is not ready."""
    _, tree = page(run, "/readyz")
    assert PASSWORD not in json.dumps(tree)
    return "; ".join(each["message"] for each in tree["reasons"])


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_a_worker_works_with_exactly_the_rights_of_the_guide(desk: Desk, mechanism: str) -> None:
    """It creates its topics, handles, retries, dead-letters, commits; and it needs all of that."""
    desk.broker.grant("worker", least_rights("worker"))
    fine, flaky, hopeless = (f"{kind}-{mechanism}" for kind in ("fine", "flaky", "hopeless"))
    desk.send(fine, flaky, hopeless)
    run = desk.run(**desk.broker.login("worker", mechanism))
    run.until(lambda: desk.handled() >= {f"{fine}#1", f"{flaky}#2"}, "two are handled")
    run.logged("dead-lettered (dead_letter")
    run.until(lambda: page(run, "/readyz")[0] == 200, "ready")
    run.signal(signal.SIGTERM)
    assert run.wait() == 0
    assert committed(desk.broker, "orders") == end(desk.broker, "orders")
    assert PASSWORD not in "\n".join(run.lines)


def test_each_right_of_a_worker_that_is_taken_away_is_named(desk: Desk) -> None:
    """By its operation and its topic or group. Of CREATE a broker does not tell."""
    rights = least_rights("worker")
    desk.broker.grant("worker", rights)
    login = desk.broker.login("worker")
    for name in (RETRY, DLQ):
        desk.broker.topic(name, **{"retention.ms": str(30 * 86_400_000)})
    until(lambda: not complaints(desk.found(**login)), "all is well")
    for right in rights:
        if right.operation == "CREATE":
            continue
        desk.broker.take("worker", right)
        name = RETRY if right.prefixed else right.name
        wanted = f"on {right.kind} {name}"

        def named(right: Right = right, wanted: str = wanted) -> bool:
            fixes = complaints(desk.found(**login))
            return any(right.operation in fix and wanted in fix for fix in fixes)

        until(named, f"{right} is named")
        desk.broker.grant("worker", [right])


def complaints(found: dict[str, dict[str, str]]) -> list[str]:
    """What is to be granted, as far as a worker needs it."""
    told = [e["fix"] for e in found.values() if e["state"] in {"fail", "warn"}]
    return [fix for fix in told if "grant" in fix]


def test_a_missing_right_names_itself_in_readyz_until_it_is_there(desk: Desk) -> None:
    """At the start and while it runs; the run lives, and works again by itself."""
    rights = least_rights("worker")
    named = [(right.name, right.operation) for right in rights]
    group, read, write = (
        rights[named.index(each)]
        for each in (("billing", "READ"), ("orders", "READ"), (DLQ, "WRITE"))
    )
    desk.broker.grant("worker", [right for right in rights if right is not group])
    run = desk.run(**desk.broker.login("worker"))
    for right in (group, read, write):
        if right is not group:
            desk.broker.take("worker", right)
        text = f"{right.operation} on {right.kind} {right.name}"
        run.until(lambda text=text: text in reasons(run), f"{right} is missed")
        assert page(run, "/livez")[0] == 200
        desk.broker.grant("worker", [right])
        run.until(lambda: page(run, "/readyz")[0] == 200, f"{right} is there again")
    desk.send("fine-again")
    run.until(lambda: "fine-again#1" in desk.handled(), "handled")


def test_an_expired_certificate_and_a_wrong_password_name_themselves_until_they_are_mended(
    desk: Desk,
) -> None:
    """In `doctor` and in the `/readyz` of a run that can't begin; then it begins."""
    broker = desk.broker
    broker.grant("worker", least_rights("worker"))
    login = broker.login("worker")
    wrong = {**login, "ACKFLOOR_KAFKA__SASL_PASSWORD": "hush-4712-hush"}

    def told() -> str:
        # On a busy machine the refusal may take longer than the doctor waits for it.
        return desk.found(**wrong)["brokers"]["detail"]

    broker.certificate("expired")
    try:
        run = desk.run(**wrong)
        run.until(lambda: "certificate has expired" in reasons(run), "the certificate is named")
        assert page(run, "/livez")[0] == 200
        until(lambda: "certificate has expired" in told(), "the doctor names it")
    finally:
        broker.certificate("good")
    why = ""

    def refused() -> bool:
        nonlocal why
        why = reasons(run)
        return "Authentication failed" in why

    run.until(refused, "the password is named")
    assert "sasl_password" in why or "its password" in why
    until(lambda: "Authentication failed" in told(), "the doctor names it")
    assert "4712" not in reasons(run) + "\n".join(run.drain())
    broker.password("worker", "hush-4712-hush")
    try:
        run.until(lambda: page(run, "/readyz")[0] == 200, "ready")
    finally:
        broker.password("worker")


def test_who_may_not_create_topics_is_told_which(desk: Desk) -> None:
    """A start that can't be completed ends, with the right that was missing."""
    desk.broker.admin.delete_topics([DLQ])[DLQ].result(60) if exists(desk.broker, DLQ) else None
    until(lambda: not exists(desk.broker, DLQ), "the topic is gone")
    rights = [right for right in least_rights("worker") if right.operation != "CREATE"]
    desk.broker.grant("worker", rights)
    run = desk.run(**desk.broker.login("worker"))
    assert run.wait() == 3
    assert f"grant CREATE on topic {DLQ}" in "\n".join(run.lines)
    desk.broker.topic(DLQ)


def test_an_operator_looks_and_redrives_with_exactly_the_rights_of_the_guide(desk: Desk) -> None:
    """The dead letter is in the retry topic once; without the transactional id nothing is sent."""
    rights = least_rights("operator")
    broker = desk.broker
    for name in (RETRY, DLQ):
        broker.topic(name)
    bury(broker)
    login = broker.login("operator")
    (transactional,) = [right for right in rights if right.kind == "transactional id"]
    broker.grant("operator", [right for right in rights if right is not transactional])
    before = end(broker, RETRY)
    replay = ("dlq", "replay", DLQ, "--yes")
    until(lambda: "ValueError" in desk.command("dlq", "ls", DLQ, **login).stdout, "it is seen")
    refused = desk.command(*replay, **login)
    assert refused.returncode == 1, refused
    assert f"the transactional id {transactional.name}" in refused.stdout
    assert end(broker, RETRY) == before
    broker.grant("operator", [transactional])
    until(lambda: desk.command(*replay, **login).returncode == 0, "it is sent")
    listed = desk.command("actions", "ls", "--group", "billing", "-o", "json", **login)
    sent, *_ = json.loads(listed.stdout)
    assert (sent["action"], sent["state"], sent["counts"]["done"]) == ("dlq replay", "done", 1)
    for words in (("lag", "--group", "billing"), ("retry", "ls", "--group", "billing")):
        done = desk.command(*words, **login)
        assert done.returncode == 0, done.stderr
        assert "grant" not in done.stderr


def test_nothing_that_is_secret_is_seen_anywhere(desk: Desk) -> None:
    """Login, payload, key and header: in no log, traceback, page, setting, listing or export."""
    broker = desk.broker
    broker.grant("worker", [*least_rights("worker"), *least_rights("operator")])
    (desk.folder / "password").write_text(PASSWORD)
    login = broker.login("worker")
    del login["ACKFLOOR_KAFKA__SASL_PASSWORD"]
    login |= {
        "ACKFLOOR_KAFKA__SASL_PASSWORD_FILE": str(desk.folder / "password"),
        "ACKFLOOR_REDACTION__FIELDS": "card",
        "ACKFLOOR_REDACTION__HEADERS": "authorization",
        "ACKFLOOR_REDACTION__PATTERNS": "4242-\\d+",
        "ACKFLOOR_REDACTION__KEY": "hash",
    }
    producer = Producer({"bootstrap.servers": broker.inner, "log_level": 0})
    headers = [("authorization", b"Bearer topmost-9001"), ("plain", b"4242-9002")]
    value = b'{"card": "visa-9003", "note": "4242-9004"}'
    producer.produce("orders", b"leaky " + value, key=b"customer-9005", headers=headers)
    producer.produce("orders", value, key=b"customer-9005", headers=headers)
    assert producer.flush(60) == 0
    run = desk.run(**login)
    run.logged("ValueError: leaked")
    run.logged("Traceback")
    run.logged("dead-lettered (exhausted")
    run.signal(signal.SIGUSR1)
    run.logged("ack map")
    run.until(lambda: page(run, "/readyz")[0] == 200, "ready")
    address = run.logged("metrics and health on ").rpartition(" ")[2]
    seen = []
    for name in ("/metrics", "/state", "/readyz", "/livez"):
        try:
            with urlopen(f"{address}{name}", timeout=60) as response:
                seen.append(response.read().decode())
        except HTTPError as refused:
            with refused:
                seen.append(refused.read().decode())
    for words in (
        ("config", "show", "secured_billing:app"),
        ("doctor", "secured_billing:app"),
        ("dlq", "groups", DLQ),
        ("dlq", "ls", DLQ),
        ("dlq", "show", f"{DLQ}/0/{end(broker, DLQ) - 1}"),
        ("dlq", "export", DLQ),
    ):
        done = desk.command(*words, **login)
        assert done.returncode == 0, (words, done)
        seen += [done.stdout, done.stderr]
    seen += run.drain()
    text = "\n".join(seen)
    assert "leaked ***" in text
    for secret in (PASSWORD, "topmost-9001", "4242-9", "visa-9003", "customer-9005"):
        assert secret not in text, secret
    # What Kafka has is whole: a replay sends the original bytes.
    assert value in last_value(broker, DLQ)


def last_value(broker: SecureBroker, topic: str) -> bytes:
    """The last record's value."""
    reader = _reader(broker)
    try:
        reader.assign([TopicPartition(topic, 0, end(broker, topic) - 1)])
        message = reader.poll(60)
        assert message is not None
        return message.value() or b""
    finally:
        reader.close()


def bury(broker: SecureBroker) -> None:
    """Write one dead letter, from inside."""
    envelope = Envelope(
        origin_topic="orders", origin_partition=0, origin_offset=0, group="billing",
        handler="bill", attempt=1, failures=1, reason=Reason.ERROR, error_type="ValueError",
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": broker.inner, "log_level": 0})
    producer.produce(DLQ, b"fine-redriven", headers=write_headers(envelope, []))
    assert producer.flush(60) == 0


def exists(broker: SecureBroker, topic: str) -> bool:
    """Whether there is such a topic."""
    return topic in broker.admin.list_topics(timeout=60).topics


def _reader(broker: SecureBroker) -> Consumer:
    return Consumer({"bootstrap.servers": broker.inner, "group.id": "billing"})


def committed(broker: SecureBroker, topic: str) -> int:
    """The group's position."""
    reader = _reader(broker)
    try:
        (found,) = reader.committed([TopicPartition(topic, 0)], timeout=60)
    finally:
        reader.close()
    return int(found.offset)


def end(broker: SecureBroker, topic: str) -> int:
    """Where a topic's log ends, markers of transactions included."""
    reader = _reader(broker)
    try:
        return int(reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1])
    finally:
        reader.close()
