"""A worker of ours as in its own process, metrics included, for who measures it from inside."""

from __future__ import annotations

from ackfloor import App
from ackfloor.launch import Launch
from ackfloor.ports import Observer
from ackfloor.runtime.executors.event_loop import EventLoopThread
from ackfloor.runtime.loop.worker_assembly import Worker


def worker_of(app: App, *watching: Observer) -> Worker:
    """The worker of an app that says where its brokers are; its topics are there."""
    launch = Launch.of(app, flags={})
    launch.prepare_topics("30s")
    monitoring = launch.monitoring()
    assert monitoring is not None, "the worker is measured with its metrics on"
    topology = launch.topology()
    return Worker(
        app,
        launch.handlers,
        launch.worker_config(),
        topology,
        launch.outside(EventLoopThread(), "bench", topology),
        [monitoring.worker_monitor(0, app.group), *watching],
    )


def settled_of(worker: Worker, topic: str) -> int:
    """How many records of the topic are settled; it begins at offset 0."""
    read = sum(a.tracker.position for a in worker.engine.assignments.values() if a.topic == topic)
    return read - worker.engine.flow.open_count
