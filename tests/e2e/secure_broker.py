"""A broker that nobody enters without TLS and a login, where each may do what was granted."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ackfloor.testing import KafkaCluster
from ackfloor.testing.local_kafka.java import find_java
from tests.framework.kafka.wire import until
from tests.structure.sources import REPOSITORY

#: Of every login here; what no log may ever hold.
PASSWORD = "hush-4711-hush"
_SECURITY = "org.apache.kafka.common.security"
_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}


@dataclass(frozen=True, slots=True)
class Right:
    """A row of the guide's lists, with one of its operations."""

    role: str
    kind: str
    name: str
    prefixed: bool
    operation: str

    def binding(self, user: str) -> AclBinding:
        """As the broker is told of it."""
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        return AclBinding(
            _KINDS[self.kind], self.name, pattern, f"User:{user}", "*",
            AclOperation[self.operation], AclPermissionType.ALLOW,
        )  # fmt: skip


def least_rights(role: str) -> list[Right]:
    """The rows of docs/guide/security.md that belong to a role, an operation each."""
    text = (REPOSITORY / "docs" / "guide" / "security.md").read_text("utf-8")
    row = re.compile(r"^\| (\w+) \| ([\w ]+) \| `([^`]+)` \| (literal|prefixed) \| ([A-Z_, ]+) \|")
    rows = [match for line in text.splitlines() if (match := row.match(line))]
    found = [
        Right(role, m[2], m[3], m[4] == "prefixed", operation)
        for m in rows
        if m[1] == role
        for operation in m[5].split(", ")
    ]
    assert found, f"the guide has no list for {role}"
    return found


class SecureBroker:
    """The broker, as its administrator has it: the inner door is open to him."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.servers = cluster.bootstrap_servers
        self.folder = folder
        self.admin = AdminClient({"bootstrap.servers": cluster.internal_servers})
        self.inner = cluster.internal_servers

    def login(self, user: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """The environment of who logs in as this user."""
        settings = {
            "BOOTSTRAP_SERVERS": self.servers,
            "SECURITY_PROTOCOL": "sasl_ssl",
            "SASL_MECHANISM": mechanism,
            "SSL_CA_LOCATION": str(self.folder / "ca.pem"),
        }
        if mechanism != "OAUTHBEARER":
            settings |= {"SASL_USERNAME": user, "SASL_PASSWORD": PASSWORD}
        return {f"ACKFLOOR_KAFKA__{name}": value for name, value in settings.items()}

    def password(self, user: str, password: str = PASSWORD) -> None:
        """Set a SCRAM user's password."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        self.admin.alter_user_scram_credentials([change])[user].result(60)

    def certificate(self, name: str) -> None:
        """Show this certificate to whoever connects from now on: "good" or "expired"."""
        key = "listener.name.client.ssl.keystore.location"
        entry = ConfigEntry(
            key,
            str(self.folder / f"{name}.p12"),
            incremental_operation=AlterConfigOpType.SET,
        )
        broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        self.admin.incremental_alter_configs([broker])[broker].result(60)

    def grant(self, user: str, rights: Sequence[Right]) -> None:
        """Let a user do this."""
        for future in self.admin.create_acls(list({r.binding(user) for r in rights})).values():
            future.result(60)

    def take(self, user: str, right: Right | None = None) -> None:
        """Take a right back, or all of them."""
        anything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None,
            AclOperation.ANY, AclPermissionType.ANY,
        )  # fmt: skip
        if right is not None:
            b = right.binding(user)
            anything = AclBindingFilter(
                b.restype, b.name, b.resource_pattern_type, b.principal, b.host, b.operation,
                b.permission_type,
            )  # fmt: skip
        for future in self.admin.delete_acls([anything]).values():
            assert future.result(60) or right is None

    def topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic, if there is none."""

        def there() -> bool:
            return name in self.admin.list_topics(timeout=60).topics

        if not there():
            new = NewTopic(name, partitions, 1, config=config)
            self.admin.create_topics([new])[name].result(60)
            # The broker that is asked next knows of it a moment later.
            until(there)


@contextmanager
def secure_broker(folder: Path) -> Iterator[SecureBroker]:
    """Start it: TLS, PLAIN, SCRAM and OAUTHBEARER, and nothing allowed that was not granted."""
    _certificates(folder)
    door = "listener.name.client"
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in ("worker", "operator", "spark"))
    config = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        f"{door}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        f"{door}.plain.sasl.jaas.config": f"{_SECURITY}.plain.PlainLoginModule required {users};",
        f"{door}.scram-sha-512.sasl.jaas.config": f"{_SECURITY}.scram.ScramLoginModule required;",
        # Takes tokens that nobody has signed: the test is of our side.
        f"{door}.oauthbearer.sasl.jaas.config": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule "
        'required unsecuredLoginStringClaim_sub="broker";',
        f"{door}.ssl.keystore.type": "PKCS12",
        f"{door}.ssl.keystore.location": str(folder / "good.p12"),
        f"{door}.ssl.keystore.password": PASSWORD,
        f"{door}.ssl.allow.dn.changes": "true",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaCluster(config=config) as cluster:
        broker = SecureBroker(cluster, folder)
        for user in ("worker", "operator", "spark"):
            broker.password(user)
        yield broker


def _certificates(folder: Path) -> None:
    """A certificate that is good and one that has expired, each its own authority."""
    authorities: list[str] = []
    keytool = [str(find_java().executable), "-m", "java.base/sun.security.tools.keytool.Main"]
    made = ["-genkeypair", "-keyalg", "EC", "-storetype", "PKCS12", "-validity", "2"]
    made += ["-ext", "SAN=IP:127.0.0.1,DNS:localhost"]
    for name, begins in (("good", "-1H"), ("expired", "-3d")):
        store = ["-keystore", str(folder / f"{name}.p12"), "-storepass", PASSWORD, "-alias", "b"]
        # Names of their own: authorities are found by them.
        own = ["-dname", f"CN={name}", "-startdate", begins]
        for words in ([*made, *own], ["-exportcert", "-rfc"]):
            done = subprocess.run(
                [*keytool, *words, *store], check=True, capture_output=True, timeout=120
            )
            authorities.append(done.stdout.decode())
    (folder / "ca.pem").write_text("".join(authorities))
