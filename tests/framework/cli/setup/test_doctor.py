"""`ackfloor doctor` on a broker with logins and permissions: what is wrong names itself."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner, Result

from ackfloor.cli.main import cli
from ackfloor.errors import AckfloorError, KafkaUnreachable
from ackfloor.testing import KafkaCluster
from ackfloor.testing.local_kafka.java import find_java
from tests.framework.cli.command import PATIENCE_S
from tests.framework.kafka.wire import fresh
from tests.framework.kafka.wire import until as within

# One broker with permissions for all of them.
pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("doctor")]

PASSWORD = "hush-4711"
#: Nobody listens there.
NO_RUN = "127.0.0.1:1"
APP = """
from ackfloor import App, RetryPolicy

app = App(group="{group}")


@app.handler("{topic}", retry=RetryPolicy.fixed("1s", 1))
async def bill(order: bytes) -> None: ...
"""
#: The guide's least rights, by kind of topic.
RIGHTS = {
    "": ("DESCRIBE", "DESCRIBE_CONFIGS", "READ"),
    "retry-1s": ("DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"),
    "dlq": ("DESCRIBE", "DESCRIBE_CONFIGS", "WRITE"),
}


def until(done: Callable[[], object]) -> None:
    """Wait with the patience of a busy machine: what is granted takes a moment to count."""
    within(done, PATIENCE_S)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Who logs in may do what he was granted; who asks at the inner door may do everything."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f'{login} user_admin="{PASSWORD}" '
        f'user_worker="{PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with KafkaCluster(config=config) as made:
        yield made


class Scene:
    """An app's topics on that broker, and what the user `worker` may do."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers = servers
        self.folder = folder
        self.group, self.topic = fresh("billing"), fresh("orders")
        self.login = {
            "bootstrap.servers": servers,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
        }
        self.admin = AdminClient(self.login)
        text = APP.format(group=self.group, topic=self.topic)
        (folder / f"{self.group.replace('-', '_')}.py").write_text(text)

    def name(self, kind: str) -> str:
        """The source topic, or one of ours for it."""
        return f"{self.topic}--{self.group}--{kind}" if kind else self.topic

    def create(self, kinds: Sequence[str] = ("", "retry-1s", "dlq"), **config: str) -> None:
        """Make topics as the plan has them, but for what is said of them."""
        planned = {
            "retention.ms": str(30 * 86_400_000),
            "max.message.bytes": str(1_048_588 + 65_536),
        }
        new = [
            NewTopic(self.name(kind), 2, 1, config={**planned, **config} if kind else {})
            for kind in kinds
        ]
        for future in self.admin.create_topics(new).values():
            future.result(60)
        names = {topic.topic for topic in new}
        until(lambda: names <= self.admin.list_topics(timeout=60).topics.keys())

    def grant(self, *but: tuple[str, str]) -> None:
        """Grant what a worker needs, but for some (kind, operation)."""
        rights = [("group", "READ"), *((kind, op) for kind in RIGHTS for op in RIGHTS[kind])]
        rules = []
        for kind, operation in rights:
            if (kind, operation) in but:
                continue
            what = ResourceType.GROUP if kind == "group" else ResourceType.TOPIC
            name = self.group if kind == "group" else self.name(kind)
            rules.append(self._rule(what, name, AclOperation[operation]))
        for future in self.admin.create_acls(rules).values():
            future.result(60)

    @staticmethod
    def _rule(what: ResourceType, name: str, operation: AclOperation) -> AclBinding:
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        return AclBinding(what, name, literal, "User:worker", "*", operation, allow)

    def revoke_all(self) -> None:
        """Take back what was granted."""
        anything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, "User:worker", None,
            AclOperation.ANY, AclPermissionType.ANY,
        )  # fmt: skip
        for future in self.admin.delete_acls([anything]).values():
            future.result(60)

    def doctor(self, *arguments: str) -> Result:
        """The command, for the app."""
        app = f"{self.group.replace('-', '_')}:app"
        # Whatever else runs on this machine is not asked.
        return CliRunner().invoke(
            cli, ["doctor", app, *arguments], env={"ACKFLOOR_APP__LISTEN": NO_RUN}
        )

    def found(self, *arguments: str) -> dict[str, dict[str, str]]:
        """What it finds, by check."""
        done = self.doctor("-o", "json", *arguments)
        assert done.exit_code in {0, 1, 4}, done.output
        return {each["check"]: each for each in json.loads(done.stdout)}

    def found_when(self, **states: str) -> dict[str, dict[str, str]]:
        """What it finds as soon as these checks are in these states.

        That one look: another one may be too short for a busy broker, and then checks are missing.
        """
        seen: dict[str, dict[str, str]] = {}

        def so() -> bool:
            seen.clear()
            seen.update(self.found())
            return all(seen.get(name, {}).get("state") == state for name, state in states.items())

        until(so)
        return seen


@pytest.fixture
def scene(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    """The settings log in as the worker."""
    for name, value in {
        "BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "SECURITY_PROTOCOL": "sasl_plaintext",
        "SASL_MECHANISM": "PLAIN",
        "SASL_USERNAME": "worker",
        "SASL_PASSWORD": PASSWORD,
    }.items():
        monkeypatch.setenv(f"ACKFLOOR_KAFKA__{name}", value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    scene = Scene(cluster.bootstrap_servers, tmp_path)
    yield scene
    scene.revoke_all()


def test_the_least_rights_of_the_guide_are_enough(scene: Scene) -> None:
    """Nothing is worth a warning, and every check has looked."""
    scene.create()
    scene.grant()
    until(lambda: scene.doctor("--strict").exit_code == 0)
    found = scene.found()
    assert {name for name, each in found.items() if each["state"] != "ok"} == {
        "clock",  # no record to compare it with
        f"run {NO_RUN}",  # none is needed
        "group protocol",  # what brokers speak, a worker need not be allowed to ask
    }
    assert found[f"group {scene.group}"]["detail"].startswith("new")
    assert found[f"rights on {scene.name('dlq')}"]["detail"] == "DESCRIBE, DESCRIBE_CONFIGS, WRITE"


def test_each_missing_right_is_named_with_its_fix(scene: Scene) -> None:
    """Of the group, of a retry topic, of the dead-letter topic."""
    scene.create()
    scene.grant(("group", "READ"), ("retry-1s", "READ"), ("dlq", "WRITE"))
    found = scene.found_when(
        **{f"rights on {scene.topic}": "ok", f"group {scene.group}": "fail"},
    )
    for check, fix in (
        (f"group {scene.group}", f"grant READ on group {scene.group}"),
        (f"rights on {scene.name('retry-1s')}", f"grant READ on topic {scene.name('retry-1s')}"),
        (f"rights on {scene.name('dlq')}", f"grant WRITE on topic {scene.name('dlq')}"),
    ):
        assert (found[check]["state"], found[check]["fix"]) == ("fail", fix)
    assert scene.doctor().exit_code == 1


def test_a_topic_of_results_has_to_be_there_and_to_take_them(scene: Scene) -> None:
    """WRITE is enough for it: nothing else is asked of it, and none of it is a warning."""
    scene.create()
    scene.grant()
    bills = f"{scene.topic}-bills"
    module = scene.folder / f"{scene.group.replace('-', '_')}.py"
    text = module.read_text().replace('("1s", 1))', f'("1s", 1), to="{bills}")')
    module.write_text(text.replace("-> None: ...", "-> bytes:\n    return order"))
    missing = scene.found_when(**{f"rights on {scene.topic}": "ok"})
    assert missing[f"results to {bills}"]["state"] == "fail"
    scene.admin.create_topics([NewTopic(bills, 3, 1)])[bills].result(60)
    literal = scene._rule(ResourceType.TOPIC, bills, AclOperation.DESCRIBE)
    scene.admin.create_acls([literal])[literal].result(60)
    refused = scene.found_when(**{f"results to {bills}": "ok"})[f"rights to publish to {bills}"]
    assert (refused["state"], refused["fix"]) == ("fail", f"grant WRITE on topic {bills}")
    literal = scene._rule(ResourceType.TOPIC, bills, AclOperation.WRITE)
    scene.admin.create_acls([literal])[literal].result(60)
    until(lambda: scene.doctor("--strict").exit_code == 0)


def test_what_can_be_done_without_is_a_warning(scene: Scene) -> None:
    """A worker that may not read a topic's settings works; under --strict that is not enough."""
    scene.create()
    scene.grant(("", "DESCRIBE_CONFIGS"))
    until(lambda: scene.doctor().exit_code == 0)
    assert scene.found()[f"rights on {scene.topic}"]["state"] == "warn"
    assert scene.doctor("--strict").exit_code == 1


def test_topics_that_are_missing_or_unfit_are_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source, one that keeps too little and takes nothing, one that nobody is to create."""
    scene.found_when(**{f"topic {scene.topic}": "fail"})
    scene.create(["", "retry-1s"], **{"retention.ms": "3600000", "min.insync.replicas": "2"})
    scene.grant()
    found = scene.found_when(**{f"topic {scene.topic}": "ok"})
    tier = found[f"topic {scene.name('retry-1s')}"]
    assert tier["state"] == "fail"
    assert "retention.ms keeps 1h, the plan wants 7d" in tier["detail"]
    assert "nothing can be parked" in tier["detail"]
    assert "a worker creates it" in found[f"topic {scene.name('dlq')}"]["detail"]
    monkeypatch.setenv("ACKFLOOR_APP__CREATE_TOPICS", "false")
    dlq = scene.found()[f"topic {scene.name('dlq')}"]
    assert (dlq["state"], dlq["fix"]) == ("fail", "ackfloor topics apply MODULE:APP")


def test_breakers_that_open_late_are_named(scene: Scene) -> None:
    """No redeliveries, which no broker need be asked for, and fewer partitions than failures."""
    scene.create()
    scene.grant()
    module = scene.folder / f"{scene.group.replace('-', '_')}.py"
    lanes = 'retry=RetryPolicy.fixed("1s", 0), ordering="partition"'
    module.write_text(module.read_text().replace('retry=RetryPolicy.fixed("1s", 1)', lanes))
    done = scene.doctor("-o", "json", "--strict")
    found = [each for each in json.loads(done.stdout) if each["check"] == "breaker of bill"]
    assert [each["state"] for each in found] == ["warn", "warn"]
    assert "max_redeliveries=0" in found[0]["detail"]
    assert "of 2 partitions" in found[1]["detail"]
    assert done.exit_code == 1


def test_a_topic_of_dispositions_asks_nothing_of_a_worker(scene: Scene) -> None:
    """It is there after the first replay; only who replays has rights on it."""
    scene.create(["", "retry-1s", "dlq", "dispositions"])
    scene.grant()
    until(lambda: scene.doctor("--strict").exit_code == 0)
    assert f"rights on {scene.name('dispositions')}" not in scene.found()


def test_records_from_the_future_are_told(scene: Scene) -> None:
    """By that much this machine's clock is behind, or theirs ahead."""
    scene.create()
    scene.grant()
    producer = Producer(scene.login)
    producer.produce(scene.topic, b"x", timestamp=round((time.time() + 3600) * 1000))
    assert producer.flush(60) == 0
    found = scene.found_when(clock="warn")
    assert "ahead of this machine's clock" in found["clock"]["detail"]


def test_a_wrong_password_names_itself_and_not_the_password(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What depends on it is not tried; a broker was there, so it is a failed check."""
    monkeypatch.setenv("ACKFLOOR_KAFKA__SASL_PASSWORD", "wrong-0815")
    answers: list[Result] = []

    def refused() -> bool:
        answers.append(scene.doctor())
        return "Authentication failed" in answers[-1].stdout

    # On a busy machine the refusal may take longer than the doctor waits for it.
    until(refused)
    done = answers[-1]
    assert done.exit_code == 1
    assert "sasl_username or its password" in done.stdout
    assert "0815" not in done.output
    assert scene.found()["topics"]["state"] == "not tried"
    app = f"{scene.group.replace('-', '_')}:app"

    def planned() -> str:
        done = CliRunner().invoke(cli, ["topics", "plan", app, "--connect-timeout", "3s"])
        assert isinstance(done.exception, KafkaUnreachable)
        return str(done.exception)

    # And longer than that.
    until(lambda: "but refuses the connection: _AUTHENTICATION" in planned())


@pytest.mark.parametrize(
    "words",
    [["lag"], ["lag", "--group", "g"], ["acks"], ["retry", "ls"], ["dlq", "groups"]],
    ids=" ".join,
)
def test_every_command_tells_of_a_refused_login(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """The cause, what to mend, and who looks closer; not that nobody answered."""
    monkeypatch.setenv("ACKFLOOR_KAFKA__SASL_PASSWORD", "wrong-0815")

    text = ""

    def refused() -> bool:
        nonlocal text
        done = CliRunner().invoke(cli, words)
        assert isinstance(done.exception, KafkaUnreachable)
        text = str(done.exception)
        return f"'{scene.servers}': a broker is there, but refuses the connection" in text

    # On a busy machine the refusal may take longer than their patience.
    until(refused)
    assert "Authentication failed" in text
    assert text.endswith("its password; `ackfloor doctor` looks closer")
    assert "0815" not in text


def test_another_protocol_than_the_listeners_is_told(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS spoken to a door that speaks plain text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACKFLOOR_KAFKA__SECURITY_PROTOCOL", "ssl")
    words = ["doctor", "--bootstrap-servers", cluster.bootstrap_servers, "--connect-timeout", "2s"]
    until(lambda: "SSL" in CliRunner().invoke(cli, words).stdout)
    assert CliRunner().invoke(cli, words).exit_code in {1, 4}


def test_an_expired_certificate_names_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who it is trusted by or not is another matter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACKFLOOR_KAFKA__SECURITY_PROTOCOL", "ssl")
    monkeypatch.setenv("ACKFLOOR_KAFKA__SSL_CA_LOCATION", str(_expired(tmp_path)))
    config = {
        "listener.security.protocol.map": "CLIENT:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.ssl.keystore.type": "PKCS12",
        "listener.name.client.ssl.keystore.location": str(tmp_path / "broker.p12"),
        "listener.name.client.ssl.keystore.password": PASSWORD,
    }
    with KafkaCluster(config=config) as cluster:
        words = ["doctor", "--bootstrap-servers", cluster.bootstrap_servers]
        answers: list[Result] = []

        def refused() -> bool:
            answers.append(CliRunner().invoke(cli, words))
            return "certificate has expired" in answers[-1].stdout

        until(refused)
    done = answers[-1]
    assert done.exit_code == 1
    assert "mend the certificate" in done.stdout


def _expired(folder: Path) -> Path:
    """A broker's certificate that ended yesterday, which is its own authority; returns that."""
    keytool = [str(find_java().executable), "-m", "java.base/sun.security.tools.keytool.Main"]
    store = ["-keystore", str(folder / "broker.p12"), "-storepass", PASSWORD, "-alias", "broker"]
    made = ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=localhost", "-storetype", "PKCS12"]
    times = ["-startdate", "-3d", "-validity", "2", "-ext", "SAN=IP:127.0.0.1,DNS:localhost"]
    written = ["-exportcert", "-rfc", "-file", str(folder / "ca.pem")]
    for words in ([*made, *times], written):
        subprocess.run([*keytool, *words, *store], check=True, capture_output=True, timeout=120)
    return folder / "ca.pem"


def test_an_onlooker_without_rights_is_told_which(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may not read the group's commits: that is no unreachable broker, and no lag of 0."""
    scene.create()
    scene.grant(("group", "READ"))
    scene.found_when(**{f"rights on {scene.topic}": "ok"})
    done = CliRunner().invoke(cli, ["lag", "--group", scene.group])
    assert type(done.exception) is AckfloorError
    assert f"no permission: grant DESCRIBE on group {scene.group}" in str(done.exception)
    done = CliRunner().invoke(cli, ["lag", "-o", "json"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])
    assert f"grant DESCRIBE on group {scene.group}" in done.stderr
    # So long a client asks that may not.
    monkeypatch.setattr("ackfloor.kafka.groups.group_commits.REQUEST_S", 5.0)
    done = CliRunner().invoke(cli, ["retry", "ls", "--group", scene.group])
    assert type(done.exception) is AckfloorError
    assert f"no permission: grant DESCRIBE on group {scene.group}" in str(done.exception)


def test_without_a_broker_it_says_so_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 4."""
    monkeypatch.chdir(tmp_path)
    words = ["doctor", "--bootstrap-servers", "127.0.0.1:1", "--connect-timeout", "1s"]
    done = CliRunner().invoke(cli, [*words, "-o", "json"])
    assert done.exit_code == 4
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert "no broker has answered at 127.0.0.1:1 within 1 s" in found["brokers"]["detail"]
    assert found["group protocol"]["state"] == "not tried"


def test_settings_that_clients_refuse_are_found(scene: Scene) -> None:
    """As a worker would refuse them at its start, and a wait that is longer than the group's."""
    (scene.folder / "ackfloor.toml").write_text(
        '[kafka.consumer]\n"max.poll.interval.ms" = 20000\n'
    )
    assert "drain_timeout" in scene.found()["settings"]["detail"]
    (scene.folder / "ackfloor.toml").write_text(
        '[app]\ndrain_timeout = "1s"\n[kafka.consumer]\n"max.poll.interval.ms" = 20000\n'
    )
    found = scene.found()["settings"]
    assert found["state"] == "warn"
    assert "shutdown_timeout" in found["detail"]


def test_a_replay_without_rights_is_told_which(scene: Scene) -> None:
    """One after the other, before anything is sent; with those of the guide it is sent."""
    scene.create()
    scene.grant()
    dlq, notes = scene.name("dlq"), scene.name("dispositions")
    producer = Producer(scene.login)
    headers = [("ackfloor.origin.topic", scene.topic.encode())]
    producer.produce(dlq, b"v", headers=headers, partition=0)
    assert producer.flush(60) == 0
    topic, transaction = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
    job = f"ackfloor-redrive-{dlq}"
    for text, rights in (
        (f"no permission: grant READ on topic {dlq}", [(topic, dlq, "READ")]),
        (
            f"{notes} could not be created",
            [(topic, notes, "CREATE"), (topic, notes, "READ"), (topic, notes, "WRITE")],
        ),
        (
            f"WRITE and DESCRIBE on the transactional id {job}",
            [(transaction, job, "WRITE"), (transaction, job, "DESCRIBE")],
        ),
    ):
        until(lambda text=text: text in _replay(dlq))
        rules = [scene._rule(what, name, AclOperation[op]) for what, name, op in rights]
        for future in scene.admin.create_acls(rules).values():
            future.result(60)
    until(lambda: f"{dlq} to {scene.name('retry-1s')}: 1 sent" in _replay(dlq))
    assert "1  left out: replayed, discarded or archived before" in _replay(dlq)


def _replay(dlq: str) -> str:
    """What `dlq replay` says."""
    done = CliRunner().invoke(cli, ["dlq", "replay", dlq, "--yes"])
    assert done.exit_code in {0, 1, 2}
    return f"{done.stdout}{done.exception or ''}"
