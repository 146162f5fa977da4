"""The meaning of a pod's status, by the shapes of the API (core/v1)."""

from __future__ import annotations

from typing import Any

import pytest

from pyserve.launch.on_kubernetes.reading import NodeView, gone, lost, read_node, read_pod
from tests.unit.launch.kubernetes.objects import IMAGE, condition, pod, terminated, waiting

pytestmark = pytest.mark.parity("G-69")
UNSCHEDULABLE = "0/2 nodes are available: 2 Insufficient cpu."
BACK_OFF = 'Back-off pulling image "echo"'


@pytest.mark.parametrize(
    ("status", "waits_for"),
    [
        ({}, ""),
        ({"state": waiting("ContainerCreating")}, ""),
        (
            {"conditions": [condition("PodScheduled", "False", "Unschedulable", UNSCHEDULABLE)]},
            f"a node: Unschedulable: {UNSCHEDULABLE}",
        ),
        (
            {"conditions": [condition("PodScheduled", "False", "SchedulingGated")]},
            "a node: SchedulingGated",
        ),
        (
            {"state": waiting("ImagePullBackOff", BACK_OFF)},
            f"its image {IMAGE}: ImagePullBackOff: {BACK_OFF}",
        ),
        ({"state": waiting("ErrImagePull")}, f"its image {IMAGE}: ErrImagePull"),
        (
            {"state": waiting("CreateContainerConfigError", 'secret "x" not found')},
            'its container: CreateContainerConfigError: secret "x" not found',
        ),
        (
            {
                "state": waiting("PodInitializing"),
                "initContainerStatuses": [{"name": "fetch", "state": waiting("ErrImagePull")}],
            },
            "its init container fetch: ErrImagePull",
        ),
        ({"phase": "Running", "state": {"running": {}}}, ""),
    ],
)
def test_what_a_pod_waits_for_is_told_with_the_reason_of_the_cluster(
    status: dict[str, Any], waits_for: str
) -> None:
    view = read_pod(pod(**status))

    assert (waits_for, "") == (view.waits_for, view.end)


PREEMPTED = condition("DisruptionTarget", "True", "PreemptionByScheduler", "by a pod of shop")
EVICTED = condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API")
TAINTED = condition("DisruptionTarget", "True", "DeletionByTaintManager", "Taint manager")


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ({"state": terminated(0, "Completed")}, "ended with exit code 0"),
        ({"state": terminated(1, message="a\nb\n")}, "ended with exit code 1; its last output: b"),
        ({"state": terminated(137, message="b")}, "was killed by SIGKILL; its last output: b"),
        ({"state": terminated(143)}, "was killed by SIGTERM"),
        (
            {"state": terminated(137, "OOMKilled"), "memory": "128Mi"},
            "was killed by SIGKILL for want of memory (OOMKilled), of which it may have 128Mi",
        ),
        (
            {"state": terminated(137, "OOMKilled")},
            "was killed by SIGKILL for want of memory (OOMKilled)",
        ),
        (
            {"state": terminated(128, "StartError", 'exec: "python": not found')},
            'cannot be started: StartError: exec: "python": not found',
        ),
        (
            {"state": terminated(137, "ContainerStatusUnknown", "not located")},
            "was lost: ContainerStatusUnknown: not located",
        ),
        (
            {"state": waiting("InvalidImageName", "couldn't parse")},
            "cannot be started: InvalidImageName: couldn't parse",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."},
            "was evicted from its node: The node was low on memory.",
        ),
        (
            {"phase": "Failed", "conditions": [PREEMPTED], "state": terminated(0)},
            "was preempted by a pod of higher priority (PreemptionByScheduler: by a pod of shop)",
        ),
        (
            {"phase": "Failed", "conditions": [EVICTED], "state": terminated(137)},
            "was evicted on request (EvictionByEvictionAPI: Eviction API); it was killed by "
            "SIGKILL",
        ),
        (
            {"phase": "Failed", "conditions": [TAINTED]},
            "was evicted from its node (DeletionByTaintManager: Taint manager)",
        ),
        (
            {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"},
            "was ended by its node: OutOfcpu: Pod was rejected",
        ),
        ({"phase": "Failed"}, "ended: Failed"),
    ],
)
def test_how_a_pod_has_ended_is_told_with_the_reason_of_the_cluster(
    status: dict[str, Any], end: str
) -> None:
    view = read_pod(pod(node="n7", **status))

    assert (end, "") == (view.end, view.waits_for)
    assert end == gone(view)


def test_one_that_others_have_deleted_names_its_pod_and_node() -> None:
    running = read_pod(pod(node="n7", phase="Running", state={"running": {}}, leaving=True))

    assert (True, True) == (running.is_running, running.is_leaving)
    assert "ended: its pod echo-abcde on node n7 was deleted" == gone(running)


def test_a_container_beside_it_says_nothing_of_the_replica() -> None:
    status = [
        {"name": "proxy", "state": terminated(1)},
        {"name": "replica", "state": {"running": {}}},
    ]

    assert "" == read_pod(pod(phase="Running", containerStatuses=status)).end


def test_nodes_have_zones_and_trouble() -> None:
    labels = {"topology.kubernetes.io/zone": "a"}
    ready = condition("Ready", "True", "KubeletReady")
    unknown = condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting.")

    def node(*conditions: dict[str, Any], **metadata: Any) -> NodeView:
        return read_node(
            {"metadata": {"name": "n7", **metadata}, "status": {"conditions": list(conditions)}}
        )

    assert NodeView("n7", "a", "") == node(ready, labels=labels)
    assert NodeView("n7", "", "NodeStatusUnknown: Kubelet stopped posting.") == node(unknown)
    assert NodeView("n7", "", "NotReady") == node()


def test_one_that_is_given_up_tells_the_trouble_of_its_node() -> None:
    view = read_pod(pod(node="n7", phase="Running", state={"running": {}}))

    assert "was lost with its node n7: NotReady" == lost(view, NodeView("n7", "", "NotReady"))
    assert "on node n7 does not end" in lost(view, NodeView("n7", "", ""))
    assert "on node n7 does not end" in lost(view, None)
