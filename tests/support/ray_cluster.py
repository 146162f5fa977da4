"""Clusters of Ray on this machine, made of the processes that real ones have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psutil
import pytest

ZONE = "ray.io/availability-zone"
# A node needs three seconds where nothing else runs. Beside tests that keep every processor busy
# its agents have taken longer than the 30 s after which Ray gives it up, so that it starts again.
_STARTED_WITHIN_S = 120.0
_KILLED_WITHIN_S = 10.0


@contextmanager
def ray_cluster(*others: Mapping[str, Any], port: int | None = None) -> Iterator[Any]:
    """Run a node with two processors in zone "a", and others, until the block ends.

    Skips the test where Ray is not installed.

    Args:
        others: What ``ray.cluster_utils.Cluster.add_node`` takes.
        port: Where the head listens; ``None``: anywhere.
    """
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'pyserve-mesh[ray]'")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "include_dashboard": False, "labels": {ZONE: "a"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster()
        try:
            add_node(cluster, **head, **({} if port is None else {"gcs_server_port": port}))
            for each in others:
                add_node(cluster, **each)
            yield cluster
        finally:
            cluster.shutdown()


def add_node(cluster: Any, **options: Any) -> Any:
    """Add a node and wait until the head knows it; return it.

    Args:
        cluster: From ``ray_cluster``.
        options: What ``ray.cluster_utils.Cluster.add_node`` takes.
    """
    return _tried(partial(cluster.add_node, **options))


def _tried(start: Callable[[], Any]) -> Any:
    this = psutil.Process()
    deadline = time.monotonic() + _STARTED_WITHIN_S
    while True:
        before = set(this.children())
        try:
            return start()
        except Exception:  # Ray has no type for a node that does not start.
            left = set(this.children()) - before
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, _KILLED_WITHIN_S)
            if time.monotonic() >= deadline:
                raise
