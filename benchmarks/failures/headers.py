"""What a failing message's headers say, delivery by delivery."""

from __future__ import annotations

from ackfloor.core.records.envelope import Envelope, Reason, fingerprint
from benchmarks.failures.arrivals import Message, draw
from benchmarks.failures.scenario import Cause

_TOOK = 40_000  # `month` draws below


def first_envelope(message: Message) -> Envelope:
    """Before anything failed."""
    job = message.cause.job
    return Envelope(
        origin_topic=job.topic,
        origin_partition=message.partition,
        origin_offset=message.offset,
        origin_timestamp_ms=message.time_ms,
        group=job.group,
        handler=job.handler,
    )


def after_failure(
    before: Envelope, cause: Cause, message: Message, now_ms: int, seed: int
) -> Envelope:
    """After one more failure, at `now_ms`; the reason is that of a retry."""
    error_type, text, frame = cause.error
    attempt = before.attempt + 1
    key = message.key.decode()
    name = "timeout" if cause.timeout else "retry" if cause.wait_s is not None else "error"
    file, function, line = frame
    stack = f'  File "/app/{file}", line {line}, in {function}\n{error_type}: {text}'
    return before._replace(
        attempt=attempt,
        failures=before.failures + (not cause.timeout),
        timeouts=before.timeouts + cause.timeout,
        reason=Reason(name),
        error_type=error_type,
        error_message=text.format(key=key, n=message.number),
        error_stack=stack if file else None,
        error_fingerprint=_fingerprint(cause),
        first_failed_at_ms=before.first_failed_at_ms or now_ms,
        failed_at_ms=now_ms,
        retry_at_ms=None,
        duration_ms=duration_ms(message, attempt, seed),
        release=cause.job.release_at(now_ms),
    )


def _fingerprint(cause: Cause) -> str | None:
    error_type, _, (file, function, _) = cause.error
    if cause.timeout:
        return None  # there was no exception
    return fingerprint(error_type, [(file, function)] if file else [])


def duration_ms(message: Message, attempt: int, seed: int) -> int:
    """How long a delivery takes until it fails, in milliseconds."""
    if message.cause.timeout:
        return message.cause.job.consume_timeout_ms
    return int(5 + 40 / (1.02 - draw(seed, message.number, _TOOK + attempt)))
