"""An ingress process, run in this one: it waits, listens, outlives controllers, and drains."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from pyserve.config import read_settings
from pyserve.errors import MeshError
from pyserve.gateway.process import IngressProcess
from tests.support.waiting import eventually
from tests.unit.gateway.test_registration import TIMEOUT_S, TOKEN, Controller

Restart = Callable[[], Awaitable[Controller]]


class Running:
    """An ingress that runs, and what it reports."""

    def __init__(self, folder: Path, token_file: Path) -> None:
        self._said: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        settings = read_settings(
            {
                "PYSERVE_HOME": str(folder),
                "PYSERVE_NODE_ID": "here",
                "PYSERVE_CONTROLLER": f"unix:{folder / 'c.sock'}",
                "PYSERVE_TOKEN_FILE": str(token_file),
            }
        )
        run_dir = folder / "run"
        run_dir.mkdir(exist_ok=True)

        def say(answer: Mapping[str, object], _line: str) -> None:
            self._said.put_nowait(answer)

        ingress = IngressProcess(["127.0.0.1:0"], settings, run_dir, say=say)
        self.task = asyncio.create_task(ingress.run_alone(None))

    async def says(self) -> Mapping[str, Any]:
        """Return what it says next."""
        return await asyncio.wait_for(self._said.get(), TIMEOUT_S)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.task, TIMEOUT_S)

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(TOKEN.hex())
    return path


@pytest.fixture
async def restart(tmp_path: Path) -> AsyncIterator[Restart]:
    """Start a controller in the place of the one before; each counts its view from the start."""
    controllers: list[Controller] = []

    async def begin() -> Controller:
        for each in controllers:
            await each.server.stop(0)
        controller = Controller(tmp_path / "c.sock", 9 - len(controllers))
        await controller.server.start()
        controllers.append(controller)
        return controller

    yield begin
    for each in controllers:
        await each.server.stop(0)


@pytest.fixture
async def ingress(tmp_path: Path, token_file: Path) -> AsyncIterator[Running]:
    running = Running(tmp_path, token_file)
    yield running
    await running.close()


async def healthz(address: str) -> int:
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.get(f"http://{address}/-/healthz", timeout=TIMEOUT_S)
    return answer.status_code


async def test_waits_for_a_controller_then_listens_and_says_so(
    ingress: Running, restart: Restart, caplog: pytest.LogCaptureFixture
) -> None:
    await eventually(lambda: "this ingress waits for one" in caplog.text, TIMEOUT_S)
    controller = await restart()
    (address,) = (await ingress.says())["addresses"]

    assert 503 == await healthz(address), "it answers, that there is no application"
    await eventually(lambda: controller.ingresses.addresses() == (address,), TIMEOUT_S)


@pytest.mark.parity("G-63")
async def test_serves_on_without_its_controller_and_comes_to_the_next_one(
    ingress: Running, restart: Restart
) -> None:
    first = await restart()
    (address,) = (await ingress.says())["addresses"]
    await first.server.stop(0)
    assert 503 == await healthz(address), "it answers, that there is no application"
    second = await restart()
    await eventually(lambda: second.ingresses.addresses() == (address,), TIMEOUT_S)

    # The ingress shows the view of the controller that asks.
    await asyncio.wait_for(second.ingresses.visible(second.views.version), TIMEOUT_S)
    assert not ingress.task.done()


@pytest.mark.parity("G-63")
async def test_end_of_the_mesh_is_its_end(ingress: Running, restart: Restart) -> None:
    controller = await restart()
    await ingress.says()
    await eventually(controller.ingresses.addresses, TIMEOUT_S)
    await controller.ingresses.drain(1.0, TIMEOUT_S)

    assert {"ends": "mesh"} == await ingress.says()
    assert 0 == await ingress.ended()
    assert ["DRAINED"] == [each.state for each in controller.ingresses.statuses()]


@pytest.mark.parity("G-65")
async def test_signal_drains_it(ingress: Running, restart: Restart) -> None:
    controller = await restart()
    await ingress.says()
    os.kill(os.getpid(), signal.SIGTERM)

    assert 0 == await ingress.ended()
    assert ["DRAINED"] == [each.state for each in controller.ingresses.statuses()]


async def test_signal_while_it_waits_ends_it(
    ingress: Running, caplog: pytest.LogCaptureFixture
) -> None:
    await eventually(lambda: "this ingress waits for one" in caplog.text, TIMEOUT_S)
    os.kill(os.getpid(), signal.SIGTERM)

    assert 0 == await ingress.ended()


async def test_mesh_with_another_token_is_another_mesh(
    ingress: Running, restart: Restart, token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await restart()
    await ingress.says()
    await asyncio.to_thread(token_file.write_text, "00" * 32)
    await first.server.stop(0)

    assert 1 == await ingress.ended()
    assert "another token than before" in caplog.text


async def test_controller_that_refuses_is_an_error(
    ingress: Running, restart: Restart, token_file: Path
) -> None:
    await asyncio.to_thread(token_file.write_text, "00" * 32)
    await restart()

    with pytest.raises(MeshError, match="refuses this ingress"):
        await ingress.ended()
