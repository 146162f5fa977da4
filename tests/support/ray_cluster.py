"""Clusters of Ray on this machine, made of the processes that real ones have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

ZONE = "ray.io/availability-zone"


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
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**head, **({} if port is None else {"gcs_server_port": port})},
    )
    try:
        for each in others:
            cluster.add_node(**each)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()
