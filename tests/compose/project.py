"""One project of docker-compose, of either version, that leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import uuid
from pathlib import Path
from typing import Any

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


def _ask(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


class Project:
    """The mesh of ``docker-compose.yml``, with the wheel of ``dist``."""

    def __init__(self, compose: list[str]) -> None:
        self.name = f"pyserve-{uuid.uuid4().hex[:8]}"
        self._compose = compose
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "20")

    def compose(self, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str:
        """Run a command of compose; return what it prints."""
        files = ["-f", "docker-compose.yml", "-f", "docker-compose.wheel.yml"]
        command = [*self._compose, "-p", self.name, *files, *arguments]
        environment = {**os.environ, "MESH_PORT": str(self.port)}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
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

    def crash(self, container: str) -> None:
        """Kill the program of a container, as no stop by a user."""
        inspect = ["docker", "inspect", "--format", "{{.State.Pid}}", container]
        found = subprocess.run(inspect, capture_output=True, text=True, check=True)
        os.kill(int(found.stdout), 9)
