"""A controller and replicas by script: reports in, numbers of replicas out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pyserve.config import DeploymentOptions
from pyserve.control.controller import Controller
from pyserve.control.server.rest import instance_details
from pyserve.errors import MeshNotFound, OptionError, UsageError
from pyserve.observe.metrics import Scrape
from pyserve.types import ReplicaId
from pyserve.wire.v1 import control_pb2, mesh_pb2
from tests.support.waiting import eventually
from tests.unit.control.test_reconfiguring import Processes, Replica

BY_NAME = "tests.mesh.autoscaling.apps:twice_as_many"


class Mesh:
    """An application whose replicas are ready as soon as they are started."""

    def __init__(self) -> None:
        self.processes = Processes()
        self.controller = Controller(self.processes, development=True)
        self.replicas: dict[ReplicaId, Replica] = {}

    def deploy(self, *names: str, request: dict[str, Any] | None = None, **options: Any) -> None:
        text = DeploymentOptions.of(options).to_json()
        code = mesh_pb2.Code(import_path="a:Echo", fingerprint=b"same")
        specs = [
            mesh_pb2.DeploymentSpec(name=name, code=code, options_json=text)
            for name in names or ("Echo",)
        ]
        self.controller.deploy(
            control_pb2.DeployRequest(application="shop", deployments=specs, **(request or {}))
        )

    async def settle(self, wanted: int, name: str = "Echo") -> None:
        """Make ready what starts, until so many replicas are wanted and serve."""

        def has_come() -> bool:
            for order in self.processes.orders:
                if order.replica_id not in self.replicas:
                    replica = Replica(self.controller, order.key, order.replica_id)
                    replica.say(ready=mesh_pb2.Ready(services=["s"]))
                    self.replicas[order.replica_id] = replica
            found = self.status(name)
            running = sum(each.state == "RUNNING" for each in found.replicas)
            return (wanted, wanted) == (found.wanted, running)

        await eventually(has_come, 30)

    def load(self, ongoing: int, **more: Any) -> None:
        for each in self.replicas:
            self.controller.autoscaling.on_replica(
                ReplicaId(each), mesh_pb2.ReplicaLoad(ongoing=ongoing, **more)
            )

    def parked(self, calls: int, name: str = "Echo") -> None:
        key = mesh_pb2.DeploymentKey(application="shop", name=name)
        load = mesh_pb2.DeploymentLoad(key=key, parked=calls, offered=calls)
        self.controller.autoscaling.on_router("one", mesh_pb2.RouterLoad(deployments=[load]))

    def status(self, name: str = "Echo") -> control_pb2.DeploymentStatus:
        [application] = self.controller.status().applications
        return next(each for each in application.deployments if each.name == name)


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    mesh = Mesh()
    yield mesh
    await mesh.controller.close()


@pytest.mark.parity("G-24", "G-65")
async def test_calls_that_wait_bring_replicas_within_a_second(mesh: Mesh) -> None:
    mesh.deploy(autoscaling_config={"max_replicas": 8, "target_ongoing_requests": 2})
    await mesh.settle(1)
    begun = asyncio.get_running_loop().time()

    mesh.load(2)
    mesh.parked(14)

    await eventually(lambda: mesh.status().wanted == 8, 30)
    assert 1.0 >= asyncio.get_running_loop().time() - begun
    assert "UPSCALING" == mesh.status().state
    assert "2 for each replica" in mesh.status().scaling.reason
    await mesh.settle(8)
    await eventually(lambda: mesh.status().state == "HEALTHY", 30)
    (decision,) = mesh.status().scaling.decisions
    assert (1, 8) == (decision.before, decision.after)
    assert mesh.status().scaling.reason == decision.reason
    assert mesh.status().scaling.since == decision.at


@pytest.mark.parity("G-24", "G-65")
async def test_those_that_are_too_many_drain(mesh: Mesh) -> None:
    quick = {"look_back_period_s": 0.3, "downscale_delay_s": 0.3}
    mesh.deploy(autoscaling_config={"max_replicas": 3, **quick})
    await mesh.settle(1)
    mesh.parked(6)
    await mesh.settle(3)

    mesh.parked(0)

    await eventually(lambda: mesh.status().wanted == 1, 30)
    await eventually(lambda: mesh.status().state == "DOWNSCALING", 30)
    await eventually(
        lambda: (
            ["RUNNING", "STOPPING", "STOPPING"]
            == sorted(each.state for each in mesh.status().replicas)
        ),
        5.0,
    )


@pytest.mark.parity("G-25")
async def test_a_first_deploy_starts_one_and_goes_to_zero(mesh: Mesh) -> None:
    quick = {"look_back_period_s": 0.2, "downscale_delay_s": 0.2, "upscale_delay_s": 30.0}
    mesh.deploy(autoscaling_config={"min_replicas": 0, "initial_replicas": 0, **quick})
    await mesh.settle(1)

    await eventually(lambda: mesh.status().wanted == 0, 30)
    for replica in list(mesh.status().replicas):
        mesh.processes.end(ReplicaId(replica.replica_id), "was killed by SIGKILL")
    await eventually(lambda: not mesh.status().replicas)
    await eventually(lambda: mesh.status().state == "HEALTHY", 30)

    mesh.parked(1)

    await eventually(lambda: mesh.status().wanted == 1, 30)


@pytest.mark.parity("G-22")
async def test_other_bounds_bind_what_runs(mesh: Mesh) -> None:
    mesh.deploy(autoscaling_config={"max_replicas": 4})
    await mesh.settle(1)
    mesh.parked(8)
    await mesh.settle(4)
    replicas = set(mesh.replicas)

    mesh.deploy(autoscaling_config={"max_replicas": 2})

    await eventually(lambda: mesh.status().wanted == 2)
    assert replicas == set(mesh.replicas)
    assert (1, 2) == (mesh.status().scaling.min_replicas, mesh.status().scaling.max_replicas)


async def test_another_version_begins_with_what_the_load_needs(mesh: Mesh) -> None:
    mesh.deploy(autoscaling_config={"max_replicas": 4})
    await mesh.settle(1)
    mesh.parked(8)
    await mesh.settle(4)

    mesh.deploy(autoscaling_config={"max_replicas": 4}, serializer="json")

    await eventually(lambda: len(mesh.processes.orders) > 4)
    assert 4 == mesh.status().wanted


@pytest.mark.parity("G-29")
async def test_an_external_scaler_sets_the_number(mesh: Mesh) -> None:
    mesh.deploy(num_replicas=1, request={"external_scaler_enabled": True})
    await mesh.settle(1)

    mesh.controller.set_target("shop", "Echo", 3)

    await mesh.settle(3)
    assert "an external scaler says so" == mesh.status().scaling.reason
    mesh.deploy(num_replicas=1, serializer="json", request={"external_scaler_enabled": True})
    await eventually(lambda: len(mesh.processes.orders) > 3)
    assert 3 == mesh.status().wanted
    for number in range(30):
        mesh.controller.set_target("shop", "Echo", 4 + number % 2)
    decisions = mesh.status().scaling.decisions
    assert [(4, 5)] == [(each.before, each.after) for each in decisions[-1:]]
    assert 20 == len(decisions), "what was decided longer ago is forgotten"
    with pytest.raises(UsageError, match="target_num_replicas=-1 is not allowed"):
        mesh.controller.set_target("shop", "Echo", -1)
    with pytest.raises(MeshNotFound, match="no deployment shop/Eco; there is: shop/Echo"):
        mesh.controller.set_target("shop", "Eco", 1)


@pytest.mark.parity("G-29")
async def test_an_external_scaler_is_refused_where_nobody_let_it(mesh: Mesh) -> None:
    mesh.deploy(num_replicas=1)
    await mesh.settle(1)

    with pytest.raises(UsageError, match="external_scaler_enabled=True first"):
        mesh.controller.set_target("shop", "Echo", 3)
    with pytest.raises(UsageError, match="'Echo' has an autoscaling_config"):
        mesh.deploy(num_replicas="auto", request={"external_scaler_enabled": True})
    assert 1 == mesh.status().wanted


@pytest.mark.parity("G-27")
async def test_a_policy_of_the_application_decides_for_all(mesh: Mesh) -> None:
    policy = json.dumps({"policy_function": BY_NAME})
    mesh.deploy(
        "First",
        "Second",
        autoscaling_config={"max_replicas": 5},
        request={"autoscaling_policy_json": policy},
    )

    await mesh.settle(2, "First")
    await mesh.settle(4, "Second")


@pytest.mark.parity("G-27")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("{}", "has no policy_function"),
        ('{"function": "a:b"}', "no option 'function'"),
        ('{"policy_function": "no path"}', "'module:name'"),
    ],
)
async def test_a_policy_that_is_none_is_refused(mesh: Mesh, text: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        mesh.deploy(num_replicas="auto", request={"autoscaling_policy_json": text})


@pytest.mark.parity("G-28")
async def test_metrics_of_replicas_reach_the_policy(mesh: Mesh) -> None:
    policy = {"policy_function": "tests.mesh.autoscaling.apps:by_metric"}
    mesh.deploy(autoscaling_config={"max_replicas": 5, "policy": policy})
    await mesh.settle(1)

    mesh.load(0, stats_json='{"wanted": 3}')

    await mesh.settle(3)
    assert "tests.mesh.autoscaling.apps:by_metric says so" == mesh.status().scaling.reason


def forty_tasks(queue: str) -> int:
    """Return how many tasks wait in each queue."""
    assert queue == "orders"
    return 40


@pytest.mark.parity("G-30")
async def test_the_length_of_a_queue_decides(mesh: Mesh) -> None:
    policy = {
        "policy_function": (
            "pyserve.async_inference_autoscaling_policy:AsyncInferenceAutoscalingPolicy"
        ),
        "policy_kwargs": {"queue_name": "orders", "queue_length": f"{__name__}:forty_tasks"},
    }
    scaling = {"max_replicas": 8, "target_ongoing_requests": 10, "policy": policy}
    mesh.deploy(autoscaling_config=scaling)
    await mesh.settle(4)


async def test_what_requests_cost_is_in_the_status_whether_they_scale_or_not(mesh: Mesh) -> None:
    mesh.deploy()
    await mesh.settle(1)
    assert not mesh.status().replicas[0].HasField("costs")

    costs = mesh_pb2.StepCosts(running=30, waiting=5, budget=100)
    mesh.load(2, costs=costs)

    assert costs == mesh.status().replicas[0].costs
    details: Any = instance_details(
        mesh.controller.status(), mesh.controller.declarations(), mesh.controller.state
    )
    [replica] = details["applications"]["shop"]["deployments"]["Echo"]["replicas"]
    assert {"running": 30, "waiting": 5, "budget": 100} == replica["costs"]


async def test_reports_of_values_bring_replicas(mesh: Mesh) -> None:
    config = {"max_replicas": 4, "target_time_to_first_value_s": 0.1}
    mesh.deploy(autoscaling_config=config)
    await mesh.settle(1)

    mesh.load(4, cost=4.0, steps=mesh_pb2.StepLoad(unanswered=4, unanswered_s=4.0))

    await mesh.settle(2)
    scrape = Scrape({})
    mesh.controller.autoscaling.add_metrics(scrape)
    found = {each.name: each.samples[0].value for each in scrape.families()}
    assert 4.0 == found["pyserve_autoscaling_total_cost"]
    assert 1.0 <= found["pyserve_autoscaling_first_value_seconds"]
