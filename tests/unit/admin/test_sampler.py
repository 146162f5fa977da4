"""Looks are taken while somebody watches, once for all viewers."""

import asyncio

import pytest

from pyserve.admin.api.overview import Between
from pyserve.admin.api.sampler import VIEWERS_MAX, Sampler, TooManyViewers
from pyserve.admin.api.snapshot import MeshSnapshot
from pyserve.errors import MeshUnavailable
from tests.unit.admin.builders import CART, attempts, look, routed

_PATIENCE_S = 30.0


class Mesh:
    """Counts how often it is looked at; ten calls come between two looks."""

    def __init__(self) -> None:
        self.looks = 0
        self.failures = 0
        self.is_gone = False

    async def take(self) -> MeshSnapshot:
        self.looks += 1
        if self.is_gone:
            self.failures += 1
            raise MeshUnavailable("the controller does not answer")
        return look(float(self.looks), {CART: routed(Cart_1=attempts(10 * self.looks, 0.005))})


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


@pytest.fixture
def sampler(mesh: Mesh) -> Sampler:
    return Sampler(mesh.take, interval_s=0.001, first_interval_s=0.001)


async def test_nobody_looks_while_nobody_watches(mesh: Mesh, sampler: Sampler):
    async with asyncio.timeout(_PATIENCE_S):
        viewer = sampler.watch()
        await anext(viewer)
        await viewer.aclose()
        await asyncio.sleep(0)
        seen = mesh.looks
        await asyncio.sleep(0.05)
    assert (seen, 0) == (mesh.looks, sampler.viewers)


async def test_viewers_share_the_looks(mesh: Mesh, sampler: Sampler):
    async with asyncio.timeout(_PATIENCE_S):
        viewers = [sampler.watch() for _ in range(5)]
        firsts = await asyncio.gather(*(anext(viewer) for viewer in viewers))
        looks = mesh.looks
        assert all(first is firsts[0] for first in firsts)
        for viewer in viewers:
            await viewer.aclose()
    assert looks < 2 * len(viewers)


async def test_each_look_is_compared_with_the_one_before(sampler: Sampler):
    async with asyncio.timeout(_PATIENCE_S):
        viewer = sampler.watch()
        found = [await anext(viewer) for _ in range(3)]
        await viewer.aclose()
    assert [10, 10, 10] == [
        each.routed["shop/Cart"].counts["calls"] for each in found if isinstance(each, Between)
    ]


async def test_one_viewer_too_many_is_refused(sampler: Sampler):
    async with asyncio.timeout(_PATIENCE_S):
        viewers = [sampler.watch() for _ in range(VIEWERS_MAX)]
        await asyncio.gather(*(anext(viewer) for viewer in viewers))
        with pytest.raises(TooManyViewers, match="close one"):
            await anext(sampler.watch())
        await viewers.pop().aclose()
        another = sampler.watch()
        assert isinstance(await anext(another), Between)
        for viewer in (*viewers, another):
            await viewer.aclose()
    assert 0 == sampler.viewers


async def test_viewers_are_told_what_is_wrong_and_see_it_pass(mesh: Mesh, sampler: Sampler):
    mesh.is_gone = True
    async with asyncio.timeout(_PATIENCE_S):
        viewer = sampler.watch()
        trouble = await anext(viewer)
        assert isinstance(trouble, MeshUnavailable)
        mesh.is_gone = False
        while isinstance(found := await anext(viewer), MeshUnavailable):
            pass
        assert isinstance(found, Between)
        await viewer.aclose()


async def test_who_asks_once_gets_two_looks_and_shares_them(mesh: Mesh, sampler: Sampler):
    async with asyncio.timeout(_PATIENCE_S):
        one, other = await asyncio.gather(sampler.once(), sampler.once())
    assert one is other
    assert 2 == mesh.looks


async def test_who_asks_once_while_others_watch_costs_nothing(mesh: Mesh):
    sampler = Sampler(mesh.take, interval_s=60.0, first_interval_s=0.001)
    async with asyncio.timeout(_PATIENCE_S):
        viewer = sampler.watch()
        latest = await anext(viewer)
        looks = mesh.looks
        assert latest is await sampler.once()
        await viewer.aclose()
    assert looks == mesh.looks


async def test_who_asks_once_of_a_mesh_that_is_gone_is_told(mesh: Mesh, sampler: Sampler):
    mesh.is_gone = True
    async with asyncio.timeout(_PATIENCE_S):
        with pytest.raises(MeshUnavailable):
            await sampler.once()


async def test_a_look_of_a_minute_ago_is_what_replicas_are_compared_since():
    at_s = iter(range(0, 1000, 5))

    async def take() -> MeshSnapshot:
        now = next(at_s)
        fast = attempts(200 + now, 0.005)
        was_slow = attempts(200, 0.9).plus(attempts(now, 0.005))
        return look(float(now), {CART: routed(Cart_1=was_slow, Cart_2=fast)})

    sampler = Sampler(take, interval_s=0.0, first_interval_s=0.0)
    async with asyncio.timeout(_PATIENCE_S):
        viewer = sampler.watch()
        first = await anext(viewer)
        assert isinstance(first, Between)
        assert ["Cart#1"] == list(first.outliers)
        while isinstance(found := await anext(viewer), Between) and found.outliers:
            pass
        await viewer.aclose()
