"""What every test may use: the run's broker (`bootstrap_servers`)."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A busy machine must not fail a property: how long an example takes is no property of ours.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# What a shell starts in the background, and all that this starts, is deaf to Ctrl-C: some of what
# is started here must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.kafka_broker"]
