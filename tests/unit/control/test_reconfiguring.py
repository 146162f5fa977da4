"""A controller and replicas by script: who is told another ``user_config``, and what follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pyserve.config import DeploymentOptions
from pyserve.control.admission import DeployWatch
from pyserve.control.controller import Controller
from pyserve.control.replicas.launching import ReplicaOrder
from pyserve.control.replicas.sessions import Session
from pyserve.types import DeploymentKey, ReplicaId
from pyserve.version import version
from pyserve.wire.v1 import control_pb2, mesh_pb2
from tests.support.launching import ScriptedLauncher
from tests.support.waiting import eventually


class Processes(ScriptedLauncher):
    """Starts nothing, and remembers what it was to start."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[ReplicaOrder] = []

    async def start(self, order: ReplicaOrder) -> int:
        self.orders.append(order)
        return 1


class Replica:
    """One that has joined, and its end of the stream."""

    def __init__(self, controller: Controller, key: DeploymentKey, replica_id: str) -> None:
        self._controller = controller
        self._hello = mesh_pb2.Hello(
            application=key.application,
            deployment=key.deployment,
            replica_id=replica_id,
            version=version(),
        )
        self.session = self._join()

    def _join(self) -> Session:
        return self._controller.join(self._hello)

    async def next(self, kind: str) -> Any:
        """Return the next command but pings, which come when the loop gets to them."""
        command = None
        while command is None or command.WhichOneof("kind") == "ping":
            command = await asyncio.wait_for(self.session.next(), 30)
            assert command is not None
        assert kind == command.WhichOneof("kind")
        return getattr(command, kind)

    async def told(self) -> tuple[int, str]:
        """Return the configuration that it is told, after its limits."""
        await self.next("limits")
        told = await self.next("reconfigure")
        return told.config, told.user_config_json

    def say(self, **message: Any) -> None:
        self._controller.hear(self.session, mesh_pb2.ReplicaMessage(**message))

    def answer(self, config: int, refusal: str = "") -> None:
        self.say(reconfigured=mesh_pb2.Reconfigured(config=config, summary=refusal))

    async def rejoin(self, config: int) -> None:
        self._controller.leave(self.session)
        self.session = self._join()
        await self.next("assign")
        await self.next("limits")  # It may have missed some.
        self.say(ready=mesh_pb2.Ready(config=config))


class Mesh:
    """An application with two replicas of one deployment, which has ``user_config=1``."""

    def __init__(self, interval_s: float | None = None) -> None:
        self.processes = Processes()
        self.controller = Controller(self.processes, development=True, interval_s=interval_s)
        self.replicas: list[Replica] = []

    def deploy(self, config: object, count: int = 2, **others: Any) -> DeployWatch:
        # All at once, where it is not about how many.
        given = {"rolling_update_percentage": 1.0, **others}
        options = DeploymentOptions(num_replicas=count, user_config=config, **given)
        code = mesh_pb2.Code(import_path="a:Echo", fingerprint=b"same")
        spec = mesh_pb2.DeploymentSpec(name="Echo", code=code, options_json=options.to_json())
        return self.controller.deploy(
            control_pb2.DeployRequest(application="shop", deployments=[spec])
        )

    async def bring_up(self) -> None:
        count = len(self.processes.orders)
        await eventually(lambda: len(self.processes.orders) >= max(count, 2))
        for order in self.processes.orders[len(self.replicas) :]:
            replica = Replica(self.controller, order.key, order.replica_id)
            assign = await replica.next("assign")
            replica.say(ready=mesh_pb2.Ready(services=["s"], config=assign.config))
            self.replicas.append(replica)

    def status(self) -> tuple[str, str]:
        [application] = self.controller.status().applications
        return application.deployments[0].state, application.deployments[0].message

    async def fail_one(self, summary: str) -> None:
        """The newest process that has not joined says that it cannot come up."""
        order = self.processes.orders[-1]
        replica = Replica(self.controller, order.key, order.replica_id)
        await replica.next("assign")
        replica.say(failed=mesh_pb2.Failed(summary=summary, user_code=True))
        self.processes.end(order.replica_id, "ended with exit code 1")
        self.controller.leave(replica.session)


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    mesh = Mesh()
    watch = mesh.deploy(1)
    await mesh.bring_up()
    assert "deployed" == await outcome(watch)
    yield mesh
    await mesh.controller.close()


async def outcome(watch: DeployWatch) -> str:
    async with asyncio.timeout(30):
        last = [event async for event in watch.events()][-1]
    return last.failed.summary or str(last.WhichOneof("kind"))


async def test_a_deploy_ends_when_every_replica_has_taken_it_on(mesh: Mesh) -> None:
    watch = mesh.deploy(2)
    one, other = mesh.replicas
    assert (1, "2") == await one.told() == await other.told()
    assert ("UPDATING", "replicas take another user_config on") == mesh.status()

    one.answer(1)
    await asyncio.sleep(0)
    assert not watch.done
    other.answer(1)

    assert "deployed" == await outcome(watch)
    assert ("HEALTHY", "") == mesh.status()
    assert 2 == len(mesh.processes.orders)


async def test_one_that_refuses_takes_the_change_back_from_all(mesh: Mesh) -> None:
    watch = mesh.deploy(2)
    one, other = mesh.replicas
    await asyncio.gather(one.told(), other.told())
    one.answer(1)
    other.answer(1, "reconfigure raised ValueError")

    assert "reconfigure raised ValueError" == await outcome(watch)
    assert (2, "1") == await one.told() == await other.told()
    one.answer(2)
    other.answer(2)
    await eventually(lambda: mesh.status()[0] == "HEALTHY")
    assert "the last deploy failed" in mesh.status()[1]
    assert "reconfigure raised ValueError" in mesh.status()[1]

    again = mesh.deploy(3)
    assert (3, "3") == await one.told() == await other.told()
    one.answer(3)
    other.answer(3)
    assert "deployed" == await outcome(again)
    assert ("HEALTHY", "") == mesh.status()


async def test_one_that_refuses_what_it_had_is_replaced(mesh: Mesh) -> None:
    watch = mesh.deploy(2)
    one, other = mesh.replicas
    await asyncio.gather(one.told(), other.told())
    one.answer(1, "no")
    assert "no" == await outcome(watch)
    await asyncio.gather(one.told(), other.told())
    other.answer(2)
    one.answer(2, "not even that")

    await one.next("drain")
    await eventually(lambda: len(mesh.processes.orders) == 3)
    await mesh.bring_up()
    await eventually(lambda: mesh.status()[0] == "HEALTHY")


async def test_one_that_joins_again_is_told_again(mesh: Mesh) -> None:
    watch = mesh.deploy(2)
    one, other = mesh.replicas
    await asyncio.gather(one.told(), other.told())
    other.answer(1)
    await one.rejoin(config=0)
    told = await one.next("reconfigure")
    assert (1, "2") == (told.config, told.user_config_json)
    await one.rejoin(config=1)  # The answer got lost with the stream.

    assert "deployed" == await outcome(watch)


async def test_one_that_starts_meanwhile_begins_with_the_new_one(mesh: Mesh) -> None:
    watch = mesh.deploy(2)
    one, other = mesh.replicas
    await asyncio.gather(one.told(), other.told())
    one.answer(1)
    mesh.processes.end(ReplicaId(other.session.replica_id), "ended with exit code 1")
    mesh.controller.leave(other.session)
    await eventually(lambda: len(mesh.processes.orders) == 3)
    assert not watch.done
    await mesh.bring_up()

    assert "deployed" == await outcome(watch)


async def test_one_that_cannot_start_with_it_takes_the_change_back(mesh: Mesh) -> None:
    watch = mesh.deploy(2)
    one, other = mesh.replicas
    await asyncio.gather(one.told(), other.told())
    one.answer(1)
    mesh.processes.end(ReplicaId(other.session.replica_id), "ended with exit code 1")
    mesh.controller.leave(other.session)
    await eventually(lambda: len(mesh.processes.orders) == 3)
    order = mesh.processes.orders[-1]
    starting = Replica(mesh.controller, order.key, order.replica_id)
    assert 1 == (await starting.next("assign")).config
    starting.say(failed=mesh_pb2.Failed(summary="reconfigure raised", user_code=True))

    assert "reconfigure raised" == await outcome(watch)
    assert (2, "1") == await one.told()


async def test_a_newer_deploy_and_a_delete_end_the_change(mesh: Mesh) -> None:
    first, second = mesh.deploy(2), mesh.deploy(3)
    assert "a newer deploy of the same application replaced it" == await outcome(first)
    one, other = mesh.replicas
    await one.next("limits")
    assert (2, "3") == await one.told()
    one.answer(2, "no")
    assert "no" == await outcome(second)
    # Back to what was before both.
    assert (3, "1") == await one.told()

    third = mesh.deploy(4)
    deleting = asyncio.create_task(mesh.controller.delete("shop"))
    assert "the application was deleted" == await outcome(third)
    for replica in (one, other):
        replica.answer(4, "too late")
    await eventually(lambda: mesh.status()[1] == "is being removed")
    deleting.cancel()


@pytest.mark.parity("G-22")
async def test_a_deploy_of_more_replicas_keeps_those_that_serve(mesh: Mesh) -> None:
    watch = mesh.deploy(1, count=3)
    for each in mesh.replicas:
        assert 3 == (await each.next("limits")).world_size
    await eventually(lambda: len(mesh.processes.orders) == 3)
    assert ("UPSCALING", "2 of 3 replicas serve, up from 2") == mesh.status()
    assert not watch.done
    await mesh.bring_up()

    assert "deployed" == await outcome(watch)
    assert ("HEALTHY", "") == mesh.status()
    assert 3 == len(mesh.processes.orders)


@pytest.mark.parity("G-22")
async def test_a_deploy_of_fewer_replicas_drains_the_rest(mesh: Mesh) -> None:
    watch = mesh.deploy(1, count=1)
    one, other = mesh.replicas
    assert 1 == (await one.next("limits")).world_size
    await other.next("limits")
    await other.next("drain")

    assert "deployed" == await outcome(watch)
    assert "DOWNSCALING" == mesh.status()[0]
    mesh.processes.end(ReplicaId(other.session.replica_id), "ended with exit code 0")
    mesh.controller.leave(other.session)
    await eventually(lambda: ("HEALTHY", "") == mesh.status())


async def test_more_replicas_that_cannot_start_are_given_up_and_those_before_serve_on(
    mesh: Mesh,
) -> None:
    """A first failure may be chance, unless the configuration is a new one."""
    watch = mesh.deploy(1, count=3, max_constructor_retry_count=2)
    await eventually(lambda: len(mesh.processes.orders) == 3)
    await mesh.fail_one("no weights")
    await eventually(lambda: len(mesh.processes.orders) == 4)
    assert not watch.done
    await mesh.fail_one("no weights either")

    assert "no weights" == await outcome(watch)
    assert "HEALTHY" == mesh.status()[0]
    assert "no weights" in mesh.status()[1]
    await asyncio.sleep(0)
    assert 4 == len(mesh.processes.orders)
