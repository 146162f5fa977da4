"""Pods that the cluster ends: the mesh reports its reason within ten seconds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyserve.control.state.mesh import Replica
from tests.mesh.launchers.world import Engine, World, standing
from tests.mesh.on_kubernetes.cluster import Cluster
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SAID_WITHIN_S = 10.0
GPU = "nvidia.com/gpu"
SERVED_WITHIN_S = 60.0
# A node that is lost is known to be by its streams' silence, and given up ten seconds later.
LOST_WITHIN_S = 45.0


def message(world: World) -> str:
    (application,) = world.controller.status().applications
    return application.deployments[0].message


async def serving(world: World, count: int = 1) -> list[Replica]:
    await eventually(lambda: count == len(world.serving()), SERVED_WITHIN_S)
    return world.serving()


async def says(world: World, text: str) -> None:
    await eventually(lambda: text in message(world), SAID_WITHIN_S)


def pod_of(cluster: Cluster, namespace: str, replica: Replica) -> dict[str, Any]:
    pods: list[dict[str, Any]] = [
        each
        for each in cluster.get("pods", "-n", namespace)
        if each["metadata"]["annotations"]["pyserve/replica"] == replica.id
    ]
    [pod] = pods
    return pod


async def replaced(world: World, lost: Replica, within_s: float = SAID_WITHIN_S) -> str:
    """Wait for the end of a replica and for another one; return how it has ended."""
    await eventually(lambda: lost.id not in world.controller.state.replicas, within_s)
    await serving(world)
    return world.ended()


async def test_replicas_are_pods_with_the_node_and_zone_of_the_cluster(
    world: World, cluster: Cluster, namespace: str
) -> None:
    replicas = await world.serve("plain", 2)

    nodes = {each["metadata"]["name"]: each for each in cluster.get("nodes")}
    for replica in replicas:
        pod = pod_of(cluster, namespace, replica)
        assert pod["spec"]["nodeName"] == replica.place.node
        label = nodes[replica.place.node]["metadata"]["labels"]["topology.kubernetes.io/zone"]
        assert label == replica.place.zone
    assert 2 == len({each.place.node for each in replicas}), "they are spread"


async def test_what_it_writes_is_seen(world: World) -> None:
    await world.serve("speaking")

    await eventually(lambda: "my last words" in "\n".join(world.lines), SAID_WITHIN_S)


async def test_a_node_that_nobody_has_is_told(world: World) -> None:
    world.deploy("plain", 1, resources={"num_cpus": 4000})

    await says(world, "waits for a node: Unschedulable: 0/")
    assert "Insufficient cpu" in message(world)


@contextlib.contextmanager
def one_gpu(cluster: Cluster, node: str) -> Iterator[None]:
    """Have a node say that it has a GPU, as the plug-in of a vendor does."""

    def tell(count: str | None) -> None:
        amounts = {GPU: count}
        status = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
        cluster.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", status)

    tell("1")
    try:
        yield
    finally:
        tell(None)


@pytest.mark.parity("G-11")
async def test_a_gpu_is_asked_for_by_its_resource_and_the_second_one_waits(
    world: World, cluster: Cluster, namespace: str
) -> None:
    node = cluster.get("nodes")[-1]["metadata"]["name"]
    with one_gpu(cluster, node):
        world.deploy("plain", 2, resources={"num_gpus": 1})

        (replica,) = await serving(world)
        await says(world, f"Insufficient {GPU}")
        assert node == replica.place.node
        [container] = pod_of(cluster, namespace, replica)["spec"]["containers"]
        assert "1" == container["resources"]["limits"][GPU]


async def test_an_image_that_cannot_be_pulled_is_told_and_the_old_version_serves(
    world: World,
) -> None:
    (before,) = await world.serve("plain")
    missing = {"name": "replica", "image": "nowhere.example/missing:1"}
    world.deploy("plain", 1, pod_template={"spec": {"containers": [missing]}})

    await says(world, "its image nowhere.example/missing:1: ")
    assert [before] == world.serving()


async def test_a_name_that_is_no_image_fails_the_version(world: World) -> None:
    wrong = {"name": "replica", "image": "Not An Image"}
    world.deploy(
        "plain",
        1,
        max_constructor_retry_count=1,
        pod_template={"spec": {"containers": [wrong]}},
    )

    await says(world, "InvalidImageName")


async def test_a_quota_is_told_in_the_words_of_the_cluster(
    world: World, cluster: Cluster, namespace: str
) -> None:
    cluster.kubectl("create", "quota", "small", "--hard=pods=0", "-n", namespace)
    quota = ("quota", "small", "-n", namespace)
    await eventually(lambda: "hard" in cluster.get(*quota)["status"], SAID_WITHIN_S)

    world.deploy("plain", 1, max_constructor_retry_count=1)

    await says(world, "exceeded quota: small")


async def test_a_template_with_a_field_that_there_is_not_is_refused(world: World) -> None:
    template = {"spec": {"tolerations": [{"colour": 1}]}}
    world.deploy("plain", 1, max_constructor_retry_count=1, pod_template=template)

    await says(world, 'unknown field "spec.tolerations[0].colour"')


async def test_a_deleted_pod_finishes_and_is_replaced(
    world: World, cluster: Cluster, namespace: str
) -> None:
    (replica,) = await world.serve("plain")
    name = pod_of(cluster, namespace, replica)["metadata"]["name"]

    cluster.kubectl("delete", "pod", name, "-n", namespace, "--wait=false")

    await replaced(world, replica)


async def test_an_eviction_is_told(world: World, cluster: Cluster, namespace: str) -> None:
    (replica,) = await world.serve("lingering")
    name = pod_of(cluster, namespace, replica)["metadata"]["name"]
    eviction = (
        f'{{"apiVersion": "policy/v1", "kind": "Eviction", '
        f'"metadata": {{"name": "{name}", "namespace": "{namespace}"}}}}'
    )

    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", text=eviction)

    await eventually(lambda: "was evicted on request" in world.ended(), SAID_WITHIN_S + 30)


async def test_a_container_that_is_killed_is_told_and_replaced(
    world: World, cluster: Cluster, namespace: str
) -> None:
    (replica,) = await world.serve("speaking")
    await eventually(lambda: "my last words" in "\n".join(world.lines), SAID_WITHIN_S)
    name = pod_of(cluster, namespace, replica)["metadata"]["name"]
    pids = cluster.use_tool("pids", name, "-n", namespace).split()

    for pid in pids:
        os.kill(int(pid), signal.SIGKILL)
    said = await replaced(world, replica)

    assert "was killed by SIGKILL" in said
    assert "my last words" in world.last_lines(replica)


async def test_a_container_without_memory_is_told(world: World) -> None:
    world.deploy("greedy", 1, resources={"memory": 200e6}, max_constructor_retry_count=1)

    await eventually(lambda: "OOMKilled" in message(world), SERVED_WITHIN_S)


async def test_a_pod_of_higher_priority_preempts_and_it_is_told(
    world: World, cluster: Cluster, namespace: str
) -> None:
    """Both ask for more than half of what a node has; only one node takes them."""
    node = cluster.get("nodes")[0]
    name, cpus = node["metadata"]["name"], node["status"]["allocatable"]["cpu"]
    millicpus = int(cpus.removesuffix("m")) if cpus.endswith("m") else int(cpus) * 1000
    wanted = {
        "num_cpus": millicpus * 0.6 / 1000,
        "label_selector": {"kubernetes.io/hostname": name},
    }
    world.deploy("plain", 1, resources=wanted)
    await serving(world)
    priority = f"{namespace}-high"
    cluster.kubectl("create", "priorityclass", priority, "--value=1000")
    try:
        other = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "urgent", "namespace": namespace},
            "spec": {
                "priorityClassName": priority,
                "nodeSelector": {"kubernetes.io/hostname": name},
                "containers": [
                    {
                        "name": "urgent",
                        "image": cluster.image,
                        "command": ["sleep", "600"],
                        "resources": {"requests": {"cpu": f"{int(millicpus * 0.6)}m"}},
                    }
                ],
            },
        }
        cluster.kubectl("apply", "-f", "-", text=json.dumps(other))
        await eventually(
            lambda: "was preempted by a pod of higher priority" in world.ended(), SAID_WITHIN_S + 30
        )
        await says(world, "waits for a node: Unschedulable")
    finally:
        cluster.kubectl("delete", "priorityclass", priority)


async def test_one_on_each_node_leaves_the_third_waiting(world: World, cluster: Cluster) -> None:
    count = len(cluster.get("nodes"))
    world.deploy("plain", count + 1, max_replicas_per_node=1)

    replicas = await serving(world, count)
    await says(world, "anti-affinity")
    assert count == len({each.place.node for each in replicas})


async def test_a_controller_that_is_gone_for_a_while_finds_its_pods(
    cluster: Cluster, namespace: str
) -> None:
    options = {"namespace": namespace, "image": cluster.image}
    engine = Engine("kubernetes", True, options=options, host=cluster.own_address())
    async with standing(engine) as world:
        before = {each.id for each in await world.serve("plain", 2)}
        names = {each["metadata"]["name"] for each in cluster.get("pods", "-n", namespace)}

        await world.lose_controller()
        await world.begin()
        await serving(world, 2)

        assert before == {each.id for each in world.serving()}
        assert names == {each["metadata"]["name"] for each in cluster.get("pods", "-n", namespace)}


async def test_a_lost_node_is_told_and_its_replica_is_replaced(
    world: World, cluster: Cluster, namespace: str
) -> None:
    """Its processes go on, and nobody reaches them; they end when it is back."""
    (lost,) = await world.serve("plain")
    node = lost.place.node.removeprefix("node-")
    begun = time.monotonic()
    await asyncio.to_thread(cluster.use_tool, "cut", node)
    try:
        said = await replaced(world, lost, LOST_WITHIN_S)
        print(f"replaced after {time.monotonic() - begun:.1f} s: {said}")
        assert lost.place.node in said
        (replica,) = world.serving()
        assert lost.place.node != replica.place.node
    finally:
        await asyncio.to_thread(cluster.use_tool, "mend", node)
    ready = f"node/{lost.place.node}"
    await asyncio.to_thread(
        cluster.kubectl, "wait", "--for=condition=Ready", ready, "--timeout=55s"
    )
    assert [replica] == world.serving()


async def test_nothing_is_left_after_the_end(
    world: World, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    await world.serve("plain", 2)

    await world.controller.close()

    assert [] == cluster.get("pods", "-n", namespace)
    assert [] == [each["metadata"]["name"] for each in cluster.get("secrets", "-n", namespace)]
