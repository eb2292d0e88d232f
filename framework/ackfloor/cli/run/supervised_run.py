"""The run itself: its checks, its supervisor, and what is served at its address.

Apart from the command, so that `ackfloor run --help` imports none of it.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from ackfloor.errors import ConfigError
from ackfloor.launch import Launch
from ackfloor.live.breaker_requests import PATH as BREAKER_PATH
from ackfloor.live.breaker_requests import BreakerControl
from ackfloor.live.lane_requests import PATH as LANES_PATH
from ackfloor.live.lane_requests import LaneRequests
from ackfloor.live.pause_orders import PATH as HANDLERS_PATH
from ackfloor.live.pause_orders import PauseControl
from ackfloor.live.retry_requests import PATH as RETRY_PATH
from ackfloor.live.retry_requests import RetryRequests
from ackfloor.live.run_control import PATH, ConfigControl
from ackfloor.live.run_settings import RunSettings
from ackfloor.live.token import TokenFile, token_path
from ackfloor.loading import load_app
from ackfloor.ports import RunMonitor
from ackfloor.runtime.logging.logs import set_up_logging
from ackfloor.runtime.supervision.supervisor import Supervisor
from ackfloor.settings.app_settings import AppSettings
from ackfloor.settings.layers import Layer

log = logging.getLogger("ackfloor.run")


def supervised(
    app: str,
    given: dict[str, str | int],
    factory: bool,
    only: list[str],
    connect_timeout: timedelta | None,
    config: Path | None,
) -> int:
    """Check everything, then run workers until asked to stop; returns the exit code."""
    loaded = load_app(app, factory=factory)

    def relaunch(file: Layer, above: Layer) -> Launch:
        return Launch.of(loaded, flags=given, only=only, file=file, above=above)

    live = RunSettings(relaunch, config, loaded.group)
    launch = live.launch
    settings = launch.settings.app
    redaction = launch.settings.redaction.rules()
    set_up_logging(settings.log_level, settings.log_format, "run", redaction)
    launch.check_handlers()
    release = launch.worker_config().release
    named = f", release {release}" if release else ""
    log.info("group %s%s", launch.settings.group, named)
    if live.remark:
        log.info("%s", live.remark)
    # Before the wait for Kafka, so that /livez and /readyz answer meanwhile: alive, not ready.
    with _monitor(launch, live) as monitor:
        launch.prepare_topics(
            connect_timeout, lambda why: None if monitor is None else monitor.waits(None, why)
        )
        supervisor = Supervisor(
            _worker_command(app, given, factory, only),
            settings.workers,
            monitor,
            shutdown_s=settings.shutdown_timeout_s,
            settings=live,
        )
        with launch.lag_watch(monitor):
            code = supervisor.run()
            _end_undisturbed()
            return code


def _end_undisturbed() -> None:
    """Ignore signals: the workers are gone and the exit code is final.

    Else a third signal would change the exit code of a forced run.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)


@contextmanager
def _monitor(launch: Launch, live: RunSettings) -> Iterator[RunMonitor | None]:
    """Serve metrics and health, if a monitoring plugin is installed."""
    plugin = launch.monitoring()
    if plugin is None:
        yield None
        return
    settings = launch.settings
    monitor = plugin.run_monitor(settings.group, settings.app.workers)
    monitor.settings(live.state)
    live.on_state = monitor.settings
    listen = _served(monitor, settings.app)
    token = None
    try:
        token = _take_settings(monitor, live, listen)
        yield monitor
    finally:
        monitor.stop()
        if token is not None:
            token.remove()


def _served(monitor: RunMonitor, app: AppSettings) -> str:
    """Serve at the run's address, which is returned; raises ConfigError."""
    if app.tls_certificate is None:
        if app.tls_key is not None:
            fix = "set app.tls_certificate, or leave app.tls_key out"
            raise ConfigError("app.tls_key", app.tls_key, "goes with app.tls_certificate", fix)
        listen = monitor.start(app.listen)
        log.info("metrics and health on http://%s", listen)
        return listen
    key = None if app.tls_key is None else Path(app.tls_key).expanduser()
    listen = monitor.start(app.listen, Path(app.tls_certificate).expanduser(), key)
    log.info("metrics and health on https://%s", listen)
    return listen


def _take_settings(monitor: RunMonitor, live: RunSettings, listen: str) -> TokenFile | None:
    """Serve control requests with the run's token; returns the token file."""
    app = live.launch.settings.app
    if app.control == "off":
        return None
    # The address as configured, which `config set` knows, unless the port is 0.
    asked = listen if app.listen.endswith(":0") else app.listen
    path = token_path(asked, app.control_token_file)
    try:
        token = TokenFile(path, keep=app.control_token_file is not None)
    except ConfigError as exc:
        if app.control_token_file is not None:
            raise
        # The run goes on without a token file.
        log.warning("settings can't be changed with `ackfloor config set`: %s", exc)
        return None
    anywhere = app.control == "remote"
    config = ConfigControl(token.token, live.change, anywhere=anywhere, tells=live.effective)
    monitor.control(PATH, config)
    monitor.control(
        RETRY_PATH, RetryRequests(token.token, live.retry_orders.ask, anywhere=anywhere)
    )
    monitor.control(LANES_PATH, LaneRequests(token.token, live.lane_orders.ask, anywhere=anywhere))
    breakers = BreakerControl(token.token, live.breakers.force, anywhere=anywhere)
    monitor.control(BREAKER_PATH, breakers)
    pauses = PauseControl(token.token, live.pauses.order, anywhere=anywhere)
    monitor.control(HANDLERS_PATH, pauses)
    log.info("settings can be changed with `ackfloor config set`; the token is in %s", token.path)
    return token


def _worker_command(
    app: str, flags: dict[str, str | int], factory: bool, only: list[str]
) -> list[str]:
    command = [sys.executable, "-m", "ackfloor.worker", app, "--channel-settings"]
    if factory:
        command.append("--factory")
    for name in only:
        command += ["--only", name]
    for name, value in flags.items():
        command += ["--flag", f"{name}={value}"]
    return command
