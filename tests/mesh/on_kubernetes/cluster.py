"""A real cluster, as its user speaks with it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.waiting import wait_until

TIMEOUT_S = 60.0
# A look is a program that runs, on a machine that has other things to do.
_INTERVAL_S = 0.25


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers.

    Attributes:
        image: With this tree; its nodes have it.
        other_image: Another name of it.
        tool: What crashes nodes and knows processes of pods; None: there is no such program.
    """

    image: str
    other_image: str
    tool: Path | None

    def kubectl(self, *arguments: str, text: str = "", check: bool = True) -> str:
        """Run kubectl and return what it prints."""
        done = subprocess.run(
            ["kubectl", *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert not check or done.returncode == 0, f"kubectl {arguments}: {done.stderr}"
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """Return an object, or the items of a list."""
        found = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found.get("items", found)

    def use_tool(self, *arguments: str) -> str:
        """Run the program that breaks things; skips the test where there is none."""
        if self.tool is None:
            pytest.skip("no program breaks nodes of this cluster")
        done = subprocess.run(
            [str(self.tool), *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout

    def own_address(self) -> str:
        """Return the address of this machine that pods reach."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((self._server, 443))
            return str(probe.getsockname()[0])

    def addresses(self) -> list[str]:
        """Return those that calls of this machine come from: a Service may put a node's in."""
        nodes = (
            address["address"]
            for node in self.get("nodes")
            for address in node["status"]["addresses"]
            if address["type"] == "InternalIP"
        )
        return [self.own_address(), socket.gethostbyname(self._server), *nodes]

    @property
    def _server(self) -> str:
        """The host of the API server."""
        found = self.kubectl("config", "view", "--minify", "-o", "jsonpath={..server}").strip()
        host = urlsplit(found).hostname
        assert host is not None
        return host

    @contextlib.contextmanager
    def namespace(self) -> Iterator[str]:
        """Have a namespace until the block ends; nothing of it is left."""
        name = f"pyserve-{uuid.uuid4().hex[:8]}"
        self.kubectl("create", "namespace", name)
        try:
            yield name
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false")

    def describe(self, namespace: str) -> str:
        """Return what there is in a namespace, what has happened, and what pods have written."""
        there = self.kubectl("get", "all,events", "-o", "wide", "-n", namespace, check=False)
        names = self.kubectl("get", "pods", "-o", "name", "-n", namespace, check=False).split()
        logs = (
            self.kubectl(
                "logs", "--tail=20", "--all-containers", "-n", namespace, each, check=False
            )
            for each in names
        )
        return "\n".join((there, *logs))

    def eventually(self, condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
        """Wait for something in the cluster."""
        wait_until(condition, timeout_s, interval_s=_INTERVAL_S)


def find_cluster() -> Cluster:
    """Return the cluster to test on; skips where none is."""
    if "TEST_KUBERNETES" not in os.environ:
        pytest.skip("`make kubernetes` runs it")
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl on PATH")
    image = os.environ["TEST_KUBERNETES_IMAGE"]
    tool = os.environ.get("TEST_KUBERNETES_TOOL")
    cluster = Cluster(
        image=image,
        other_image=os.environ.get("TEST_KUBERNETES_OTHER_IMAGE", image),
        tool=None if tool is None else Path(tool),
    )
    try:
        cluster.kubectl("get", "--raw", "/readyz")
    except (AssertionError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no cluster answers: {error}")
    return cluster
