"""What stands in the files of docker-compose, without an engine."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pyserve.api.graph import pack
from pyserve.cli.commands import commands
from pyserve.cli.target import load_application
from pyserve.config import read_settings
from pyserve.config.telemetry import DEFAULT_METRICS_PORT
from pyserve.types import ApplicationName
from tests.compose.project import ROOT
from tests.support.prometheus import promtool, why_not

# Compose 1.29 refuses these, 2 takes them.
_TOO_NEW = {"name", "include", "configs"}


def content(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


SERVICES: dict[str, Any] = content("docker-compose.yml")["services"]
# What is of pyserve: those of the mesh, and what makes the key of those who look at it.
OURS = {name: each for name, each in SERVICES.items() if each["image"] == "pyserve-mesh"}
ROLES = {name: each for name, each in OURS.items() if name != "key"}
OBSERVERS = {name: each for name, each in SERVICES.items() if name not in OURS}


@pytest.mark.parametrize("name", ["docker-compose.yml", "deploy/docker/docker-compose.wheel.yml"])
def test_both_versions_of_compose_take_the_file(name: str) -> None:
    found = content(name)
    assert not _TOO_NEW & found.keys()
    assert OURS.keys() == found["services"].keys() & OURS.keys()
    assert found["services"].keys() <= SERVICES.keys()


@pytest.mark.parametrize("service", OURS)
def test_each_command_is_one_of_pyserve(service: str) -> None:
    command, *arguments = shlex.split(SERVICES[service]["command"])
    shown = CliRunner().invoke(commands, [command, "--help"])
    assert 0 == shown.exit_code, shown.output
    for option in (each for each in arguments if each.startswith("--")):
        assert option in shown.output


@pytest.mark.parametrize(
    "service", [name for name, each in ROLES.items() if each["command"].startswith("replica")]
)
def test_each_replica_is_one_of_its_application(service: str) -> None:
    _, target, *arguments = shlex.split(SERVICES[service]["command"])
    packed = pack(load_application(target, {}), ApplicationName("any"))
    name = arguments[arguments.index("--deployment") + 1]
    assert name in {each.name for each in packed.deployments}


def test_every_container_is_bounded_and_what_is_published_is_for_this_machine() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"], name
        assert ["ALL"] == service["cap_drop"], name
        assert service["deploy"]["resources"]["limits"]["memory"], name
        assert ("no" if name == "key" else "unless-stopped") == service["restart"], name
    published = {name: each["ports"] for name, each in SERVICES.items() if "ports" in each}
    assert {"ingress", "prometheus", "jaeger"} == published.keys()
    assert all(each.startswith("127.0.0.1:") for ports in published.values() for each in ports)


@pytest.mark.parametrize("name", ["deploy/docker/Dockerfile", "deploy/docker/Dockerfile.wheel"])
def test_images_run_without_root_and_need_no_new_builder(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert "USER 10001:10001" in lines
    assert not [line for line in lines if line.startswith("# syntax=") or "--mount" in line]


def test_observers_are_there_when_they_are_asked_for() -> None:
    assert {"prometheus", "collector", "jaeger"} == OBSERVERS.keys()
    assert all(["observe"] == each["profiles"] for each in OBSERVERS.values())
    for each in OBSERVERS.values():
        # A tag that moves would be another program tomorrow.
        assert re.fullmatch(r"\S+/\S+:v?\d+\.\d+\.\d+", each["image"])
        for volume in each.get("volumes", ()):
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (ROOT / source).is_file(), source


def test_the_stepwise_models_are_there_when_they_are_asked_for() -> None:
    asked = {name for name, each in ROLES.items() if "profiles" in each}
    assert {"letters", "denoise", "voice", "beams", "passthrough"} == asked
    for name in asked:
        assert ["stepwise"] == SERVICES[name]["profiles"]
        packed = pack(load_application(f"services.{name}.service:app", {}), ApplicationName(name))
        # Their replicas are processes that others start, so that the file sets these variables.
        for deployment in packed.deployments:
            wanted = deployment.options.env_vars.items()
            assert wanted <= SERVICES[name]["environment"].items()


def test_services_and_observers_find_each_other() -> None:
    collector = content("services/observe/collector.yml")
    protocols = collector["receivers"]["otlp"]["protocols"]
    place = f"http://collector:{_port(protocols['grpc'])}"
    for name, role in ROLES.items():
        assert place == role["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"], name

    (reader,) = collector["service"]["telemetry"]["metrics"]["readers"]
    shown = {
        _port(collector["exporters"]["prometheus"]),
        reader["pull"]["exporter"]["prometheus"]["port"],
    }
    scraped = content("services/observe/prometheus.yml")["scrape_configs"]
    targets = [
        target
        for job in scraped
        for each in job.get("static_configs", ())
        for target in each["targets"]
    ]
    assert {f"collector:{port}" for port in shown} == {
        each for each in targets if each.startswith("collector:")
    }
    assert "jaeger:4317" == collector["exporters"]["otlp/jaeger"]["endpoint"]


def test_every_part_of_the_collector_is_in_a_pipeline_and_memory_is_looked_at_first() -> None:
    collector = content("services/observe/collector.yml")
    pipelines = collector["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert collector[kind].keys() == {name for each in pipelines for name in each[kind]}
    assert {"memory_limiter"} == {each["processors"][0] for each in pipelines}


def test_prometheus_finds_the_mesh_and_has_a_key_that_looks_and_no_token() -> None:
    (job,) = [
        each
        for each in content("services/observe/prometheus.yml")["scrape_configs"]
        if each["job_name"] == "pyserve"
    ]
    (discovery,) = job["http_sd_configs"]
    assert f"http://ingress:{DEFAULT_METRICS_PORT}/-/targets" == discovery["url"]
    [key] = {each["authorization"]["credentials_file"] for each in (job, discovery)}
    # The default, which some versions leave out where they ask for targets (seen with 2.42).
    assert {"Bearer"} == {each["authorization"]["type"] for each in (job, discovery)}
    prometheus, maker = OBSERVERS["prometheus"], SERVICES["key"]
    assert f"key:{Path(key).parent}:ro" in prometheus["volumes"]
    assert {"key": {"condition": "service_completed_successfully"}} == prometheus["depends_on"]
    assert f"viewing-key --output {key}" == maker["command"]
    assert f"key:{Path(key).parent}" in maker["volumes"]
    # The key is for its owner only.
    assert f"USER {prometheus['user']}" in (ROOT / "deploy/docker/Dockerfile").read_text(
        encoding="utf-8"
    )
    # The volume of the token makes a member of the mesh of each container that has it.
    readers = {name for name, each in SERVICES.items() if "mesh" in volumes_of(each)}
    assert OURS.keys() == readers
    # Off loopback, where Prometheus is from the other containers' point of view.
    assert all("0.0.0.0" == role["environment"]["PYSERVE_BIND_HOST"] for role in ROLES.values())


def volumes_of(service: dict[str, Any]) -> set[str]:
    return {each.partition(":")[0] for each in service.get("volumes", ())}


def test_observers_are_in_the_network_of_the_mesh_only_if_they_reach_its_containers() -> None:
    networks = {name: set(each.get("networks", ["default"])) for name, each in OBSERVERS.items()}
    assert {
        "prometheus": {"default"},
        "collector": {"default", "traces"},
        "jaeger": {"traces"},
    } == (networks)
    assert all("networks" not in role for role in ROLES.values())
    assert "none" == SERVICES["key"]["network_mode"]


def test_the_token_passes_in_plain_text_within_this_machine_and_the_file_says_so() -> None:
    for role in ROLES.values():
        node = read_settings(role["environment"]).node
        assert node.may_carry_token(role["environment"]["PYSERVE_CONTROLLER"])
    assert not any(
        "driver" in (each or {}) for each in content("docker-compose.yml")["networks"].values()
    )


@pytest.mark.external
@pytest.mark.skipif(why_not("promtool") is not None, reason=str(why_not("promtool")))
def test_promtool_takes_the_configuration(tmp_path: Path) -> None:
    for name in ("alerts.yml", "key"):
        (tmp_path / name).write_text((ROOT / "deploy/alerts.yml").read_text(encoding="utf-8"))
    config = (ROOT / "services/observe/prometheus.yml").read_text(encoding="utf-8")
    for folder in ("/etc/prometheus", "/var/lib/pyserve"):
        config = config.replace(folder, str(tmp_path))
    path = tmp_path / "prometheus.yml"
    path.write_text(config)
    assert "SUCCESS" in promtool("check", "config", str(path))


def _port(listener: dict[str, str]) -> int:
    return int(listener["endpoint"].rpartition(":")[2])
