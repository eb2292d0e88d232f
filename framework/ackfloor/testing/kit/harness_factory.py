"""HarnessFactory: harnesses that all end together, as the fixture `ackfloor_harness` has them."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from ackfloor.testing.kit.harness import Harness, HarnessOptions

if TYPE_CHECKING:
    from ackfloor.app import App


class HarnessFactory:
    """Called with an app, it gives a harness that runs; a context manager that ends them all.

    They end in the reverse order of their start, each one also where another's end fails.
    """

    def __init__(self) -> None:
        self._started = ExitStack()

    def __call__(self, app: App, **options: Unpack[HarnessOptions]) -> Harness:
        """A harness of this app, already entered.

        Args:
            app: the app under test.
            options: those of `Harness`.

        Raises:
            ConfigError: the app or a setting is refused.
        """
        return self._started.enter_context(Harness(app, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._started.__exit__(kind, exc, trace)
