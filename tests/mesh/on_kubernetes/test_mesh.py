"""A whole mesh in the cluster, from what `pyserve kubernetes manifests` prints to its end.

The tests of this module follow each other on one mesh. None loses a call, at 200 calls a second;
`make kubernetes` prints what they measure.
"""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.mesh.launchers.answers import of_digits
from tests.mesh.on_kubernetes.calling import Calls
from tests.mesh.on_kubernetes.cluster import Cluster
from tests.mesh.on_kubernetes.mesh import (
    CONTROLLER,
    INGRESS,
    ROUTING,
    SETTLED_WITHIN_S,
    Mesh,
    mesh_in,
)
from tests.support.mesh import running_mesh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# As a ready sign that calls flow: a second of them.
MANY = 200
FILM = """
import pyserve

film = pyserve.get_app_handle("pipeline").streaming.remote(40, 20).result(timeout_s=30)
print(film.frames, "frames")
"""
CODE = """
    import pyserve
    from services.digits import digits_pb2, digits_pb2_grpc

    @pyserve.deployment(num_replicas=2, request_router_config={routing})
    class Digits(digits_pb2_grpc.DigitsServicer):
        async def Classify(self, request, context):
            replica_id = pyserve.get_replica_context().replica_id
            return digits_pb2.ClassifyReply(label={label}, replica_id=replica_id)

    pyserve.run(Digits.bind(), name="digits", route_prefix=None)
"""


@pytest.fixture(scope="module")
def mesh(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with mesh_in(cluster, tmp_path_factory.mktemp("mesh")) as made:
        yield made


def test_what_is_printed_makes_a_mesh_that_answers_at_its_service(mesh: Mesh) -> None:
    begun = time.monotonic()
    mesh.apply()

    mesh.cluster.eventually(mesh.is_settled, SETTLED_WITHIN_S)
    print(f"digits serves {time.monotonic() - begun:.1f} s after kubectl apply")
    with Calls(mesh.address) as calls:
        mesh.cluster.eventually(lambda: len(calls.by_replica) == 2 and calls.count > MANY)
    print(calls)
    assert not calls.failed


def test_stages_of_an_application_hand_values_from_pod_to_pod(mesh: Mesh) -> None:
    def serves() -> bool:
        found = mesh.deployment("Pipeline", "pipeline")
        return found is not None and found.status == "HEALTHY"

    mesh.cluster.eventually(serves, SETTLED_WITHIN_S)

    assert "40 frames" in mesh.exec("python", "-", text=FILM)


def test_the_same_file_gives_the_same_answers_on_this_machine(mesh: Mesh) -> None:
    with running_mesh(str(mesh.file)) as here:
        [(label, probabilities)] = found = of_digits(here.address)

    assert (7, 10) == (label, len(probabilities))
    assert found == of_digits(mesh.address)


def test_pods_belong_to_the_controller_and_lie_on_both_nodes(mesh: Mesh) -> None:
    pods = mesh.digits().values()

    owners = {each["metadata"]["ownerReferences"][0]["name"] for each in pods}
    assert {"pyserve-controller"} == owners
    assert 2 == len({each["spec"]["nodeName"] for each in pods})


def test_another_image_is_rolled_out(mesh: Mesh) -> None:
    before = set(mesh.digits())
    with Calls(mesh.address) as calls:
        mesh.cluster.eventually(lambda: calls.count > MANY)
        begun = time.monotonic()
        mesh.apply(image=mesh.cluster.other_image)
        mesh.cluster.eventually(partial(mesh.is_new, before), SETTLED_WITHIN_S)
        took_s = time.monotonic() - begun
    print(f"rolled out after {took_s:.1f} s; {calls}")
    images = {each["spec"]["containers"][0]["image"] for each in mesh.digits().values()}
    assert {mesh.cluster.other_image} == images
    assert not calls.failed


def test_other_code_is_rolled_out(mesh: Mesh) -> None:
    """A script's own class travels to the pods; the file then brings back that of the image."""
    with Calls(mesh.address) as calls:
        for label in (101, 102):
            before = set(mesh.digits())
            begun = time.monotonic()
            mesh.exec(
                "python", "-", text=textwrap.dedent(CODE.format(label=label, routing=ROUTING))
            )
            print(f"code is rolled out after {time.monotonic() - begun:.1f} s")
            # It waits for the new ones alone: those before may have calls to finish.
            mesh.cluster.eventually(partial(mesh.is_new, before), SETTLED_WITHIN_S)
        mesh.cluster.eventually(lambda: calls.labels[102] > MANY)
        before = set(mesh.digits())
        mesh.apply()
        mesh.cluster.eventually(partial(mesh.is_new, before), SETTLED_WITHIN_S)
    print(calls)
    assert {101, 102} < calls.labels.keys()
    assert not calls.failed


def test_an_image_that_is_not_there_leaves_the_old_version_serving(mesh: Mesh) -> None:
    before = set(mesh.digits())
    with Calls(mesh.address) as calls:
        begun = time.monotonic()
        mesh.apply(image="nowhere.example/missing:1")
        mesh.cluster.eventually(
            lambda: "its image nowhere.example/missing:1: " in mesh.message(), SETTLED_WITHIN_S
        )
        print(f"told after {time.monotonic() - begun:.1f} s: {mesh.message()}")
        assert before <= set(mesh.digits())
        many = calls.count + MANY
        mesh.cluster.eventually(lambda: calls.count > many)
        mesh.apply()
        mesh.cluster.eventually(lambda: mesh.has_pods(2) and mesh.is_settled(), SETTLED_WITHIN_S)
    print(calls)
    assert not calls.failed


def test_more_and_fewer_replicas_are_pods(mesh: Mesh) -> None:
    with Calls(mesh.address) as calls:
        for count in (4, 2):
            begun = time.monotonic()
            mesh.apply(replicas=count)
            mesh.cluster.eventually(
                lambda count=count: mesh.is_settled(count) and mesh.has_pods(count),  # type: ignore[misc]  # of each round
                SETTLED_WITHIN_S,
            )
            print(f"{count} replicas after {time.monotonic() - begun:.1f} s")
    print(calls)
    assert not calls.failed


def test_a_pod_that_somebody_deletes_finishes_its_calls(mesh: Mesh) -> None:
    name = min(mesh.digits())
    with Calls(mesh.address) as calls:
        begun = time.monotonic()
        mesh.cluster.kubectl("delete", "pod", name, "-n", mesh.namespace, "--wait=false")
        mesh.cluster.eventually(
            lambda: name not in mesh.digits() and mesh.is_settled(), SETTLED_WITHIN_S
        )
        took_s = time.monotonic() - begun
    print(f"replaced after {took_s:.1f} s; {calls}")
    assert not calls.failed


def test_a_container_that_is_killed_is_replaced_and_status_says_why(mesh: Mesh) -> None:
    """Calls that were in it are marked as repeatable, and go to another one."""
    name = min(mesh.digits())
    pids = mesh.cluster.use_tool("pids", name, "-n", mesh.namespace).split()
    with Calls(mesh.address) as calls:
        mesh.cluster.eventually(lambda: calls.count > MANY)
        begun = time.monotonic()
        for pid in pids:
            os.kill(int(pid), 9)
        mesh.cluster.eventually(
            lambda: name not in mesh.digits() and mesh.is_settled(), SETTLED_WITHIN_S
        )
        took_s = time.monotonic() - begun
    print(f"replaced after {took_s:.1f} s; {calls}")
    assert "was killed by SIGKILL" in mesh.exec("python", "-m", "pyserve", "status")
    assert not calls.failed


@pytest.mark.parametrize("way", ["moved", "killed"])
def test_a_controller_that_ends_leaves_its_replicas_and_the_next_one_finds_them(
    mesh: Mesh, way: str
) -> None:
    before, uid = set(mesh.pods()), mesh.controller()["metadata"]["uid"]
    with Calls(mesh.address) as calls:
        mesh.cluster.eventually(lambda: calls.count > MANY)
        begun = time.monotonic()
        mesh.end_controller(*(("--grace-period=1",) if way == "killed" else ()))
        mesh.cluster.eventually(mesh.is_settled, SETTLED_WITHIN_S)
        took_s = time.monotonic() - begun
    print(f"the next controller knows all after {took_s:.1f} s; {calls}")
    assert uid != mesh.controller()["metadata"]["uid"]
    assert before == set(mesh.pods())
    assert not calls.failed


def test_a_lost_node_costs_no_call_that_had_not_reached_it(mesh: Mesh) -> None:
    """Meanwhile another version is rolled out, and the controller's pod ends.

    Calls go to an ingress on the other node; the controller is there too, since nobody but its
    StatefulSet replaces it.
    """
    mesh.spread()
    stays = mesh.controller()["spec"]["nodeName"]
    (lost,) = {each["metadata"]["name"] for each in mesh.cluster.get("nodes")} - {stays}
    ingress = next(
        each for each in mesh.pods(INGRESS).values() if each["spec"]["nodeName"] == stays
    )
    before = set(mesh.digits())
    with Calls(f"{ingress['status']['podIP']}:8000") as calls:
        mesh.cluster.eventually(lambda: len(calls.by_replica) == 2 and calls.count > MANY)
        begun = time.monotonic()
        mesh.cluster.use_tool("cut", lost.removeprefix("node-"))
        try:
            mesh.cluster.eventually(partial(all_on, mesh, stays), SETTLED_WITHIN_S)
            print(f"replaced {time.monotonic() - begun:.1f} s after the loss; {calls}")
            mesh.end_controller()
            mesh.apply(image=mesh.cluster.other_image)
            mesh.cluster.eventually(partial(mesh.is_new, before), SETTLED_WITHIN_S)
            mesh.cluster.eventually(partial(all_on, mesh, stays), SETTLED_WITHIN_S)
            print(f"restarted and rolled out {time.monotonic() - begun:.1f} s after the loss")
        finally:
            mesh.cluster.use_tool("mend", lost.removeprefix("node-"))
    print(calls)
    assert not calls.failed
    mesh.cluster.kubectl("wait", "--for=condition=Ready", f"node/{lost}", "--timeout=55s")


def test_a_lost_node_of_the_controller_costs_no_call_either(mesh: Mesh) -> None:
    """Nobody else replaces a StatefulSet's pod, so what was there comes back with the node."""
    mesh.spread()
    controller = mesh.controller()
    lost, uid = controller["spec"]["nodeName"], controller["metadata"]["uid"]
    ingress = next(each for each in mesh.pods(INGRESS).values() if each["spec"]["nodeName"] != lost)
    with Calls(f"{ingress['status']['podIP']}:8000") as calls:
        mesh.cluster.eventually(lambda: len(calls.by_replica) == 2 and calls.count > MANY)
        begun = time.monotonic()
        mesh.cluster.use_tool("cut", lost.removeprefix("node-"))
        try:
            # The cluster gives the pods of the node up.
            mesh.cluster.eventually(lambda: not mesh.pods(CONTROLLER), SETTLED_WITHIN_S)
            print(f"given up {time.monotonic() - begun:.1f} s after the loss; {calls}")
        finally:
            mesh.cluster.use_tool("mend", lost.removeprefix("node-"))
        mesh.cluster.eventually(
            lambda: {uid} != uids(mesh.pods(CONTROLLER)) != set() and mesh.is_settled(),
            SETTLED_WITHIN_S,
        )
        many = calls.count + MANY
        mesh.cluster.eventually(lambda: calls.count > many)
    print(f"all is back {time.monotonic() - begun:.1f} s after the loss; {calls}")
    assert not calls.failed
    mesh.cluster.kubectl("wait", "--for=condition=Ready", f"node/{lost}", "--timeout=55s")


def uids(pods: dict[str, Any]) -> set[str]:
    return {each["metadata"]["uid"] for each in pods.values()}


def all_on(mesh: Mesh, node: str) -> bool:
    """Say whether digits serves from that node alone."""
    return mesh.is_settled() and {node} == {
        each["spec"]["nodeName"] for each in mesh.digits().values()
    }


def test_with_its_statefulset_all_pods_go(mesh: Mesh) -> None:
    mesh.cluster.kubectl("delete", "statefulset", "pyserve-controller", "-n", mesh.namespace)

    mesh.cluster.eventually(lambda: not mesh.pods(), SETTLED_WITHIN_S)
