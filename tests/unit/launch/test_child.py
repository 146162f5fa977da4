"""One supervised process: what it reports, and its ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pyserve.errors import MeshError, MeshHeld
from pyserve.launch import supervisor as module
from pyserve.launch.supervisor import Child

TIMEOUT_S = 20.0
READY = '{"addresses": ["here:1"]}'

Start = Callable[..., Awaitable[Child]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a program that writes lines and waits; it ends with the test."""
    children = []

    async def begin(*arguments: str) -> Child:
        child = await Child.start("the part", "tests.unit.launch.reporting", arguments, {})
        children.append(child)
        return child

    yield begin
    for each in children:
        await each.kill()


async def test_report_is_what_it_says_first(start: Start) -> None:
    child = await start(READY)

    assert {"addresses": ["here:1"]} == await child.ready(TIMEOUT_S)
    assert await child.end(TIMEOUT_S, asyncio.Event())
    assert "ended with status 0" in child.how_it_ended()


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (('{"error": "port 1 is taken"}',), MeshError, "port 1 is taken"),
        (('{"error": "held", "is_held": true}',), MeshHeld, "held"),
        (("--end=3",), MeshError, r"the part \(process \d+\) ended with status 3 while it started"),
    ],
)
async def test_start_that_fails_says_why(
    arguments: tuple[str, ...], kind: type[MeshError], says: str, start: Start
) -> None:
    child = await start(*arguments)
    with pytest.raises(kind, match=says):
        await child.ready(TIMEOUT_S)


async def test_start_that_takes_too_long_is_killed(start: Start) -> None:
    child = await start("--deaf")
    with pytest.raises(MeshError, match=r"did not start within 0\.2 s"):
        await child.ready(0.2)
    assert "was ended by signal 9 (SIGKILL)" in child.how_it_ended()


async def test_end_that_takes_too_long_is_a_kill(start: Start) -> None:
    child = await start(READY, "--deaf")
    await child.ready(TIMEOUT_S)

    assert not await child.end(0.2, asyncio.Event())
    assert "SIGKILL" in child.how_it_ended()


async def test_hurry_is_a_second_signal(start: Start) -> None:
    child = await start(READY, "--slow")
    await child.ready(TIMEOUT_S)
    hurry = asyncio.Event()
    ending = asyncio.create_task(child.end(TIMEOUT_S, hurry))
    hurry.set()

    assert await asyncio.wait_for(ending, TIMEOUT_S)
    assert "ended with status 1" in child.how_it_ended()


async def test_hurry_without_effect_is_a_kill(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HURRY_TIMEOUT_S", 0.2)
    child = await start(READY, "--deaf")
    await child.ready(TIMEOUT_S)
    hurry = asyncio.Event()
    hurry.set()

    assert not await child.end(TIMEOUT_S, hurry)


async def test_word_on_the_end_of_the_mesh_is_known_when_it_has_ended(start: Start) -> None:
    child = await start(READY, '{"ends": "mesh"}', "--end=0")
    await child.ready(TIMEOUT_S)

    assert 0 == await child.wait()
    assert child.ends_with_mesh
