"""grpc.health.v1 and Ray Serve's probes of the ingress, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pyserve import aio
from pyserve.gateway.builtin import (
    NOT_SERVING,
    SERVICE_UNKNOWN,
    SERVING,
    HealthService,
    RayServeApi,
)
from pyserve.wire.rayserve import api_pb2, api_pb2_grpc

_TIMEOUT_S = 30.0
_WATCHERS_MAX = 2


@dataclass
class Probed:
    """A server with both services, and stubs to ask it."""

    service: HealthService
    health: health_pb2_grpc.HealthStub
    ray: api_pb2_grpc.RayServeAPIServiceAsyncStub

    async def check(self, name: str) -> int:
        """Return the status of one service."""
        request = health_pb2.HealthCheckRequest(service=name)
        status: int = (await self.health.Check(request, timeout=_TIMEOUT_S)).status
        return status

    def watch(self, name: str) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Open a stream of statuses."""
        request = health_pb2.HealthCheckRequest(service=name)
        stream: AsyncIterator[health_pb2.HealthCheckResponse]
        stream = self.health.Watch(request, timeout=_TIMEOUT_S)
        return stream


@pytest.fixture
async def probed() -> AsyncIterator[Probed]:
    """Run a server until the test ends."""
    service = HealthService(watchers_max=_WATCHERS_MAX)
    server = aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(service, server)
    api = RayServeApi(lambda: service.is_draining, lambda: {"shop", "bank"})
    api_pb2_grpc.add_RayServeAPIServiceServicer_to_server(api, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Probed(
            service,
            health_pb2_grpc.HealthStub(channel),
            api_pb2_grpc.RayServeAPIServiceStub(channel),
        )
    await server.stop(0)


async def test_check_knows_what_is_shown_and_the_ingress_itself(probed: Probed) -> None:
    probed.service.show({"shop.Cart": SERVING, "shop.Till": NOT_SERVING})

    statuses = [await probed.check(name) for name in ("", "shop.Cart", "shop.Till")]

    assert [SERVING, SERVING, NOT_SERVING] == statuses
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await probed.check("shop.Gone")
    assert grpc.StatusCode.NOT_FOUND is caught.value.code()


async def test_list_has_every_service(probed: Probed) -> None:
    probed.service.show({"shop.Cart": SERVING, "shop.Till": NOT_SERVING})

    answer = await probed.health.List(health_pb2.HealthListRequest(), timeout=_TIMEOUT_S)

    expected = {"": SERVING, "shop.Cart": SERVING, "shop.Till": NOT_SERVING}
    assert expected == {name: item.status for name, item in answer.statuses.items()}


async def test_watch_follows_a_service_that_comes_changes_and_goes(probed: Probed) -> None:
    statuses = aiter(probed.watch("shop.Cart"))
    seen = [(await anext(statuses)).status]

    for shown in ({"shop.Cart": NOT_SERVING}, {"shop.Cart": SERVING, "other": SERVING}, {}):
        probed.service.show(shown)
        seen.append((await anext(statuses)).status)

    assert [SERVICE_UNKNOWN, NOT_SERVING, SERVING, SERVICE_UNKNOWN] == seen


async def test_watch_is_told_of_changes_of_its_own_service_only(probed: Probed) -> None:
    probed.service.show({"mine": SERVING})
    statuses = aiter(probed.watch("mine"))
    assert SERVING == (await anext(statuses)).status

    next_status = asyncio.ensure_future(anext(statuses))
    for number in range(20):
        probed.service.show({"mine": SERVING, f"other{number}": SERVING})
        assert SERVING == await probed.check(f"other{number}")
    probed.service.show({"mine": NOT_SERVING})

    assert NOT_SERVING == (await next_status).status


async def test_watches_have_a_bound_and_give_their_places_back(probed: Probed) -> None:
    streams = [probed.watch("mine") for _ in range(_WATCHERS_MAX)]
    for stream in streams:
        await anext(aiter(stream))

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(probed.watch("mine")))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is caught.value.code()

    for stream in streams:
        stream.cancel()

    async def is_free() -> bool:
        stream = probed.watch("mine")
        try:
            await anext(aiter(stream))
        except grpc.aio.AioRpcError:
            return False
        stream.cancel()
        return True

    async with asyncio.timeout(_TIMEOUT_S):
        while not await is_free():
            pass


@pytest.mark.parity("G-44")
async def test_ray_serves_probes_are_answered(probed: Probed) -> None:
    healthz = await probed.ray.Healthz(api_pb2.HealthzRequest(), timeout=_TIMEOUT_S)
    listed = await probed.ray.ListApplications(
        api_pb2.ListApplicationsRequest(), timeout=_TIMEOUT_S
    )

    assert ("success", ["bank", "shop"]) == (healthz.message, list(listed.application_names))


@pytest.mark.parity("G-47")
async def test_drain_turns_everything_over_and_cannot_be_taken_back(probed: Probed) -> None:
    probed.service.show({"shop.Cart": SERVING})
    statuses = aiter(probed.watch("shop.Cart"))
    assert SERVING == (await anext(statuses)).status

    probed.service.begin_drain()
    probed.service.show({"shop.Cart": SERVING})

    assert NOT_SERVING == (await anext(statuses)).status
    assert [NOT_SERVING] * 2 == [await probed.check(name) for name in ("", "shop.Cart")]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await probed.ray.Healthz(api_pb2.HealthzRequest(), timeout=_TIMEOUT_S)
    assert grpc.StatusCode.UNAVAILABLE is caught.value.code()
