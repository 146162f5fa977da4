"""Who answers at a replica's address has to prove the mesh token before it gets a call."""

from __future__ import annotations

import grpc
import pytest

from pyserve import _router, aio
from tests.mesh.hostile.impostor import Impostor
from tests.support.routes import native_route, replica_view

_ID = "Echo#r1"
_PATH = "/app.Echo/Call"


@pytest.mark.parametrize(
    ("proves_itself", "calls"),
    [
        (True, []),
        # As replicas of releases before, which could not; so the impostor is one that works.
        (False, [_PATH]),
    ],
)
async def test_a_call_goes_to_an_impostor_only_where_replicas_prove_nothing(
    proves_itself: bool, calls: list[str]
) -> None:
    impostor = Impostor(_ID)
    with impostor.listening() as port:
        channel = aio.Channel(_channel_to(port, proves_itself=proves_itself))
        call = channel.unary_unary(_PATH)(b"secret", timeout=2.0)
        with pytest.raises(grpc.aio.AioRpcError):  # The impostor's answer has no message either.
            await call
        await channel.close()
    assert impostor.greeted.is_set()
    assert calls == impostor.calls


def _channel_to(port: int, *, proves_itself: bool) -> _router.Channel:
    route = native_route(
        [replica_view(_ID, port, proves_itself=proves_itself)],
        {"app.Echo": ["Call"]},
        max_queued_requests=10,
        max_request_bytes=1024,
    )
    table = _router.RoutingTable(node="n", zone="", token=b"token", seed=1)
    table.apply(1, [route])
    return _router.Channel("app/Echo", table=table)
