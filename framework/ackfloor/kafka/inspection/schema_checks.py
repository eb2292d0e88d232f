"""The doctor's checks of the schema registry: does it answer, and may this user read the subjects.

It asks once for the latest schema of each topic's values, as the deserialisers would. A subject
that is not found is no fault: it may have another name, or there may be no record yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from json import JSONDecodeError

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from ackfloor.core.values.doctor_result import CheckResult
from ackfloor.kafka.registry.schema_client import UNKNOWN
from ackfloor.settings import RegistrySettings

CHECK = "schema registry"
_URL_FIX = "mend registry.url"
_LOGIN_FIX = (
    "mend registry.username and its password (ACKFLOOR_REGISTRY__PASSWORD, or "
    "ACKFLOOR_REGISTRY__PASSWORD_FILE)"
)
_TLS_FIX = "mend registry.ssl_ca_location, or the registry's certificate"
_AWAY_FIX = f"start it, or {_URL_FIX}"
_LATER_FIX = "its log says why; records stay open until it answers"


def check_registry(settings: RegistrySettings, topics: Iterable[str]) -> Iterator[CheckResult]:
    """Check the registry that the values of these topics need."""
    client = SchemaRegistryClient(settings.client())
    known, unknown = [], []
    for topic in sorted(topics):
        subject = f"{topic}-value"
        try:
            client.get_latest_version(subject)
        except SchemaRegistryError as exc:
            if exc.error_code in UNKNOWN:
                unknown.append(subject)
                continue
            yield _refused(settings, subject, exc)
            return
        except Exception as exc:  # noqa: BLE001 -- whatever the HTTP client has
            yield _away(settings, exc)
            return
        known.append(subject)
    notes = [f"it has {', '.join(known)}"] * bool(known)
    notes += [f"no {', '.join(unknown)} yet, or under another name"] * bool(unknown)
    yield CheckResult(CHECK, "ok", f"{settings.url}: {'; '.join(notes)}")


def _refused(settings: RegistrySettings, subject: str, exc: SchemaRegistryError) -> CheckResult:
    """The result when the registry answered with an error."""
    status = exc.http_status_code
    text = f"{settings.url}: HTTP {status} for {subject}: {str(exc.error_message)[:200]}"
    if status == 403:
        return CheckResult(CHECK, "fail", text, f"grant this user to read the subject {subject}")
    fix = {401: _LOGIN_FIX, 404: f"this is no schema registry: {_URL_FIX}"}.get(status, _LATER_FIX)
    return CheckResult(CHECK, "fail", text, fix)


def _away(settings: RegistrySettings, exc: Exception) -> CheckResult:
    """The result when there is no answer, or not a registry's."""
    if isinstance(exc, JSONDecodeError):
        text = f"{settings.url}: its answer is no JSON, so this is no schema registry"
        return CheckResult(CHECK, "fail", text, _URL_FIX)
    reason = f"{type(exc).__name__}: {str(exc)[:200]}"
    fix = _TLS_FIX if "SSL" in reason or "certificate" in reason.lower() else _AWAY_FIX
    return CheckResult(CHECK, "fail", f"{settings.url}: no answer: {reason}", fix)
