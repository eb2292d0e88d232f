"""What every test may use: the run's broker (`bootstrap_servers`)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine must not fail a property: how long an example takes is no property of ours.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

pytest_plugins = ["tests.kafka_broker"]
