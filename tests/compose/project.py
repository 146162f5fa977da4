"""One project of docker-compose, of either version, that leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
_BUILD_TIMEOUT_S = 900.0
_TIMEOUT_S = 120.0


class NoEngine(Exception):
    """No container engine answers here; the text says why."""


def find_compose() -> list[str]:
    """Return the command of docker-compose.

    Raises:
        NoEngine: There is none, or no engine that it can speak to.
    """
    if shutil.which("docker") is None:
        raise NoEngine("docker is not installed")
    asked = _ask(["docker", "info"])
    if asked.returncode:
        raise NoEngine(f"no engine answers: {asked.stderr.strip().splitlines()[-1:]}")
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is not None and _ask([*command, "version"]).returncode == 0:
            return command
    raise NoEngine("neither `docker compose` nor `docker-compose` is installed")


def _ask(command: list[str], timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens at, all of them different."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [each.getsockname()[1] for each in servers]


class Project:
    """The mesh of ``docker-compose.yml``, with the wheel of ``dist``."""

    def __init__(self, compose: list[str]) -> None:
        self.name = f"pyserve-{uuid.uuid4().hex[:8]}"
        self._compose = compose
        self.port, self.prometheus_port, jaeger_port = _free_ports(3)
        self.command = " ".join(compose)
        self.variables = {
            "MESH_PORT": str(self.port),
            "PROMETHEUS_PORT": str(self.prometheus_port),
            "JAEGER_PORT": str(jaeger_port),
        }

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        # A profile that is not named is not taken down.
        profiles = ("--profile", "observe", "--profile", "stepwise")
        self.compose(*profiles, "down", "--volumes", "--remove-orphans", "--timeout", "20")

    def compose(
        self, *arguments: str, timeout_s: float = _TIMEOUT_S, given: str | None = None
    ) -> str:
        """Run a command of compose, whose input is ``given``; return what it prints."""
        files = ["-f", "docker-compose.yml", "-f", "deploy/docker/docker-compose.wheel.yml"]
        command = [*self._compose, "-p", self.name, *files, *arguments]
        environment = {**os.environ, **self.variables}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            said = f"{done.stdout}\n{done.stderr}"
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
        return done.stdout

    def up(self, *arguments: str) -> None:
        """Build what is not built, and start what does not run."""
        self.compose("up", "-d", "--build", *arguments, timeout_s=_BUILD_TIMEOUT_S)

    def status(self) -> dict[str, Any]:
        """Return what ``pyserve status`` says in the controller's container."""
        said = self.compose("exec", "-T", "controller", "pyserve", "status", "--json")
        found: dict[str, Any] = json.loads(said)
        return found

    def states(self) -> dict[str, str]:
        """Return the state of each application."""
        return {name: each["status"] for name, each in self.status()["applications"].items()}

    def running(self, application: str, deployment: str) -> int:
        """Return how many replicas of a deployment run."""
        known = self.status()["applications"].get(application, {"deployments": {}})
        replicas = known["deployments"].get(deployment, {"replicas": []})["replicas"]
        return sum(each["state"] == "RUNNING" for each in replicas)

    def containers(self, service: str) -> list[str]:
        """Return the ids of a service's containers; names differ between versions of compose."""
        labels = {"project": self.name, "service": service}
        filters = [
            word
            for name, value in labels.items()
            for word in ("--filter", f"label=com.docker.compose.{name}={value}")
        ]
        listed = subprocess.run(
            ["docker", "ps", "-q", *filters], capture_output=True, text=True, check=True
        )
        return listed.stdout.split()

    def has_image(self, service: str) -> bool:
        """Tell whether the image of a service is here, or can be had."""
        services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        image = services[service]["image"]
        return any(
            _ask(["docker", *command, image], _TIMEOUT_S).returncode == 0
            for command in (["image", "inspect"], ["pull", "--quiet"])
        )

    def crash(self, container: str) -> None:
        """Kill the program of a container, as no stop by a user."""
        inspect = ["docker", "inspect", "--format", "{{.State.Pid}}", container]
        found = subprocess.run(inspect, capture_output=True, text=True, check=True)
        os.kill(int(found.stdout), 9)
