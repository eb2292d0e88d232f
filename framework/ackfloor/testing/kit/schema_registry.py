"""SchemaRegistry: a schema registry inside the test's process, over real HTTP.

It speaks the part of Confluent's REST API that serialisers and decoders use: registering a schema,
looking one up, and asking for one by its number, its name (GUID) or its subject and version.
"""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import unquote, urlsplit
from uuid import NAMESPACE_OID, uuid5

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]


@dataclass(frozen=True, slots=True)
class _Schema:
    """What a registry keeps of one schema; the names are the API's."""

    schema: str
    kind: SchemaKind
    references: tuple[dict[str, Any], ...] = ()

    @property
    def guid(self) -> str:
        return str(uuid5(NAMESPACE_OID, f"{self.kind} {self.schema} {self.references}"))

    def to_dict(self, number: int) -> dict[str, Any]:
        body = {"id": number, "guid": self.guid, "schema": self.schema}
        if self.kind != "AVRO":
            body["schemaType"] = self.kind
        return body | ({"references": list(self.references)} if self.references else {})


class SchemaRegistry:
    """A registry on a port of its own; a context manager.

        with SchemaRegistry() as registry:
            number = registry.register("orders-value", '{"type": "string"}')
            harness = Harness(app, settings={"registry": {"url": registry.url}})

    Args:
        username: who is allowed; None for everybody.
        password: the user's.
    """

    def __init__(self, *, username: str | None = None, password: str = "") -> None:
        credentials = b64encode(f"{username}:{password}".encode()).decode()
        self._wanted = None if username is None else f"Basic {credentials}"
        self._lock = threading.Lock()
        self._schemas: list[_Schema] = []
        self._subjects: dict[str, list[int]] = {}
        #: The HTTP status of every answer, such as 503; None: it works.
        self.fault: int | None = None
        #: The requests it got, as `GET /schemas/ids/1`, in order.
        self.asked: list[str] = []
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._requests())
        self._server.daemon_threads = True
        # Serves until `close`; checks for it that often.
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="schema-registry", daemon=True
        ).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop: from now on connections are refused."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        """Where it answers, for `registry.url`.

        Raises:
            RuntimeError: it is not running.
        """
        if self._server is None:
            raise RuntimeError("the registry is not running: use `with SchemaRegistry() as r:`")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def register(
        self,
        subject: str,
        schema: str,
        kind: SchemaKind = "AVRO",
        references: tuple[dict[str, Any], ...] = (),
    ) -> int:
        """Keep a schema under a subject; its number, which equal schemas share.

        Args:
            subject: `orders-value` for the values of the topic `orders`.
            schema: the schema as text.
            kind: its format.
            references: what it refers to: `{"name": ..., "subject": ..., "version": ...}`.
        """
        new = _Schema(schema, kind, references)
        with self._lock:
            if new not in self._schemas:
                self._schemas.append(new)
            number = self._schemas.index(new) + 1
            versions = self._subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
        return number

    def schema(self, number: int) -> dict[str, Any]:
        """A schema as the API returns it: `id`, `guid`, `schema`."""
        return self._schemas[number - 1].to_dict(number)

    def _requests(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Requests(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def _answer(self, body: bytes) -> None:
                path = urlsplit(self.path).path
                registry.asked.append(f"{self.command} {path}")
                status, answer = registry._answer(
                    self.command, path, body, self.headers.get("Authorization")
                )
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Do nothing: `asked` records it."""

        return Requests

    def _answer(
        self, method: str, path: str, body: bytes, credentials: str | None
    ) -> tuple[int, dict[str, Any]]:
        if self.fault is not None:
            return self.fault, {"error_code": self.fault, "message": "made to fail"}
        if self._wanted is not None and credentials != self._wanted:
            return HTTPStatus.UNAUTHORIZED, {"error_code": 401, "message": "Unauthorized"}
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "GET", ["schemas", "ids", number]:
                return self._by_number(number)
            case "GET", ["schemas", "guids", guid]:
                return self._by_guid(guid)
            case "GET", ["subjects", subject, "versions", version]:
                return self._by_version(subject, version)
            case "POST", ["subjects", subject]:
                return self._looked_up(subject, json.loads(body))
            case "POST", ["subjects", subject, "versions"]:
                return self._posted(subject, json.loads(body))
        return HTTPStatus.NOT_FOUND, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_number(self, number: str) -> tuple[int, dict[str, Any]]:
        if number.isdecimal() and 1 <= int(number) <= len(self._schemas):
            return HTTPStatus.OK, self._schemas[int(number) - 1].to_dict(int(number))
        return _missing(40403, f"Schema {number} not found")

    def _by_guid(self, guid: str) -> tuple[int, dict[str, Any]]:
        for number, schema in enumerate(self._schemas, 1):
            if schema.guid == guid:
                return HTTPStatus.OK, schema.to_dict(number)
        return _missing(40403, f"Schema {guid} not found")

    def _by_version(self, subject: str, version: str) -> tuple[int, dict[str, Any]]:
        numbers = self._subjects.get(subject)
        if numbers is None:
            return _missing(40401, f"Subject '{subject}' not found.")
        at = len(numbers) if version == "latest" else int(version)
        if not 1 <= at <= len(numbers):
            return _missing(40402, f"Version {version} not found.")
        return HTTPStatus.OK, self._version(subject, numbers[at - 1])

    def _posted(self, subject: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        schema = _given(given)
        return HTTPStatus.OK, self._version(
            subject, self.register(subject, schema.schema, schema.kind, schema.references)
        )

    def _looked_up(self, subject: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if subject not in self._subjects:
            return _missing(40401, f"Subject '{subject}' not found.")
        schema = _given(given)
        for number in self._subjects[subject]:
            if self._schemas[number - 1] == schema:
                return HTTPStatus.OK, self._version(subject, number)
        return _missing(40403, "Schema not found")

    def _version(self, subject: str, number: int) -> dict[str, Any]:
        version = self._subjects[subject].index(number) + 1
        return self._schemas[number - 1].to_dict(number) | {"subject": subject, "version": version}


def _given(posted: dict[str, Any]) -> _Schema:
    references = tuple(posted.get("references") or ())
    return _Schema(posted["schema"], posted.get("schemaType") or "AVRO", references)


def _missing(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return HTTPStatus.NOT_FOUND, {"error_code": code, "message": message}
