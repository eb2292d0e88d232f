"""Patterns on a cluster: what is refused at the start, and what a worker makes of a new topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ackfloor import App, RetryPolicy
from ackfloor.errors import ConfigError, StartError, TopicsMissing
from ackfloor.kafka.topics.cluster_topics import Cluster
from ackfloor.launch import Launch
from ackfloor.settings import Settings, sections_of
from tests.framework.kafka.wire import fresh, until

pytestmark = [pytest.mark.kafka]


class Scene:
    """Topics of one test on the run's broker, and apps whose patterns match them."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.name = fresh("pat")
        self.group = fresh("g")
        self._admin = AdminClient({"bootstrap.servers": servers})

    def make(self, *suffixes: str, partitions: int = 1) -> list[str]:
        """New topics."""
        names = [f"{self.name}-{suffix}" for suffix in suffixes]
        for future in self._admin.create_topics(
            [NewTopic(n, partitions, 1) for n in names]
        ).values():
            future.result(60)
        until(lambda: self.topics() >= set(names))
        return names

    def topics(self) -> set[str]:
        """All topics of this test."""
        found = self._admin.list_topics(timeout=60).topics
        return {name for name in found if name.startswith(self.name)}

    def launch(self, *patterns: str, only: Sequence[str] = (), **options: Any) -> Launch:
        """An app with a handler for each pattern; `@` in it is what its topics begin with."""
        app = App(self.group, kafka={"bootstrap_servers": self.servers}, **options)

        async def handle(_value: bytes) -> None: ...

        for number, pattern in enumerate(patterns):
            name, topic = f"handler{number}", pattern.replace("@", self.name)
            app.handler(topic, name=name, retry=RetryPolicy.fixed("5s"))(handle)
        settings = Settings.from_code(sections_of(app.group, app.options))
        handlers = tuple(spec for spec in app.handlers if not only or spec.name in only)
        return Launch(app, settings, handlers)


@pytest.fixture
def scene(bootstrap_servers: str) -> Scene:
    """A scene on the run's broker."""
    return Scene(bootstrap_servers)


def test_what_matches_gets_its_own_topics_and_is_read(scene: Scene) -> None:
    """As if it were named; only the topology of its worker knows."""
    eu, us = scene.make("eu", "us", partitions=2)
    launch = scene.launch("^@-.*")
    launch.prepare_topics("30s")
    matched = launch.matched()
    assert matched.handlers[0].topics == (eu, us)
    topology = matched.topology()
    tiers = {f"{topic}--{scene.group}--retry-5s" for topic in (eu, us)}
    assert set(topology.routes) == {eu, us, *tiers}
    assert topology.sources == {eu: 2, us: 2}
    assert matched.matches.siblings() == {eu: {eu, us}, us: {eu, us}}
    # Settings that change while it runs do not change its topics.
    assert launch.like(matched).handlers == matched.handlers
    # Our own topics are there now, and match the expression.
    assert launch.matched().handlers == matched.handlers


def test_a_pattern_without_a_topic_is_refused_where_nothing_would_be_read(scene: Scene) -> None:
    """As a topic that does not exist is: a restart may cure it."""
    with pytest.raises(TopicsMissing, match="no topic's whole name matches") as refused:
        scene.launch("^@-.*").prepare_topics("30s")
    assert refused.value.exit_code == 7
    with pytest.raises(TopicsMissing):
        scene.launch("^@-.*").matched()
    [eu] = scene.make("eu")
    scene.launch("@-eu", "^@-.*").prepare_topics("30s")
    matched = scene.launch("@-eu", "^@-.*").matched()
    assert [spec.topics for spec in matched.handlers] == [(eu,), ()]


def test_a_pattern_without_a_topic_is_refused_at_latest(scene: Scene) -> None:
    """Later nobody could tell that its first topics are new."""
    scene.make("eu")
    with pytest.raises(TopicsMissing, match="start='latest' needs one"):
        scene.launch("@-eu", "^@-.*", start="latest").prepare_topics("30s")


def test_a_run_that_would_leave_topics_out_is_refused(scene: Scene) -> None:
    """An overlap names both handlers and the topic; too many name the setting. None is created."""
    eu, _ = scene.make("eu", "us")
    with pytest.raises(ConfigError) as refused:
        scene.launch("^@-.*", "^@-e.").prepare_topics("30s")
    for named in ("handlers.handler0.topics", eu, "'handler1'"):
        assert named in str(refused.value)
    assert refused.value.exit_code == 3
    with pytest.raises(ConfigError, match="may stand for 1 "):
        scene.launch("^@-.*", max_pattern_topics=1).prepare_topics("30s")
    assert len(scene.topics()) == 2


def test_a_handler_that_does_not_run_here_keeps_its_topic(scene: Scene) -> None:
    """`--only` leaves handlers out, not their topics."""
    _, us = scene.make("eu", "us")
    launch = scene.launch("^@-.*", "@-eu", only=["handler0"])
    launch.prepare_topics("30s")
    assert launch.matched().handlers[0].topics == (us,)


def test_a_worker_leaves_out_what_is_new_and_can_not_be_read(scene: Scene) -> None:
    """It goes on with the topics it has; what is new does not take the place of one of them."""
    [first] = scene.make("one")
    launch = scene.launch("^@-.*", "^@-b.*", "@-named", max_pattern_topics=1)
    scene.make("named")
    launch.prepare_topics("30s")
    both, zero = scene.make("both", "a")
    matched = launch.matched()
    assert [spec.topics for spec in matched.handlers] == [(first,), (), (f"{scene.name}-named",)]
    assert set(matched.matches.left_out) == {both, zero}
    # Nothing is made for what nobody reads.
    assert not any(name.startswith((f"{both}--", f"{zero}--")) for name in scene.topics())


def test_the_topics_of_a_new_topic_are_made_by_the_worker_that_finds_it(scene: Scene) -> None:
    """Those that are missing, with the partitions of their source."""
    scene.make("eu")
    launch = scene.launch("^@-.*")
    launch.prepare_topics("30s")
    [us] = scene.make("us", partitions=3)
    topology = launch.matched().topology()
    assert topology.partitions[f"{us}--{scene.group}--dlq"] == 3


def test_a_worker_that_may_create_nothing_waits_for_the_new_topics(scene: Scene) -> None:
    """A topic without retry topics is left out, and named with the command that makes them."""
    eu, _ = scene.make("eu", "us")
    allowed = scene.launch("^@-.*")
    allowed.prepare_topics("30s")
    [asia] = scene.make("asia")
    launch = scene.launch("^@-.*", create_topics=False)
    matched = launch.matched()
    assert eu in matched.matches.all
    assert "ackfloor topics apply" in matched.matches.left_out[asia].fix
    assert f"{asia}--{scene.group}--dlq" in matched.matches.left_out[asia].why
    with pytest.raises(TopicsMissing, match="these topics are missing"):
        launch.prepare_topics("30s")
    allowed.prepare_topics("30s")
    until(lambda: asia in launch.matched().matches.all)


def test_a_worker_whose_creation_fails_goes_on_without_the_topic(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again at the next look; until then the reason is named."""
    scene.make("eu")
    launch = scene.launch("^@-.*")
    launch.prepare_topics("30s")
    [us] = scene.make("us")

    def refuse(*_: object) -> list[str]:
        raise StartError("topic x could not be created: not allowed; grant CREATE on topic x")

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "create", refuse)
        assert "grant CREATE on topic x" in launch.matched().matches.left_out[us].why
    assert us in launch.matched().matches.all
