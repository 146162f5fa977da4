"""The configuration follows the registry, and the controller that comes after one that died."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from pyserve.config import NodeSettings
from pyserve.control.server.transport import make_server
from pyserve.errors import MeshError, MeshUnavailable
from pyserve.gateway.haproxy import follower
from pyserve.gateway.haproxy.follower import Follower
from pyserve.gateway.haproxy.targets import HaproxyOptions
from pyserve.types import MeshAddress
from pyserve.wire.v1 import control_pb2, control_pb2_grpc, mesh_pb2, mesh_pb2_grpc
from tests.support.waiting import eventually
from tests.unit.gateway.haproxy.fleet import replica, view

_TIMEOUT_S = 20.0


class Controller(mesh_pb2_grpc.MeshServicer, control_pb2_grpc.ControlServicer):
    """Shows a mesh, and each change of it."""

    def __init__(self, *replicas: int) -> None:
        self._changed = asyncio.Condition()
        self._version = 1
        self._replicas = replicas
        self.addresses = ["127.0.0.1:8000", "[::1]:8000"]

    async def show(self, *replicas: int) -> None:
        """Have other replicas from now on."""
        async with self._changed:
            self._replicas, self._version = replicas, self._version + 1
            self._changed.notify_all()

    async def Watch(self, request, context):
        version = 0
        while True:
            async with self._changed:
                while self._version == version:
                    await self._changed.wait()
                update = mesh_pb2.WatchUpdate(base_version=version, version=self._version)
                version = self._version
            replicas = [replica(number) for number in self._replicas]
            update.changed.append(view(services=["pkg.Echo"], replicas=replicas))
            yield update

    async def Status(self, request, context):
        return control_pb2.StatusReply(addresses=self.addresses)


@asynccontextmanager
async def served(controller: Controller, path: Path, token: bytes) -> AsyncIterator[MeshAddress]:
    server = make_server(token)
    mesh_pb2_grpc.add_MeshServicer_to_server(controller, server)
    control_pb2_grpc.add_ControlServicer_to_server(controller, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield MeshAddress(controller=f"unix:{path}", token=token)
    finally:
        await server.stop(0)


class Target:
    """The files that a follower watches, and where it puts texts."""

    def __init__(self) -> None:
        self.address: MeshAddress | None = None
        self.texts: list[str] = []
        self.refusals = 0
        self.options = HaproxyOptions()

    def find(self) -> MeshAddress | None:
        return self.address

    def put(self, text: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise MeshError("HAProxy is not there")
        self.texts.append(text)

    def follower(self) -> Follower:
        node = NodeSettings(node_id="here", zone="")
        return Follower(self.find, node, None, self.options, self.put, interval_s=0.01)

    def has(self, number: int) -> bool:
        return bool(self.texts) and f":{40000 + number} " in self.texts[-1]


@pytest.fixture
def target() -> Target:
    return Target()


@asynccontextmanager
async def following(target: Target) -> AsyncIterator[None]:
    task = asyncio.create_task(target.follower().run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_one_text_for_what_is_there_now(target: Target, tmp_path: Path) -> None:
    async with served(Controller(1, 2), tmp_path / "c", b"token") as target.address:
        text = await target.follower().first()
    assert "127.0.0.1:40001 " in text
    assert "127.0.0.1:40002 " in text
    assert "server ingress0 127.0.0.1:8000" in text


async def test_no_text_without_a_mesh(target: Target, tmp_path: Path) -> None:
    with pytest.raises(MeshUnavailable, match="no mesh runs here"):
        await target.follower().first()


async def test_each_change_makes_a_text(target: Target, tmp_path: Path) -> None:
    controller = Controller(1)
    async with served(controller, tmp_path / "c", b"token") as target.address, following(target):
        await eventually(lambda: target.has(1), _TIMEOUT_S)
        await controller.show(2)
        await eventually(lambda: target.has(2) and not target.has(1), _TIMEOUT_S)
        await controller.show(2)
        await controller.show(3)
        await eventually(lambda: target.has(3), _TIMEOUT_S)
    assert len(set(target.texts)) == len(target.texts), "the same text is not put twice"


async def test_a_text_that_was_not_taken_comes_again(
    target: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target.refusals = 3
    async with (
        served(Controller(1), tmp_path / "c", b"token") as target.address,
        following(target),
    ):
        await eventually(lambda: target.has(1), _TIMEOUT_S)
    assert 1 == caplog.text.count("HAProxy is not there"), "it is said once"


async def test_the_next_controller_is_followed_and_until_then_nothing_changes(
    target: Target, tmp_path: Path
) -> None:
    async with following(target):
        async with served(Controller(1), tmp_path / "a", b"one") as target.address:
            await eventually(lambda: target.has(1), _TIMEOUT_S)
        # Nobody is there, and then somebody elsewhere, with another token.
        target.address = None
        async with served(Controller(1, 2), tmp_path / "b", b"two") as address:
            assert 1 == len(target.texts)
            target.address = address
            await eventually(lambda: target.has(2), _TIMEOUT_S)


async def test_an_ingress_that_comes_later_is_found(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event reports it: a restarted controller knows its replicas first, then the ingress."""
    monkeypatch.setattr(follower, "_REFRESH_S", 0.0)
    monkeypatch.setattr(follower, "_LOOK_INTERVAL_S", 0.01)
    controller = Controller(1)
    controller.addresses = []
    async with served(controller, tmp_path / "c", b"token") as target.address, following(target):
        await eventually(lambda: target.has(1), _TIMEOUT_S)
        assert "ingress0" not in target.texts[-1]
        controller.addresses = ["127.0.0.1:8000"]
        await eventually(lambda: "server ingress0 127.0.0.1:8000" in target.texts[-1], _TIMEOUT_S)
        texts = len(target.texts)
        controller.addresses = []
        await controller.show(2)
        await eventually(lambda: target.has(2), _TIMEOUT_S)
    assert texts + 1 == len(target.texts)
    assert "server ingress0 127.0.0.1:8000" in target.texts[-1], "it was there a moment ago"
