"""`ackfloor run --reload`: drains a run and starts it again when its code changes.

The run is a process of its own, the same as without `--reload`; this process does not import the
app. New workers under the old supervisor would not do: it has imported the app to check settings
and to create topics, and would go on with the old code, so a new handler would have no topics.

Signals only set flags; the loop passes them on. The run notices through its end of the lifeline
(`reloaded`) when this process is gone, however it ended.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ackfloor.cli.run.reload_watch import Looks, changed, is_watched, looks, named
from ackfloor.errors import ConfigError
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.runtime.supervision.run_signals import run_signals

log = logging.getLogger("ackfloor.reload")

#: The option, and its variable: the run must see neither.
OPTION, VARIABLE = "--reload", "ACKFLOOR_RUN_RELOAD"
LOOK_S = 0.5
TICK_S = 0.05
#: After these exit codes the run is not started again: asked to stop, or no broker in time.
FINAL = frozenset({Exit.OK, Exit.USAGE, Exit.KAFKA_UNREACHABLE})


def run_reloading(app: str, options: Mapping[str, object], config: Path | None) -> int:
    """Run the app and restart it when its code changes; returns the exit code.

    Args:
        app: MODULE:APP.
        options: of `ackfloor run`, by flag; None and False are not given, of a sequence each is.
        config: the settings file that was given.

    Raises:
        ConfigError: no change of the app would be noticed.
    """
    from ackfloor.runtime.logging.logs import set_up_logging
    from ackfloor.settings.layers import find_file

    # If the app's module is missing or fails to import, the run itself reports it.
    folder = Path.cwd()
    if not is_watched(app.partition(":")[0], folder):
        raise ConfigError(
            OPTION, app, f"the module is not below {folder}, so no change would be noticed",
            "start the run in the folder that has the app, or leave --reload out",
        )  # fmt: skip
    style = "json" if options.get("--log-format") == "json" else "text"
    set_up_logging("info", style, "reload")
    program = [sys.executable, "-m", "ackfloor.cli.reloaded"]
    given = [app, *arguments(options)]
    reloader = Reloader(
        lambda lifeline: [*program, str(lifeline), *given],
        lambda: looks(folder, find_file(config, os.environ)),
    )
    return reloader.run()


def arguments(options: Mapping[str, object]) -> Iterator[str]:
    """The options as a command line has them, `--reload` left out."""
    for flag, value in options.items():
        if value is None or value is False or flag == OPTION:
            continue
        if value is True:
            yield flag
        else:
            for each in value if isinstance(value, list | tuple) else [value]:
                yield from (flag, str(each))


class Reloader:
    """Starts a run, and again after each change, until a stop is requested.

    Args:
        command: makes the run's argv from the file descriptor of its lifeline.
        look: the state of the watched files now.
    """

    def __init__(self, command: Callable[[int], Sequence[str]], look: Callable[[], Looks]) -> None:
        self._command = command
        self._look = look
        self._stops = 0
        self._passed_on: list[int] = []

    def run(self) -> int:
        """Run and restart until the end; returns the exit code."""
        log.info("--reload is for development: changes below this folder start the run again")
        theirs, ours = os.pipe()
        try:
            with run_signals(self._request_stop, self._passed_on.append):
                return self._follow(theirs)
        finally:
            os.close(theirs)
            os.close(ours)

    def _follow(self, lifeline: int) -> int:
        while True:
            # Before the import, so that a change during it counts.
            seen = self._look()
            code, files = self._live(seen, lifeline)
            if self._stops:
                return code
            if not files:
                if code in FINAL:
                    return code
                log.error("the run ended with code %d: waiting for the next change", code)
                files = self._wait(seen)
                if self._stops:
                    return Exit.OK
            log.info("starting again: %s", named(files))

    def _live(self, seen: Looks, lifeline: int) -> tuple[int, list[str]]:
        """Run once until it ends; returns its exit code and the changed files that ended it."""
        process = subprocess.Popen(
            self._command(lifeline),
            pass_fds=(lifeline,),
            stdin=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != VARIABLE},
            # A session of its own: Ctrl-C in a terminal reaches this process alone.
            start_new_session=True,
        )
        files: list[str] = []
        sent, look_at_s, again_s = 0, time.monotonic() + LOOK_S, 0.0
        while process.poll() is None:
            now_s = time.monotonic()
            if not files and not self._stops and now_s >= look_at_s:
                look_at_s = now_s + LOOK_S
                files = changed(seen, self._look())
                if files:
                    log.info("changed: %s; the workers drain", named(files))
            # During a drain for a change, a first stop asks for nothing more. A second one is sent
            # repeatedly: two signals at the same moment reach the run as one.
            if sent < max(self._stops, bool(files)) or (sent > 1 and now_s >= again_s):
                sent, again_s = sent + 1, now_s + LOOK_S
                process.send_signal(signal.SIGTERM)
            while self._passed_on:
                process.send_signal(self._passed_on.pop(0))
            time.sleep(TICK_S)
        return _code(process.returncode), files

    def _wait(self, seen: Looks) -> list[str]:
        """The files of the next change; empty after a stop was requested."""
        look_at_s = 0.0
        while not self._stops:
            if time.monotonic() >= look_at_s:
                look_at_s = time.monotonic() + LOOK_S
                if files := changed(seen, self._look()):
                    return files
            time.sleep(TICK_S)
        return []

    def _request_stop(self) -> None:
        self._stops += 1


def _code(code: int) -> int:
    """The exit code of a run; one that died of SIGTERM had not begun to work."""
    if code >= 0:
        return code
    return Exit.OK if code == -signal.SIGTERM else Exit.FORCED
