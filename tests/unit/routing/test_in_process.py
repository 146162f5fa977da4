"""The router inside a process: one stream to the controller, whatever the number of handles."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from pyserve.config import NodeSettings
from pyserve.control.server.transport import make_server
from pyserve.errors import MeshUnavailable
from pyserve.routing.in_process import InProcessRouter
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, MeshAddress
from pyserve.wire.v1 import mesh_pb2_grpc
from tests.support.waiting import eventually
from tests.unit.routing.test_watcher import TOKEN, Controller, snapshot

NAMES = ["a", "b", "c"]
HANDLES = 150  # More than Ray Serve caches.


def key(name: str) -> DeploymentKey:
    return DeploymentKey(ApplicationName("shop"), DeploymentName(name))


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.mark.parity("S-83", "S-84")
async def test_handles_share_a_stream_and_the_routers(
    controller: Controller, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path / 'c.sock'}"
    server = make_server(TOKEN)
    mesh_pb2_grpc.add_MeshServicer_to_server(controller, server)
    server.add_insecure_port(address)
    await server.start()
    router = InProcessRouter(
        MeshAddress(controller=address, token=TOKEN), NodeSettings(node_id="here", zone="z")
    )
    try:
        controller.updates.put_nowait(snapshot(1, *NAMES))
        keys = [key(NAMES[number % len(NAMES)]) for number in range(HANDLES)]
        callers = await asyncio.gather(*(asyncio.to_thread(router.caller, each) for each in keys))
        channels = [await asyncio.to_thread(router.open_channel, each) for each in keys]

        assert len(NAMES) == len({id(each) for each in callers})
        assert len(controller.requests) == 1

        # The next message of the stream reaches all of them.
        controller.updates.put_nowait(snapshot(2, *NAMES, "d"))
        await eventually(lambda: router.knows(key("d")))
        assert len(controller.requests) == 1
        for channel in channels:
            await channel.close()
    finally:
        await asyncio.to_thread(router.close)
        await server.stop(0)


def test_the_end_of_one_whose_controller_is_gone_waits_for_nobody(tmp_path: Path) -> None:
    address = MeshAddress(controller=f"unix:{tmp_path}/nobody.sock", token=TOKEN)
    router = InProcessRouter(address, NodeSettings(node_id="n"))
    router.prepare()
    running = router._running
    assert running is not None
    failures: list[BaseException] = []

    def await_view() -> None:
        try:
            running.await_view(1)
        except MeshUnavailable as error:
            failures.append(error)

    waiting = threading.Thread(target=await_view)
    waiting.start()
    ending = threading.Thread(target=router.close)
    ending.start()

    # The first view has twenty seconds to come.
    ending.join(10)
    assert not ending.is_alive()
    waiting.join(10)
    assert ["the mesh of this handle has been shut down"] == [str(each) for each in failures]
