"""A file's applications over real gRPC: what is rolled, kept, deleted, and what is refused."""

import asyncio
import json

import pytest

from pyserve.aio.mesh_channel import proof
from pyserve.config import DeploymentOptions
from pyserve.control.server.transport import RpcError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from pyserve.wire.v1 import control_pb2, mesh_pb2
from tests.mesh.control.fakes import raise_in_constructor, serve
from tests.mesh.control.test_services import TIMEOUT_S, TOKEN, Mesh


def application(name, *deployments, prefix=None, code=b"one", **options):
    """Return one application as a file's reader sends it."""
    specs = [
        mesh_pb2.DeploymentSpec(
            name=each,
            code=mesh_pb2.Code(import_path=f"{name}:{each}", fingerprint=code),
            options_json=DeploymentOptions.of(options.get(each, {})).to_json(),
        )
        for each in deployments or ("Main",)
    ]
    return control_pb2.DeployRequest(
        application=name,
        deployments=specs,
        ingress_deployment=specs[0].name,
        route_prefix=f"/{name}" if prefix is None else prefix,
        declaration_json=json.dumps({"name": name}),
    )


async def serve_http(replica):
    """The script of a replica that takes plain HTTP."""
    await replica.join()
    await replica.ready(http=True)
    await replica.serve_until_drained()


class Files:
    """A mesh to which files are applied."""

    def __init__(self, mesh):
        self.mesh = mesh

    async def apply(self, *applications, run=None):
        """Apply a file; return each application's last event."""
        call = self.mesh.control.Apply(
            control_pb2.ApplyRequest(applications=applications, run=run),
            metadata=proof(TOKEN),
            timeout=TIMEOUT_S,
        )
        return {event.application: event.event async for event in call}

    async def refusal(self, *applications):
        with pytest.raises(RpcError) as refused:
            await self.apply(*applications)
        return refused.value.details()

    async def reply(self):
        return await self.mesh.control.Status(
            control_pb2.StatusRequest(), metadata=proof(TOKEN), timeout=TIMEOUT_S
        )

    async def replicas(self):
        """Return the ids of the replicas that run, by application and deployment."""
        return {
            f"{application.name}/{deployment.name}": {
                replica.replica_id for replica in deployment.replicas if replica.state == "RUNNING"
            }
            for application in (await self.reply()).applications
            for deployment in application.deployments
        }

    async def prefixes(self):
        return {each.name: each.route_prefix for each in (await self.reply()).applications}


@pytest.fixture
async def files(tmp_path):
    mesh = Mesh(tmp_path / "c.sock")
    await mesh.server.start()
    try:
        yield Files(mesh)
    finally:
        await mesh.channel.close()
        await mesh.controller.close()
        await mesh.server.stop(0)


@pytest.mark.parity("G-62")
async def test_what_a_file_changes_is_rolled_and_the_rest_left_alone(files):
    await files.apply(application("shop", "Front", "Cart"), application("blog"))
    before = await files.replicas()

    last = await files.apply(
        application("shop", "Front", "Cart", Cart={"env_vars": {"A": "1"}}), application("blog")
    )
    after = await files.replicas()

    assert {"shop": False, "blog": True} == {
        name: event.deployed.unchanged for name, event in last.items()
    }
    assert before["blog/Main"] == after["blog/Main"]
    assert before["shop/Front"] == after["shop/Front"]
    assert not before["shop/Cart"] & after["shop/Cart"]


@pytest.mark.parity("G-62")
async def test_an_edited_source_file_rolls_the_application_that_rests_upon_it(files):
    await files.apply(application("shop"), application("blog"))
    before = await files.replicas()

    await files.apply(application("shop", code=b"two"), application("blog"))
    after = await files.replicas()

    assert before["blog/Main"] == after["blog/Main"]
    assert not before["shop/Main"] & after["shop/Main"]


@pytest.mark.parity("G-22")
async def test_other_limits_in_a_file_keep_the_replicas(files):
    await files.apply(application("shop"))
    before = await files.replicas()

    last = await files.apply(application("shop", Main={"max_ongoing_requests": 3}))

    assert not last["shop"].deployed.unchanged
    assert before == await files.replicas()


@pytest.mark.parity("G-62")
async def test_applications_that_the_file_lacks_end_and_those_of_programs_stay(files):
    await files.mesh.deploy("Echo")  # The application "shop", by a program.
    await files.apply(application("blog"), application("wiki"))

    last = await files.apply(application("wiki"))

    assert None is last["blog"].WhichOneof("kind")
    assert {"shop", "wiki"} == (await files.prefixes()).keys()


async def test_a_run_deletes_what_its_own_file_lacks_only(files):
    run = control_pb2.Run(id="one", pid=1)
    await files.apply(application("blog"))
    await files.apply(application("shop"), application("wiki"), run=run)

    await files.apply(application("wiki"), run=run)

    assert {"blog", "wiki"} == (await files.prefixes()).keys()


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (application("wiki", "Bad-", Main={}), "is not allowed"),
        (application("wiki", prefix="/shop"), "route_prefix '/shop' stands at several"),
        (application("shop", prefix="/2"), "application 'shop' stands at several"),
        (application("wiki", prefix="/held"), "belongs to application 'other'"),
        (application("wiki", Main={"traffic": {"blog": 0.5}}), "traffic of wiki/Main"),
        (application("wiki", "Main", "Main"), "two deployments"),
    ],
)
@pytest.mark.parity("G-62")
async def test_one_application_that_is_refused_changes_nothing(files, second, said):
    files.mesh.launcher.script = serve_http
    # "blog" would be deleted, were the file not refused.
    await files.apply(application("shop"), application("blog"))
    other = application("other", prefix="/held")
    other.ClearField("declaration_json")
    call = files.mesh.control.Deploy(other, metadata=proof(TOKEN), timeout=TIMEOUT_S)
    assert "deployed" == [each async for each in call][-1].WhichOneof("kind")
    before, started = await files.reply(), len(files.mesh.launcher.started)
    second.deployments[0].name = second.deployments[0].name.replace("-", "!")

    assert said in await files.refusal(application("shop", code=b"two"), second)

    assert before.applications == (await files.reply()).applications
    assert started == len(files.mesh.launcher.started)


async def test_applications_swap_prefixes_and_inherit_those_of_ones_that_end(files):
    files.mesh.launcher.script = serve_http
    await files.apply(application("shop"), application("blog"), application("wiki"))

    await files.apply(
        application("shop", prefix="/blog"),
        application("blog", prefix="/shop"),
        application("news", prefix="/wiki"),
    )

    assert {"shop": "/blog", "blog": "/shop", "news": "/wiki"} == await files.prefixes()


async def test_a_file_that_goes_back_after_a_failure_starts_nothing(files):
    await files.apply(application("shop"))
    before = await files.replicas()
    files.mesh.launcher.script = raise_in_constructor
    failed = await files.apply(application("shop", code=b"two"))
    assert "no model" in failed["shop"].failed.summary
    started = len(files.mesh.launcher.started)

    last = await files.apply(application("shop"))

    assert last["shop"].deployed.unchanged
    assert (before, started) == (await files.replicas(), len(files.mesh.launcher.started))
    assert ["RUNNING"] == [each.state for each in (await files.reply()).applications]


async def test_a_failed_application_is_tried_again_by_the_same_file(files):
    files.mesh.launcher.script = raise_in_constructor
    await files.apply(application("shop"))
    files.mesh.launcher.script = serve

    last = await files.apply(application("shop"))

    assert "deployed" == last["shop"].WhichOneof("kind")
    assert not last["shop"].deployed.unchanged


@pytest.mark.parity("G-63")
async def test_the_configuration_is_what_the_last_file_said(files):
    await files.mesh.deploy("Echo")
    await files.apply(application("wiki"), application("blog"))

    reply = await files.mesh.control.Config(
        control_pb2.ConfigRequest(), metadata=proof(TOKEN), timeout=TIMEOUT_S
    )

    assert [("blog", {"name": "blog"}), ("wiki", {"name": "wiki"})] == [
        (each.application, json.loads(each.json)) for each in reply.declarations
    ]


async def test_the_status_is_sent_again_when_it_changes(files):
    replies = files.mesh.control.WatchStatus(
        control_pb2.StatusRequest(), metadata=proof(TOKEN), timeout=TIMEOUT_S
    )
    assert [] == list((await replies.read()).applications)
    may_serve = asyncio.Event()

    async def serve_later(replica):
        await may_serve.wait()
        await serve(replica)

    files.mesh.launcher.script = serve_later
    deploy = asyncio.create_task(files.apply(application("shop")))
    states = ["DEPLOYING"]
    while states[-1] == "DEPLOYING":
        reply = await replies.read()
        states += [each.state for each in reply.applications]
        may_serve.set()
    await deploy

    assert ["DEPLOYING", "DEPLOYING", "RUNNING"] == [*states[:2], states[-1]]
    replies.cancel()


async def test_logs_are_those_kept_and_those_that_come(files):
    await files.apply(application("shop"))
    key = DeploymentKey(ApplicationName("shop"), DeploymentName("Main"))
    output = files.mesh.controller.output
    for text in ("one", "two", "three"):
        output.add(key, ReplicaId("r"), text)

    lines = files.mesh.control.Logs(
        control_pb2.LogsRequest(deployment="Main", follow=True, lines_max=2),
        metadata=proof(TOKEN),
        timeout=TIMEOUT_S,
    )
    kept = [(await lines.read()).line for _ in range(2)]
    output.add(key, ReplicaId("r"), "four")

    assert (["two", "three"], "four") == (kept, (await lines.read()).line)
    lines.cancel()
    with pytest.raises(RpcError) as refused:
        await files.mesh.control.Logs(
            control_pb2.LogsRequest(deployment="Mian"), metadata=proof(TOKEN), timeout=TIMEOUT_S
        ).read()
    assert "did you mean 'Main'?" in str(refused.value.details())


async def test_a_driver_that_goes_leaves_its_file_going_on(files):
    call = files.mesh.control.Apply(
        control_pb2.ApplyRequest(applications=[application("shop")]),
        metadata=proof(TOKEN),
        timeout=TIMEOUT_S,
    )
    await call.read()
    call.cancel()

    async def runs():
        return ["RUNNING"] == [each.state for each in (await files.reply()).applications]

    async with asyncio.timeout(TIMEOUT_S):
        while not await runs():
            await files.mesh.controller.next_step()
