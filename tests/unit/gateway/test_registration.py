"""An ingress of its own and the controllers that follow each other: its watch, and what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from pyserve.aio.mesh_channel import dial
from pyserve.config import NodeSettings
from pyserve.control.server import ingresses
from pyserve.control.server.ingresses import Ingresses, IngressState, add_ingress_service
from pyserve.control.server.transport import RpcError, Server, make_server
from pyserve.gateway import registration
from pyserve.gateway.registration import IngressRegistration
from pyserve.routing.watcher import ViewState, Watcher, Way
from pyserve.types import MeshAddress
from pyserve.wire.v1 import control_pb2, mesh_pb2, mesh_pb2_grpc
from tests.support.waiting import eventually

TIMEOUT_S = 30.0
TOKEN = b"token of 16 bytes"
NODE = NodeSettings(node_id="here", zone="")


class Views(mesh_pb2_grpc.MeshServicer):
    """Sends one view to everybody who watches."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.watches = 0

    async def Watch(
        self, _request: mesh_pb2.WatchRequest, _context: object
    ) -> AsyncIterator[mesh_pb2.WatchUpdate]:
        self.watches += 1
        yield mesh_pb2.WatchUpdate(version=self.version)
        await asyncio.Event().wait()


class Controller:
    """One controller, from its start on."""

    def __init__(self, path: Path, version: int, *, keeps_list: bool = True) -> None:
        self.address = MeshAddress(controller=f"unix:{path}", token=TOKEN)
        self.views = Views(version)
        self.ingresses = Ingresses()
        self.server: Server = make_server(TOKEN)
        mesh_pb2_grpc.add_MeshServicer_to_server(self.views, self.server)
        if keeps_list:
            add_ingress_service(self.server, self.ingresses)
        self.server.add_insecure_port(self.address.controller)

    def states(self) -> dict[str, str]:
        return {each.id: each.state for each in self.ingresses.statuses()}


class FakeServer:
    """What an attendance needs of an ingress."""

    def __init__(self) -> None:
        self.state = IngressState.HEALTHY
        self.on_state: Callable[[], None] = lambda: None
        self.timeouts_s: list[float | None] = []
        self.shown: list[int] = []
        self.may_show = asyncio.Event()
        self.may_show.set()

    def status(self) -> control_pb2.IngressStatus:
        addresses = ["127.0.0.1:8000"] if self.state is IngressState.HEALTHY else []
        return control_pb2.IngressStatus(
            id="i1", node="here", pid=7, state=self.state, addresses=addresses
        )

    async def show(self, version: int, _timeout_s: float) -> None:
        self.shown.append(version)
        await self.may_show.wait()

    def set_request_timeout(self, timeout_s: float | None) -> None:
        self.timeouts_s.append(timeout_s)

    def become(self, state: IngressState) -> None:
        self.state = state
        self.on_state()


class Ingress:
    """A watcher with an attendance beside it, as an ingress process has them."""

    def __init__(self, first: Controller) -> None:
        self.present: MeshAddress | None = first.address
        self.seen: list[int] = []
        self.server = FakeServer()
        self.graces_s: list[float] = []
        self.registration = IngressRegistration(TOKEN, self.server, self._drain)  # type: ignore[arg-type]
        self.watcher = Watcher(
            first.address,
            NODE,
            None,
            self._on_view,
            way=Way(locate=lambda: self.present, beside=self.registration.attend),
        )

    def _on_view(self, state: ViewState) -> None:
        self.seen.append(state.version)

    def _drain(self, grace_s: float) -> asyncio.Task[None]:
        self.graces_s.append(grace_s)

        async def drain() -> None:
            self.server.become(IngressState.DRAINED)

        return asyncio.create_task(drain())


Start = Callable[[str, int], Awaitable[Controller]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a controller by its name and the version of its view."""
    controllers = []

    async def begin(name: str, version: int) -> Controller:
        controller = Controller(tmp_path / name, version)
        await controller.server.start()
        controllers.append(controller)
        return controller

    yield begin
    for each in controllers:
        await each.server.stop(0)


@pytest.fixture
async def first(start: Start) -> Controller:
    return await start("a", 57)


@pytest.fixture
async def ingress(first: Controller) -> AsyncIterator[Ingress]:
    ingress = Ingress(first)
    ingress.watcher.start()
    await ingress.registration.wait_known(TIMEOUT_S)
    yield ingress
    await ingress.watcher.close()


@pytest.mark.parity("G-65")
async def test_changes_of_its_state_are_told(ingress: Ingress, first: Controller) -> None:
    assert {"i1": "HEALTHY"} == first.states()
    ingress.server.become(IngressState.DRAINING)
    await eventually(lambda: first.states() == {"i1": "DRAINING"}, TIMEOUT_S)


async def test_view_is_visible_once_calls_go_by_it(ingress: Ingress, first: Controller) -> None:
    ingress.server.may_show.clear()
    visible = asyncio.create_task(first.ingresses.visible(57))
    await eventually(lambda: ingress.server.shown == [57], TIMEOUT_S)
    # Other commands do not wait for the view.
    await first.ingresses.look()
    assert not visible.done()
    ingress.server.may_show.set()
    await asyncio.wait_for(visible, TIMEOUT_S)


async def test_settings_and_the_end_of_the_mesh_reach_it(
    ingress: Ingress, first: Controller
) -> None:
    first.ingresses.set_request_timeout(1.5)
    await first.ingresses.drain(4.0, TIMEOUT_S)

    assert ([1.5], [4.0]) == (ingress.server.timeouts_s, ingress.graces_s)
    assert {"i1": "DRAINED"} == first.states()


async def test_last_word_is_read_before_the_stream_ends(
    ingress: Ingress, first: Controller
) -> None:
    ingress.server.state = IngressState.DRAINED
    await asyncio.wait_for(ingress.registration.finish(), TIMEOUT_S)

    assert {"i1": "DRAINED"} == first.states()
    assert 1 == first.views.watches, "it does not come again"


async def test_controller_that_takes_the_place_of_another_is_found_where_it_is(
    ingress: Ingress, first: Controller, start: Start
) -> None:
    """Its view counts from the start, and versions that it asks for are those of its own."""
    ingress.present = None
    await first.server.stop(0)
    second = await start("b", 3)
    ingress.present = second.address
    await eventually(second.states, TIMEOUT_S)

    assert {"i1": "HEALTHY"} == second.states()
    assert [57, 3] == ingress.seen
    assert {"i1": "UNHEALTHY"} == first.states()


async def test_both_streams_end_together(ingress: Ingress, first: Controller) -> None:
    (registered,) = first.ingresses._registered_ingresses.values()
    registered.end()
    await eventually(lambda: first.views.watches == 2, TIMEOUT_S)
    await eventually(lambda: first.states() == {"i1": "HEALTHY"}, TIMEOUT_S)
    assert [57, 57] == ingress.seen


async def test_older_controller_that_keeps_no_list_is_followed_all_the_same(
    tmp_path: Path,
) -> None:
    older = Controller(tmp_path / "older", 4, keeps_list=False)
    await older.server.start()
    ingress = Ingress(older)
    ingress.watcher.start()
    try:
        await ingress.registration.wait_known(TIMEOUT_S)
        assert ([4], 1) == (ingress.seen, older.views.watches)
    finally:
        await ingress.watcher.close()
        await older.server.stop(0)


async def test_who_is_known_is_in_the_status_at_once(ingress: Ingress, first: Controller) -> None:
    assert {"i1": "HEALTHY"} == first.states()


async def test_controller_that_does_not_say_what_it_knows_is_not_waited_for(
    first: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of an earlier version."""
    monkeypatch.setattr(ingresses, "_confirm", lambda _registered: None)
    monkeypatch.setattr(registration, "_CONFIRMED_TIMEOUT_S", 0.01)
    ingress = Ingress(first)
    ingress.watcher.start()
    try:
        await ingress.registration.wait_known(TIMEOUT_S)
        await eventually(lambda: {"i1": "HEALTHY"} == first.states())
    finally:
        await ingress.watcher.close()


async def test_first_message_has_to_say_who_it_is(first: Controller, ingress: Ingress) -> None:
    nobody = ingress.registration
    ingress.server.status = control_pb2.IngressStatus  # type: ignore[method-assign]
    async with dial(first.address.controller) as channel:
        with pytest.raises(RpcError, match="a status with id and node"):
            await asyncio.wait_for(nobody.attend(channel), TIMEOUT_S)
