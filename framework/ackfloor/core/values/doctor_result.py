"""CheckResult: the result of one check of `ackfloor doctor`, and the fix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: "warn" does not keep a worker from working; "not tried" says why there is no result.
State = Literal["ok", "warn", "fail", "not tried"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        check: what was looked at, such as "topic orders".
        detail: what there is, in a sentence.
        fix: what to do where it is not ok.
    """

    check: str
    state: State
    detail: str
    fix: str = ""


def passes(results: list[CheckResult], *, strict: bool) -> bool:
    """Whether a worker can do its work; under `strict` nothing may be worth a warning."""
    bad = {"fail", "warn"} if strict else {"fail"}
    return not any(result.state in bad for result in results)
