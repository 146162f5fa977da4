"""A file that wants a share of its replicas, over real gRPC and REST, with replicas of the test."""

import asyncio

import pytest

from pyserve.aio.mesh_channel import proof
from pyserve.control.server.transport import RpcError
from pyserve.wire.v1 import control_pb2
from tests.mesh.control.test_applying import application
from tests.mesh.control.test_rest import PATH, Rest, serving
from tests.mesh.control.test_services import TIMEOUT_S, TOKEN

pytestmark = pytest.mark.parity("G-31")
FIXED = {"Main": {"num_replicas": 4}}
SCALED = {
    "Main": {"autoscaling_config": {"min_replicas": 2, "initial_replicas": 4, "max_replicas": 8}}
}


class Shares:
    """A mesh whose whole file is scaled from outside."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.files = rest.files

    async def apply(self, *applications, percent):
        """Apply a file; return each application's last event."""
        call = self.rest.mesh.control.Apply(
            control_pb2.ApplyRequest(applications=applications, target_capacity=percent),
            metadata=proof(TOKEN),
            timeout=TIMEOUT_S,
        )
        return {event.application: event.event async for event in call}

    async def running(self, count, name="shop/Main"):
        """Wait until so many replicas run; return their ids."""
        async with asyncio.timeout(TIMEOUT_S):
            while count != len(found := (await self.files.replicas()).get(name, set())):
                await self.rest.mesh.controller.next_step()
            return found

    async def bounds(self):
        """Return the bounds of autoscaling."""
        (shop,) = (await self.files.reply()).applications
        scaling = shop.deployments[0].scaling
        return scaling.min_replicas, scaling.max_replicas


@pytest.fixture
async def shares(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with serving(tmp_path) as rest:
        yield Shares(rest)


async def test_all_deployments_of_a_file_shrink_and_grow_with_its_share(shares):
    shop, blog = application("shop", **FIXED), application("blog")
    await shares.apply(shop, blog, percent=None)
    before = await shares.running(4)

    last = await shares.apply(shop, blog, percent=50)
    half = await shares.running(2)
    await shares.running(1, "blog/Main")
    assert "deployed" == last["shop"].WhichOneof("kind")
    assert half < before, "the others are left alone"

    # It ends when as many serve.
    await shares.apply(shop, blog, percent=75)
    more = (await shares.files.replicas())["shop/Main"]
    assert (3, True) == (len(more), half < more)

    again = await shares.apply(shop, blog, percent=75)
    assert again["shop"].deployed.unchanged
    assert more == await shares.running(3)

    await shares.apply(shop, blog, percent=None)
    assert more < await shares.running(4)


async def test_at_zero_nothing_runs_and_it_comes_back(shares):
    shop = application("shop", **FIXED)
    await shares.apply(shop, percent=50)
    await shares.running(2)

    await shares.apply(shop, percent=0)
    await shares.running(0)
    (status,) = (await shares.files.reply()).applications
    assert ("RUNNING", "no replica is wanted") == (status.state, status.deployments[0].reason)

    await shares.apply(shop, percent=100)
    await shares.running(4)


async def test_an_application_that_scales_has_its_share_of_the_bounds(shares):
    shop = application("shop", **SCALED)

    # New, so its load grows: what it begins with is the least.
    await shares.apply(shop, percent=50)
    await shares.running(2)
    assert (2, 4) == await shares.bounds()
    await shares.apply(shop, percent=100)
    await shares.running(4)
    assert (2, 8) == await shares.bounds()
    await shares.apply(shop, percent=25)
    await shares.running(2)
    assert (1, 2) == await shares.bounds()

    # Not even calls that wait start one.
    await shares.apply(shop, percent=0)
    await shares.running(0)
    await shares.apply(shop, percent=75)
    await shares.running(3)
    assert (3, 6) == await shares.bounds()


async def test_it_is_told_over_rest_and_grpc(shares):
    shop = application("shop", **FIXED)
    await shares.apply(shop, percent=None)
    assert None is (await shares.rest.client.get(PATH)).json()["target_capacity"]

    await shares.apply(shop, percent=12.5)

    found = (await shares.rest.client.get(PATH)).json()
    main = found["applications"]["shop"]["deployments"]["Main"]
    assert (12.5, 1) == (found["target_capacity"], main["target_num_replicas"])
    reply = await shares.files.reply()
    assert (12.5, 12.5) == (reply.target_capacity, reply.applications[0].target_capacity)
    config = await shares.rest.mesh.control.Config(
        control_pb2.ConfigRequest(), metadata=proof(TOKEN), timeout=TIMEOUT_S
    )
    assert 12.5 == config.target_capacity


async def test_what_programs_deployed_is_not_concerned(shares):
    await shares.rest.mesh.deploy("Echo", num_replicas=2)
    await shares.apply(application("blog", **FIXED), percent=50)

    await shares.running(2, "blog/Main")
    await shares.running(2, "shop/Echo")


async def test_a_deploy_that_fails_leaves_the_share_as_it_was(shares):
    shop = application("shop", **FIXED)
    await shares.apply(shop, percent=50)
    before = await shares.running(2)

    with pytest.raises(RpcError) as refused:
        await shares.apply(shop, percent=101)

    said = refused.value.details() or ""
    assert "target_capacity=101 is not allowed; from 0 to 100" in said
    assert (before, 50) == (
        await shares.running(2),
        (await shares.files.reply()).target_capacity,
    )
