"""What every test may use: the run's broker (`bootstrap_servers`)."""

from __future__ import annotations

pytest_plugins = ["tests.kafka_broker"]
