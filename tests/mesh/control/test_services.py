"""Mesh and Control over real gRPC on loopback, with replicas that speak Join."""

import asyncio
import contextlib
from pathlib import Path

import grpc
import pytest

from pyserve.aio.mesh_channel import dial, proof
from pyserve.config import DeploymentOptions
from pyserve.control.controller import Controller
from pyserve.control.reconcile.start_limits import Room
from pyserve.control.server.ingresses import Ingresses, add_ingress_service
from pyserve.control.server.service import add_services
from pyserve.control.server.transport import make_server
from pyserve.routing.watcher import ViewState
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.version import version
from pyserve.wire.v1 import control_pb2, control_pb2_grpc, mesh_pb2, mesh_pb2_grpc
from tests.mesh.control.fakes import (
    PID,
    FakeLauncher,
    raise_in_constructor,
    serve,
)
from tests.support.waiting import eventually

TOKEN = b"the mesh token of this test"
TIMEOUT_S = 30.0
ECHO = DeploymentKey(ApplicationName("shop"), DeploymentName("Echo"))


class Mesh:
    """A controller behind a real server, and stubs to call it."""

    def __init__(self, socket: Path):
        address = f"unix:{socket}"
        self.launcher = FakeLauncher(address, TOKEN, serve)
        self.controller = Controller(
            self.launcher, development=True, addresses=lambda: ("127.0.0.1:8000",)
        )
        self.grace_s = None
        self.server = make_server(TOKEN)
        self.ingresses = Ingresses()
        add_services(self.server, self.controller, self.shut_down, self.ingresses, self.leave)
        add_ingress_service(self.server, self.ingresses)
        self.server.add_insecure_port(address)
        self.channel = dial(address)
        self.control = control_pb2_grpc.ControlStub(self.channel)
        self.mesh = mesh_pb2_grpc.MeshStub(self.channel)

    async def shut_down(self, grace_s):
        self.grace_s = grace_s
        await self.controller.drain(grace_s)

    async def leave(self, run, _grace_s):
        await self.controller.end_run(run.id)
        return self.controller.runs.others(run.id)

    async def deploy(self, *names, run=None, calls=(), **options):
        request = control_pb2.DeployRequest(
            application="shop",
            deployments=[
                mesh_pb2.DeploymentSpec(
                    name=name,
                    options_json=DeploymentOptions.of(options).to_json(),
                    calls=[
                        mesh_pb2.DeploymentKey(application="shop", name=called)
                        for caller, called in calls
                        if caller == name
                    ],
                )
                for name in names
            ],
            run=run,
        )
        call = self.control.Deploy(request, metadata=proof(TOKEN), timeout=TIMEOUT_S)
        return [event async for event in call]

    async def status(self):
        reply = await self.control.Status(
            control_pb2.StatusRequest(), metadata=proof(TOKEN), timeout=TIMEOUT_S
        )
        return {
            deployment.name: deployment
            for application in reply.applications
            for deployment in application.deployments
        }

    def watch(self, **request):
        return self.mesh.Watch(
            mesh_pb2.WatchRequest(version=version(), **request),
            metadata=proof(TOKEN),
            timeout=TIMEOUT_S,
        )


@pytest.fixture
async def mesh(tmp_path):
    mesh = Mesh(tmp_path / "c.sock")
    await mesh.server.start()
    try:
        yield mesh
    finally:
        await mesh.channel.close()
        await mesh.controller.close()
        await mesh.server.stop(0)


async def test_deploy_reports_progress_and_ends_when_all_serve(mesh):
    events = await mesh.deploy("Echo", num_replicas=2)

    kinds = [event.WhichOneof("kind") for event in events]
    assert "deployed" == kinds[-1]
    assert {"progress"} == set(kinds[:-1])
    assert (2, 2) == (events[-2].progress.ready, events[-2].progress.wanted)
    assert ["127.0.0.1:8000"] == list(events[-1].deployed.addresses)
    echo = (await mesh.status())["Echo"]
    assert ("HEALTHY", ["RUNNING"] * 2) == (echo.state, [item.state for item in echo.replicas])
    assert {PID} == {item.pid for item in echo.replicas}


async def test_replica_that_has_not_joined_yet_has_its_process_in_the_status(mesh):
    async def hang(_replica):
        await asyncio.Event().wait()

    mesh.launcher.script = hang
    deploy = asyncio.create_task(mesh.deploy("Echo"))
    await eventually(lambda: mesh.launcher.started, TIMEOUT_S)
    (replica,) = (await mesh.status())["Echo"].replicas
    assert ("STARTING", PID) == (replica.state, replica.pid)
    deploy.cancel()


async def test_replica_gets_its_code_and_options(mesh):
    await mesh.deploy("Echo", max_ongoing_requests=7)

    (replica,) = mesh.launcher.started
    options = DeploymentOptions.from_json(replica.assign.spec.options_json)
    assert ("shop", "Echo", 7, True) == (
        replica.assign.spec.application,
        replica.assign.spec.name,
        options.max_ongoing_requests,
        replica.assign.development,
    )


async def test_replica_that_cannot_be_started_fails_like_one_that_ended(mesh, monkeypatch):
    async def refuse(order):
        raise RuntimeError("no process for you")

    monkeypatch.setattr(mesh.launcher, "start", refuse)

    events = await mesh.deploy("Echo", max_constructor_retry_count=1)

    assert "cannot be started: no process for you" in events[-1].failed.summary


async def test_deploy_fails_with_the_replicas_own_words(mesh):
    mesh.launcher.script = raise_in_constructor

    events = await mesh.deploy("Echo", num_replicas=2)

    failed = events[-1].failed
    assert ("Echo", "ValueError: no model", "Traceback ...") == (
        failed.deployment,
        failed.summary,
        failed.traceback,
    )
    assert "DEPLOY_FAILED" == (await mesh.status())["Echo"].state


async def test_second_deploy_replaces_and_returns_when_only_the_new_one_serves(mesh):
    await mesh.deploy("Echo")
    (old,) = mesh.launcher.started

    events = await mesh.deploy("Echo")

    assert "deployed" == events[-1].WhichOneof("kind")
    async with asyncio.timeout(TIMEOUT_S):
        await old.drained.wait()
    running = [item for item in (await mesh.status())["Echo"].replicas if item.state == "RUNNING"]
    assert [mesh.launcher.started[1].order.replica_id] == [item.replica_id for item in running]


async def test_failed_second_deploy_leaves_the_first_serving(mesh):
    await mesh.deploy("Echo")
    mesh.launcher.script = raise_in_constructor

    events = await mesh.deploy("Echo")

    assert "failed" == events[-1].WhichOneof("kind")
    assert not mesh.launcher.started[0].drained.is_set()
    echo = (await mesh.status())["Echo"]
    assert "HEALTHY" == echo.state
    assert "no model" in echo.message
    assert {1} == {event.progress.wanted for event in events if event.HasField("progress")}


async def test_dead_replica_is_replaced_at_once(mesh):
    await mesh.deploy("Echo", num_replicas=2)
    first = mesh.launcher.started[0]

    await first.end("was killed by SIGKILL")

    await eventually(lambda: len(mesh.launcher.started) == 3, TIMEOUT_S)

    async def all_run():
        replicas = (await mesh.status())["Echo"].replicas
        return ["RUNNING", "RUNNING"] == [item.state for item in replicas]

    await eventually(all_run, TIMEOUT_S)


async def test_unhealthy_replica_is_drained_and_replaced(mesh):
    await mesh.deploy("Echo")
    (replica,) = mesh.launcher.started
    for _ in range(3):
        await replica.unhealthy()

    async with asyncio.timeout(TIMEOUT_S):
        await replica.drained.wait()
    await eventually(lambda: len(mesh.launcher.started) == 2, TIMEOUT_S)


async def test_replica_whose_message_cannot_be_heard_has_left(mesh, monkeypatch):
    """Whatever ends a replica's stream, the controller knows that it ended."""

    def fail(_session, _message):
        raise RuntimeError("a defect")

    await mesh.deploy("Echo")
    monkeypatch.setattr(mesh.controller, "hear", fail)

    await mesh.launcher.started[0].unhealthy()

    await eventually(lambda: not mesh.controller._sessions, TIMEOUT_S)


async def test_watch_brings_a_snapshot_then_deltas(mesh):
    await mesh.deploy("Echo")
    state = ViewState()
    watch = mesh.watch(all=True)
    assert state.apply(await watch.read())
    assert ["shop.Echo"] == list(state.views[ECHO].services)
    assert 1 == len(state.views[ECHO].replicas)

    await mesh.launcher.started[0].leave()

    assert state.apply(await watch.read())
    assert [] == list(state.views[ECHO].replicas)
    assert ["shop.Echo"] == list(state.views[ECHO].services)


async def test_watch_of_one_deployment_leaves_the_others_out(mesh):
    await mesh.deploy("Echo", "Side")
    state = ViewState()
    watch = mesh.watch(deployments=[{"application": "shop", "name": "Echo"}])

    assert state.apply(await watch.read())

    assert {ECHO} == state.views.keys()


async def test_watcher_that_leaves_is_forgotten(mesh):
    watch = mesh.watch(all=True)
    await watch.read()
    assert mesh.controller.registry._groups

    watch.cancel()

    await eventually(lambda: not mesh.controller.registry._groups, TIMEOUT_S)


async def test_delete_returns_when_nothing_is_left(mesh):
    await mesh.deploy("Echo", "Side")

    await mesh.control.Delete(
        control_pb2.DeleteRequest(application="shop"), metadata=proof(TOKEN), timeout=TIMEOUT_S
    )

    assert {} == await mesh.status()
    assert {} == mesh.controller.state.replicas
    assert all(replica.drained.is_set() for replica in mesh.launcher.started)


async def test_delete_of_what_does_not_exist_names_what_does(mesh):
    await mesh.deploy("Echo")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await mesh.control.Delete(
            control_pb2.DeleteRequest(application="shoop"), metadata=proof(TOKEN)
        )

    assert grpc.StatusCode.NOT_FOUND == caught.value.code()
    assert "shop" in str(caught.value.details())


async def test_shutdown_drains_all_and_refuses_new_applications(mesh):
    await mesh.deploy("Echo", num_replicas=2)

    await mesh.control.Shutdown(
        control_pb2.ShutdownRequest(grace_s=5), metadata=proof(TOKEN), timeout=TIMEOUT_S
    )

    assert 5 == mesh.grace_s
    assert {} == mesh.controller.state.replicas
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await mesh.deploy("Echo")
    assert "shutting down" in str(caught.value.details())


@pytest.mark.parametrize(
    ("options_json", "part"),
    [('{"num_replicas": -1}', "num_replicas=-1"), ("{", "not JSON"), ('{"x": 1}', "'x'")],
)
async def test_deploy_of_bad_options_is_refused_by_name(mesh, options_json, part):
    request = control_pb2.DeployRequest(
        application="shop",
        deployments=[mesh_pb2.DeploymentSpec(name="Echo", options_json=options_json)],
    )
    call = mesh.control.Deploy(request, metadata=proof(TOKEN), timeout=TIMEOUT_S)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()

    assert grpc.StatusCode.INVALID_ARGUMENT == caught.value.code()
    assert part in str(caught.value.details())


@pytest.mark.parametrize("token", [None, b"", b"wrong", TOKEN + b"x"])
async def test_call_without_the_token_is_refused(mesh, token):
    metadata = () if token is None else proof(token)
    calls = [
        mesh.control.Status(control_pb2.StatusRequest(), metadata=metadata, timeout=TIMEOUT_S),
        mesh.control.Delete(control_pb2.DeleteRequest(), metadata=metadata, timeout=TIMEOUT_S),
        mesh.control.Shutdown(control_pb2.ShutdownRequest(), metadata=metadata, timeout=TIMEOUT_S),
        mesh.control.Configure(
            control_pb2.ConfigureRequest(request_timeout_s=1), metadata=metadata, timeout=TIMEOUT_S
        ),
        mesh.control.Deploy(
            control_pb2.DeployRequest(), metadata=metadata, timeout=TIMEOUT_S
        ).read(),
        mesh.mesh.Watch(mesh_pb2.WatchRequest(), metadata=metadata, timeout=TIMEOUT_S).read(),
        mesh.mesh.Join(metadata=metadata, timeout=TIMEOUT_S).read(),
    ]
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert grpc.StatusCode.UNAUTHENTICATED == caught.value.code()
    assert mesh.grace_s is None


@pytest.mark.parametrize("theirs", ["9.0.0", "0.99.0", "", "new"])
async def test_version_skew_is_refused_with_both_versions_named(mesh, theirs):
    watch = mesh.mesh.Watch(
        mesh_pb2.WatchRequest(version=theirs), metadata=proof(TOKEN), timeout=TIMEOUT_S
    )

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watch.read()

    assert grpc.StatusCode.FAILED_PRECONDITION == caught.value.code()
    assert theirs in str(caught.value.details())
    assert version() in str(caught.value.details())


async def test_replica_of_an_unknown_deployment_is_refused(mesh):
    call = mesh.mesh.Join(metadata=proof(TOKEN), timeout=TIMEOUT_S)
    hello = mesh_pb2.Hello(application="shop", deployment="Nothing", version=version())
    await call.write(mesh_pb2.ReplicaMessage(hello=hello))

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()

    assert grpc.StatusCode.NOT_FOUND == caught.value.code()


async def test_replica_that_nobody_started_is_named_and_announced(mesh):
    await mesh.deploy("Echo", num_replicas=0)
    call = mesh.mesh.Join(metadata=proof(TOKEN), timeout=TIMEOUT_S)
    hello = mesh_pb2.Hello(application="shop", deployment="Echo", version=version())
    await call.write(mesh_pb2.ReplicaMessage(hello=hello))
    assign = (await call.read()).assign
    ready = mesh_pb2.Ready(endpoints={"address": "127.0.0.1:2"}, services=["shop.Echo"])
    await call.write(mesh_pb2.ReplicaMessage(ready=ready))

    assert assign.replica_id.startswith("Echo#")
    state = ViewState()
    watch = mesh.watch(all=True)
    while not any(view.replicas for view in state.views.values()):
        assert state.apply(await watch.read())
    assert [assign.replica_id] == [item.replica_id for item in state.views[ECHO].replicas]
    call.cancel()
    await eventually(lambda: not mesh.controller.state.replicas, TIMEOUT_S)


async def test_stream_that_does_not_begin_with_hello_is_refused(mesh):
    call = mesh.mesh.Join(metadata=proof(TOKEN), timeout=TIMEOUT_S)
    await call.write(mesh_pb2.ReplicaMessage(health=mesh_pb2.Health()))

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()

    assert grpc.StatusCode.INVALID_ARGUMENT == caught.value.code()


async def test_newer_deploy_ends_the_wait_of_the_older_one(mesh):
    hold = asyncio.Event()

    async def wait_first(replica):
        await hold.wait()
        await serve(replica)

    mesh.launcher.script = wait_first
    first = asyncio.create_task(mesh.deploy("Echo"))
    await eventually(lambda: mesh.launcher.started, TIMEOUT_S)
    second = asyncio.create_task(mesh.deploy("Echo"))

    assert "newer deploy" in (await first)[-1].failed.summary
    hold.set()
    assert "deployed" == (await second)[-1].WhichOneof("kind")


async def test_deploy_goes_on_when_its_driver_leaves(mesh):
    hold = asyncio.Event()

    async def wait_first(replica):
        await hold.wait()
        await serve(replica)

    mesh.launcher.script = wait_first
    task = asyncio.create_task(mesh.deploy("Echo"))
    await eventually(lambda: mesh.launcher.started, TIMEOUT_S)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await eventually(lambda: not mesh.controller._watches, TIMEOUT_S)
    hold.set()

    async def is_healthy():
        return (await mesh.status())["Echo"].state == "HEALTHY"

    await eventually(is_healthy, TIMEOUT_S)


async def test_configure_changes_what_it_names_and_refuses_what_is_no_time(mesh):
    async def configure(**settings):
        request = control_pb2.ConfigureRequest(**settings)
        await mesh.control.Configure(request, metadata=proof(TOKEN), timeout=TIMEOUT_S)

    attending = mesh.ingresses.attend(control_pb2.IngressStatus(id="a"))
    await configure(request_timeout_s=2.5)
    await configure()
    await configure(request_timeout_s=0)
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await configure(request_timeout_s=wrong)
        assert grpc.StatusCode.INVALID_ARGUMENT is caught.value.code()

    commands = [await attending.next() for _ in range(2)]
    assert [2.5, 0.0] == [each.settings.request_timeout_s for each in commands if each]


async def test_starts_wait_while_there_is_no_room_and_status_says_why(mesh):
    """Nothing announces memory that is free again, so it is looked for."""
    mesh.launcher.room_left = Room(0, "5 MiB are left", is_short=True)
    deploying = asyncio.create_task(mesh.deploy("Echo", num_replicas=3))
    await eventually(mesh.status)

    status = await mesh.status()
    message = "0 of 3 replicas are ready; 3 more wait for their turn: 5 MiB are left"
    assert ("UPDATING", message) == (status["Echo"].state, status["Echo"].message)
    assert [] == mesh.launcher.started

    mesh.launcher.room_left = Room(100, "there is room")
    *events, last = await deploying
    assert "deployed" == last.WhichOneof("kind")
    notes = [event.progress.note for event in events]
    assert 1 == notes.count("3 more wait for their turn: 5 MiB are left")
    assert "" == (await mesh.status())["Echo"].message
