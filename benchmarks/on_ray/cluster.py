"""A cluster of one node, and one of both sides at a time in it: ``python -m`` this.

Reads orders, lines of JSON, from standard input: ``{"deploy": SIDE}``, ``{"drive": CALLS,
"at_once": N}`` and ``{"end": true}``, and answers each with a line. Ends with its input. All that
serves, the cluster among it, is below this process. Each side has a driver of its own: pyserve and
Ray Serve both declare the messages of Ray Serve's probes, which a process can do once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import grpc

import pyserve
from benchmarks.on_ray import apps
from services.echo import echo_pb2, echo_pb2_grpc

# Declared, not there: both sides ask for a processor for each replica.
_CPUS = 16
_FIRST_ANSWER_WITHIN_S = 120.0
_DRIVEN_WITHIN_S = 300.0
_ENDED_WITHIN_S = 60.0
_LOOK_S = 0.1
_GRPC_PORT = 19_000


class Side(Protocol):
    """One of two ways to serve the same application."""

    def deploy(self) -> str:
        """Deploy it from nothing; return where it takes gRPC."""

    def drive(self, calls: int, at_once: int) -> dict[str, float]:
        """Have one deployment call the other one."""

    def end(self) -> None:
        """Leave nothing of it."""


class Ours:
    """pyserve, with a mesh of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._handle: Any = None

    def deploy(self) -> str:
        """See ``Side``."""
        launcher = {"name": "ray", "address": self._address}
        pyserve.start(address="127.0.0.1:0", launcher=launcher)
        for name, application in apps.of_pyserve().items():
            self._handle = pyserve.run(application, name=name, route_prefix=f"/{name}")
        return str(pyserve.status().addresses[0])

    def drive(self, calls: int, at_once: int) -> dict[str, float]:
        """See ``Side``."""
        response = self._handle.drive.remote(calls, at_once)
        return dict(response.result(timeout_s=_DRIVEN_WITHIN_S))

    def end(self) -> None:
        """See ``Side``."""
        pyserve.shutdown(grace_s=1.0)


class Theirs:
    """Ray Serve; the environment of the cluster has its switches."""

    def __init__(self, address: str) -> None:
        import ray

        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        # With its switches a handle works in one loop only, which has to go on between calls.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._handle: Any = None

    def deploy(self) -> str:
        """See ``Side``."""
        from ray import serve
        from ray.serve.config import gRPCOptions

        functions = ["services.echo.echo_pb2_grpc.add_EchoServicer_to_server"]
        serve.start(
            http_options={"host": "127.0.0.1", "port": _GRPC_PORT + 1},
            grpc_options=gRPCOptions(port=_GRPC_PORT, grpc_servicer_functions=functions),
        )
        for name, application in apps.of_ray_serve().items():
            self._handle = serve.run(application, name=name, route_prefix=f"/{name}")
        return f"127.0.0.1:{_GRPC_PORT}"

    def drive(self, calls: int, at_once: int) -> dict[str, float]:
        """See ``Side``."""

        async def driven() -> Any:
            return await self._handle.drive.remote(calls, at_once)

        driving = asyncio.run_coroutine_threadsafe(driven(), self._loop)
        return dict(driving.result(_DRIVEN_WITHIN_S))

    def end(self) -> None:
        """See ``Side``."""
        import ray
        from ray import serve

        shut_down: Any = serve.shutdown  # It has no types.
        shut_down()
        # It waits for its controller for 30 s, then kills it; the next one would find it yet.
        deadline_s = time.monotonic() + _ENDED_WITHIN_S
        while left := _names_in("serve"):
            assert time.monotonic() < deadline_s, f"Ray Serve does not end: {left}"
            for name in left:
                with contextlib.suppress(ValueError):  # It has ended meanwhile.
                    ray.kill(ray.get_actor(name, namespace="serve"))
            time.sleep(_LOOK_S)


def _names_in(namespace: str) -> list[str]:
    """Return the names of the actors there."""
    from ray.util import list_named_actors

    found = list_named_actors(all_namespaces=True)
    return [each["name"] for each in found if each["namespace"] == namespace]


_SIDES: Mapping[str, Callable[[str], Side]] = {"pyserve": Ours, "Ray Serve": Theirs}


def main() -> None:
    """Carry out orders until none is left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=list(_SIDES), help="be its driver")
    parser.add_argument("--address", help="of the cluster")
    options = parser.parse_args()
    if options.side is not None:
        _drive(_SIDES[options.side](options.address))
        return
    from ray.cluster_utils import Cluster

    head = {"num_cpus": _CPUS, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    _say({"ready": True})
    driver: subprocess.Popen[str] | None = None
    for line in sys.stdin:
        order = json.loads(line)
        if "deploy" in order:
            driver = _driver(order["deploy"], cluster.address)
        assert driver is not None, "something is deployed"
        _say(_answer(driver, line))
        if "end" in order:
            driver.wait(timeout=_ENDED_WITHIN_S)
    shut_down: Any = cluster.shutdown  # It has no types.
    shut_down()


def _driver(side: str, address: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.on_ray.cluster", "--side", side, "--address", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _answer(driver: subprocess.Popen[str], order: str) -> object:
    assert driver.stdin is not None
    assert driver.stdout is not None
    driver.stdin.write(order)
    driver.stdin.flush()
    for line in driver.stdout:
        if line.startswith("{"):
            return json.loads(line)
        sys.stderr.write(line)
    raise SystemExit("the driver has ended; its output above says why")


def _drive(side: Side) -> None:
    """Carry out the orders on one side."""
    for line in sys.stdin:
        order = json.loads(line)
        if "deploy" in order:
            _say(_deployed(side))
        elif "drive" in order:
            _say(side.drive(order["drive"], order["at_once"]))
        else:
            side.end()
            _say({"ended": True})
            return


def _deployed(side: Side) -> dict[str, object]:
    before_s = time.perf_counter()
    address = side.deploy()
    with grpc.insecure_channel(address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        stub.Echo(
            echo_pb2.EchoRequest(payload=b"first"),
            timeout=_FIRST_ANSWER_WITHIN_S,
            wait_for_ready=True,
            metadata=(("application", "echo"),),
        )
    return {"address": address, "first_answer_s": time.perf_counter() - before_s}


def _say(answer: object) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
