"""The echo service on pyserve's own server: what is left of calls that nobody waits for."""

import grpc
import pytest

from pyserve import aio
from services.echo import echo_pb2, echo_pb2_grpc
from services.echo.service import Echo
from tests.support.waiting import eventually, wait_until


@pytest.fixture
async def server():
    server = aio.server()
    echo_pb2_grpc.add_EchoServicer_to_server(Echo.target(), server)  # type: ignore[attr-defined]
    server.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield server
    await server.stop(None)


@pytest.mark.parametrize("method", ["Perform", "PerformStream", "Collect", "PerformSync"])
async def test_a_call_cancelled_in_the_turn_in_which_it_came_leaves_nothing(server, method):
    """Its task is cancelled before its first step, so that no line of the handler runs.

    The loop stands still while the call comes and goes: it finds both in one batch of events.
    """
    requests = {
        "Perform": echo_pb2.PerformRequest(delay_s=60),
        "PerformSync": echo_pb2.PerformRequest(delay_s=0.01),
        "PerformStream": echo_pb2.PerformStreamRequest(messages=1, each={"delay_s": 60}),
        "Collect": iter([echo_pb2.PerformRequest(delay_s=60)]),
    }

    def wait_for(name, number):
        wait_until(lambda: server._native.stats()[name] == number)

    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = getattr(echo_pb2_grpc.EchoStub(channel), method)
        start = call if method == "PerformStream" else call.future
        for number in range(1, 4):
            running = start(requests[method], timeout=30)
            wait_for("calls", number)
            running.cancel()
            wait_for("cancelled_by_client", number)
    await eventually(lambda: server._native.in_flight() == 0)
    await eventually(lambda: not server._contexts())
