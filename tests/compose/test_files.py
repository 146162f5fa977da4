"""What stands in the files of docker-compose, without an engine."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pyserve.api.graph import pack
from pyserve.cli.commands import commands
from pyserve.cli.target import load_application
from pyserve.types import ApplicationName
from tests.compose.project import ROOT

# Compose 1.29 refuses these, 2 takes them.
_TOO_NEW = {"name", "include", "configs"}


def content(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


SERVICES: dict[str, Any] = content("docker-compose.yml")["services"]


@pytest.mark.parametrize("name", ["docker-compose.yml", "docker-compose.wheel.yml"])
def test_both_versions_of_compose_take_the_file(name: str) -> None:
    found = content(name)
    assert not _TOO_NEW & found.keys()
    assert SERVICES.keys() == found["services"].keys()


@pytest.mark.parametrize("service", SERVICES)
def test_each_command_is_one_of_pyserve(service: str) -> None:
    command, *arguments = shlex.split(SERVICES[service]["command"])
    shown = CliRunner().invoke(commands, [command, "--help"])
    assert 0 == shown.exit_code, shown.output
    for option in (each for each in arguments if each.startswith("--")):
        assert option in shown.output


@pytest.mark.parametrize(
    "service", [name for name, each in SERVICES.items() if each["command"].startswith("replica")]
)
def test_each_replica_is_one_of_its_application(service: str) -> None:
    _, target, *arguments = shlex.split(SERVICES[service]["command"])
    packed = pack(load_application(target, {}), ApplicationName("any"))
    name = arguments[arguments.index("--deployment") + 1]
    assert name in {each.name for each in packed.deployments}


def test_every_container_is_bounded_and_only_the_ingress_is_published() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"], name
        assert ["ALL"] == service["cap_drop"], name
        assert service["deploy"]["resources"]["limits"]["memory"], name
        assert "unless-stopped" == service["restart"], name
    published = {name: each["ports"] for name, each in SERVICES.items() if "ports" in each}
    assert {"ingress"} == published.keys()
    assert all(each.startswith("127.0.0.1:") for each in published["ingress"])


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.wheel"])
def test_images_run_without_root_and_need_no_new_builder(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert "USER 10001:10001" in lines
    assert not [line for line in lines if line.startswith("# syntax=") or "--mount" in line]
