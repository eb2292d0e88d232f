"""What deploy/ says is true: settings, commands, probes, metrics and times are those of the code.

No image was built and no cluster was asked here: that is for whoever deploys. promtool and
systemd-analyze check their files where they are installed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from ackfloor.cli.main import cli
from ackfloor.core.values.durations import parse_duration
from ackfloor.errors import NotReady, TopicsMissing
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.settings import Settings, names
from ackfloor_monitoring.metrics.metric_definitions import METRICS
from ackfloor_monitoring.metrics.watch_definitions import REPORT_METRICS
from tests.structure.pages import check_options
from tests.structure.sources import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
FILES = sorted(DEPLOY.iterdir())
PAGE = REPOSITORY / "docs" / "guide" / "deployment.md"
#: Seconds beyond `shutdown_timeout` for parks, commits and leaving the group.
AFTERWARDS_S = 10.0


@cache
def kinds() -> dict[str, Any]:
    """The objects of kubernetes.yaml by their kind."""
    loaded = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {each["kind"]: each for each in loaded}


@cache
def services() -> dict[str, Any]:
    """The services of the compose file."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def pod() -> dict[str, Any]:
    """What a pod of the StatefulSet is made of."""
    found: dict[str, Any] = kinds()["StatefulSet"]["spec"]["template"]["spec"]
    return found


def container() -> dict[str, Any]:
    """The pod's one container."""
    [found] = pod()["containers"]
    return dict(found)


def unit(name: str = "ackfloor.service") -> dict[str, list[str]]:
    """The keys of a systemd unit, each with its values."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / name).read_text().splitlines():
        key, is_key, value = line.partition("=")
        if is_key and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def settings_files() -> dict[str, str]:
    """Each settings file that is deployed, as text."""
    return {
        "deploy/ackfloor.toml": (DEPLOY / "ackfloor.toml").read_text(),
        "kubernetes.yaml": kinds()["ConfigMap"]["data"]["ackfloor.toml"],
    }


def test_every_variable_is_a_setting_or_the_twin_of_a_flag() -> None:
    """In each file and on the page: no name is made up."""
    twins = set(_twins(typer.main.get_command(cli)))
    for file in (*FILES, PAGE):
        variables = set(re.findall(r"ACKFLOOR_[A-Z0-9_]+", file.read_text()))
        for variable in variables - twins - set(names.OTHER_VARIABLES) - set(names.ALIASES):
            section, _, rest = variable.removeprefix("ACKFLOOR_").lower().partition("__")
            path = (section, rest.removesuffix("_file"))
            assert names.find(path) or names.find((section, rest)), f"{file.name}: {variable}"


def _twins(command: Any) -> list[str]:
    found = [p.envvar for p in command.params if isinstance(p.envvar, str)]
    for inner in getattr(command, "commands", {}).values():
        found += _twins(inner)
    return found


@pytest.mark.parametrize("name", settings_files())
def test_settings_are_accepted(name: str, tmp_path: Path) -> None:
    """Each deployed file loads, keeps names in the group, and outlives a restart."""
    file = tmp_path / "ackfloor.toml"
    file.write_text(settings_files()[name])
    settings = Settings.load(config=file, environment={})
    assert settings.app.static_membership
    session_s = settings.kafka.librdkafka("consumer")["session.timeout.ms"] / 1000
    assert session_s > settings.app.shutdown_timeout_s


def test_every_way_to_stop_leaves_time_to_drain() -> None:
    """A kill before `shutdown_timeout` is over would make open records come again."""
    for text in settings_files().values():
        told = tomllib.loads(text)["app"]["shutdown_timeout"]
        least_s = parse_duration(told, field="shutdown_timeout") + AFTERWARDS_S
        assert pod()["terminationGracePeriodSeconds"] >= least_s
        for name in ("worker-a", "worker-b"):
            grace = services()[name]["stop_grace_period"]
            assert parse_duration(grace, field=name) >= least_s
        assert float(unit()["TimeoutStopSec"][0]) >= least_s


def test_commands_exist() -> None:
    """Each program that is started is a command of ours, with options that it has."""
    [entry] = [json_list(told) for name, told in dockerfile() if name == "ENTRYPOINT"]
    [default] = [json_list(told) for name, told in dockerfile() if name == "CMD"]
    [started] = unit()["ExecStart"]
    assert entry == ["ackfloor"]
    assert shlex.split(started)[0].endswith("/ackfloor")
    for words in (
        default,
        services()["worker-a"]["command"],
        container()["args"],
        shlex.split(started)[1:],
    ):
        assert words[0] == "run"
        check_options(words)


def nightly() -> dict[str, list[list[str]]]:
    """The commands of the failure history, in order: of systemd and of Kubernetes."""
    started = [shlex.split(each) for each in unit("ackfloor-failures.service")["ExecStart"]]
    assert all(words[0] == "/opt/billing/.venv/bin/ackfloor" for words in started)
    return {
        "systemd": [words[1:] for words in started],
        "kubernetes": [each["args"] for each in night_pod()["initContainers"]],
    }


def night_pod() -> dict[str, Any]:
    """What a pod of the CronJob is made of."""
    [job] = [each for each in night_objects() if each["kind"] == "CronJob"]
    found: dict[str, Any] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return found


def night_objects() -> list[dict[str, Any]]:
    """The objects of failures-cronjob.yaml."""
    return list(yaml.safe_load_all((DEPLOY / "failures-cronjob.yaml").read_text()))


@pytest.mark.parametrize("where", ["systemd", "kubernetes"])
def test_each_night_the_history_is_stored_maintained_and_reported(where: str) -> None:
    """With options that exist; and what is kept is the same for ingest and upkeep."""
    found = nightly()[where]
    assert [words[:2] for words in found] == [
        ["spark", "ingest"], ["spark", "maintain"], ["spark", "report"],
    ]  # fmt: skip
    for words in found:
        check_options(words)
    ingest, upkeep, report = found
    assert "--once" in ingest
    kept = [words[words.index("--keep") + 1] for words in (ingest, upkeep)]
    assert kept[0] == kept[1]
    assert parse_duration(kept[0], field="--keep") > 0
    assert any(word.startswith("--metrics-file") for word in report)


def test_the_metrics_of_the_night_reach_prometheus() -> None:
    """The file has the ending that the node exporter reads, in a folder that systemd makes; the
    last container pushes what the report has written, to the volume of both."""
    *_, report = nightly()["systemd"]
    file = Path(report[report.index("--metrics-file") + 1])
    folders = unit("ackfloor-failures.service")["StateDirectory"][0].split()
    assert file.suffix == ".prom"
    assert str(file.parent) in {f"/var/lib/{folder}" for folder in folders}
    assert f"--collector.textfile.directory={file.parent}" in PAGE.read_text()
    *_, report = nightly()["kubernetes"]
    [written] = [each.partition("=")[2] for each in report if each.startswith("--metrics-file")]
    [push] = night_pod()["containers"]
    assert push["args"][push["args"].index("--upload-file") + 1] == written
    mounts = [each["volumeMounts"] for each in (push, night_pod()["initContainers"][-1])]
    pushed, made = ({m["mountPath"]: m["name"] for m in each} for each in mounts)
    assert pushed[str(Path(written).parent)] == made[str(Path(written).parent)]
    [alerted] = re.findall(r"time\(\) - (\w+)", PAGE.read_text())
    assert alerted in {spec.name for spec in REPORT_METRICS}


def test_one_night_at_a_time_and_its_objects_belong_together() -> None:
    """A second ingest would end the first; volumes and the settings are those that are there."""
    claim, job = night_objects()
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    pod_of_night = night_pod()
    volumes = {volume["name"]: volume for volume in pod_of_night["volumes"]}
    assert volumes["settings"]["configMap"]["name"] == kinds()["ConfigMap"]["metadata"]["name"]
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    for each in (*pod_of_night["initContainers"], *pod_of_night["containers"]):
        assert {mount["name"] for mount in each["volumeMounts"]} <= set(volumes)
        assert each["securityContext"]["readOnlyRootFilesystem"]
    service = unit("ackfloor-failures.service")
    assert service["Type"] == ["oneshot"]
    timer = unit("ackfloor-failures.timer")
    assert timer["WantedBy"] == ["timers.target"]
    assert "Unit" not in timer, "it starts the service of its name"


def json_list(told: str) -> list[str]:
    """An instruction's arguments, which must be a list: through a shell no signal arrives."""
    assert told.startswith("["), told
    found: list[str] = yaml.safe_load(told)
    return found


def test_probes_ask_for_pages_that_are_served() -> None:
    """Liveness asks `/livez`, readiness `/readyz`, at the port that is listened on."""
    server = REPOSITORY / "monitoring" / "ackfloor_monitoring" / "metrics" / "run_metrics.py"
    served = set(re.findall(r'"(/\w+)": ', server.read_text()))
    environment = {each["name"]: each["value"] for each in container()["env"]}
    port = environment["ACKFLOOR_RUN_LISTEN"].rpartition(":")[2]
    assert {each["name"]: str(each["containerPort"]) for each in container()["ports"]} == {
        "metrics": port
    }
    for probe, page in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        asked = container()[probe]["httpGet"]
        assert asked == {"path": page, "port": "metrics"}
        assert page in served
    assert "/livez" in services()["worker-a"]["healthcheck"]["test"][-1]
    assert f":{port}" in dict(dockerfile())["ENV"]
    assert dict(dockerfile())["EXPOSE"] == port


def test_what_scales_asks_for_a_metric_that_exists() -> None:
    """And for one of its labels; it is never scaled to nothing, as nobody would tell the lag."""
    scaled = yaml.safe_load((DEPLOY / "keda.yaml").read_text())["spec"]
    [trigger] = scaled["triggers"]
    query = trigger["metadata"]["query"]
    [(name, label)] = re.findall(r"(ackfloor_\w+)\{(\w+)=", query)
    [metric] = [spec for spec in METRICS if spec.name == name]
    assert label in metric.labels
    assert scaled["minReplicaCount"] >= 1
    target = kinds()[scaled["scaleTargetRef"]["kind"]]
    assert target["metadata"]["name"] == scaled["scaleTargetRef"]["name"]


def test_the_objects_belong_together() -> None:
    """Labels, names and volumes refer to what is there; the pod may do no more than it needs."""
    stateful = kinds()["StatefulSet"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels
    assert kinds()["Service"]["spec"]["selector"] == labels
    assert kinds()["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert stateful["serviceName"] == kinds()["Service"]["metadata"]["name"]
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert {mount["name"] for mount in container()["volumeMounts"]} == set(volumes)
    assert volumes["settings"]["configMap"]["name"] == kinds()["ConfigMap"]["metadata"]["name"]
    assert pod()["securityContext"]["runAsNonRoot"]
    assert container()["securityContext"]["readOnlyRootFilesystem"]


def test_the_image_holds_what_it_needs_and_runs_as_nobody() -> None:
    """Pinned bases, hashed packages, sources that exist, and no root at the end."""
    instructions = dockerfile()
    for name, told in instructions:
        if name == "FROM":
            assert re.match(r"[\w./-]+:\d+\.\d+", told), told
        if name == "COPY" and not told.startswith("--from"):
            *sources, _ = told.split()
            assert [source for source in sources if not (REPOSITORY / source).exists()] == []
            ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
            assert [source for source in sources if f"!{source}" not in ignored] == []
    users = [told for name, told in instructions if name == "USER"]
    assert users[-1] == str(pod()["securityContext"]["runAsUser"])
    installs = [told for name, told in instructions if name == "RUN" and " install " in told]
    assert all("--no-cache-dir" in told for told in installs)
    assert "--require-hashes -r requirements/runtime.txt" in installs[0]
    assert "--no-deps" in installs[1]
    names_seen = [name for name, _ in instructions]
    assert names_seen.index("USER") < names_seen.index("ENTRYPOINT")


def test_the_compose_file_mounts_what_is_there() -> None:
    """Files of the repository, and none that could be written to."""
    for name, service in services().items():
        for volume in service.get("volumes", ()):
            source, _, mode = volume.split(":")
            assert (DEPLOY / source).resolve().exists(), f"{name}: {source}"
            assert mode == "ro"
        for needed in service.get("depends_on", ()):
            assert needed in services()
    build = services()["worker-a"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"


def test_prometheus_reads_its_configuration(tmp_path: Path) -> None:
    """promtool accepts it with the rules where they are here; the targets are the workers."""
    text = (DEPLOY / "prometheus.yml").read_text()
    loaded = yaml.safe_load(text)
    [job] = loaded["scrape_configs"]
    targets = [target.partition(":")[0] for target in job["static_configs"][0]["targets"]]
    assert targets == ["worker-a", "worker-b"]
    [mounted] = [v for v in services()["prometheus"]["volumes"] if "alerts" in v]
    here, there, _ = mounted.split(":")
    rules = (DEPLOY / here).resolve()
    assert list(rules.glob("*.yml"))
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace(there, str(rules)))
    done = subprocess.run(
        ["promtool", "check", "config", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_restarts_what_may_get_well() -> None:
    """Not what was refused: it would be refused again. SIGHUP is what reads settings again."""
    told = unit()
    assert told["Restart"] == ["on-failure"]
    never = set(map(int, told["RestartPreventExitStatus"][0].split()))
    assert never == {Exit.USAGE, Exit.START}
    assert not never & {Exit.KAFKA_UNREACHABLE, Exit.NOT_READY, TopicsMissing.exit_code}
    assert NotReady.exit_code == TopicsMissing.exit_code == Exit.NOT_READY
    assert told["KillMode"] == ["mixed"]
    assert "-HUP" in told["ExecReload"][0]


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say about them."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    units = [file for file in FILES if file.suffix in {".service", ".timer"}]
    files = [tmp_path / file.name for file in units]
    for source, file in zip(units, files, strict=True):
        # The one thing that is not on this machine.
        file.write_text(source.read_text().replace("/opt/billing/.venv/bin/ackfloor", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_page_names_every_file() -> None:
    """docs/guide/deployment.md has a word about each."""
    text = PAGE.read_text()
    assert [file.name for file in FILES if f"deploy/{file.name}" not in text] == []
