"""Prompts that begin alike go to one replica, as long as that does not overload it."""

from __future__ import annotations

import asyncio
import random

import pytest

import pyserve
from tests.mesh.routing.apps import Prefixes
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

_PREFIXES, _PROMPTS = 48, 8


def run(policy: str) -> pyserve.DeploymentHandle:
    app = Prefixes.options(request_router_config={"policy": policy}).bind()
    return pyserve.run(app, name="prefixes", route_prefix=None)


async def ask(handle: pyserve.DeploymentHandle, prefix: str, rest: str) -> bool:
    return bool(await handle.options(session_id=prefix).remote(f"{prefix}|{rest}"))


async def misses(handle: pyserve.DeploymentHandle) -> int:
    """Return how many prompts had a beginning that was not there, one prompt after the other."""
    prompts = [(f"system {prefix}", f"{n}") for prefix in range(_PREFIXES) for n in range(_PROMPTS)]
    random.Random(7).shuffle(prompts)
    return [await ask(handle, *prompt) for prompt in prompts].count(False)


@pytest.mark.parity("G-74")
async def test_prompts_that_begin_alike_find_what_was_worked_out(base_url: str) -> None:
    """Each prefix misses once, and not once at each of three replicas."""
    assert _PREFIXES == await misses(run("consistent_hash"))
    pyserve.delete("prefixes")
    assert await misses(run("p2c")) > 2 * _PREFIXES


@pytest.mark.parity("G-74")
async def test_a_prefix_that_everybody_asks_for_is_shared_out(base_url: str) -> None:
    """No replica has more than 1.25 times the mean, those who look included: seven of fifteen."""
    handle = run("consistent_hash")
    calls = [asyncio.ensure_future(ask(handle, "hot", "hold")) for _ in range(12)]
    held: list[int] = []

    async def all_held() -> bool:
        held[:] = await handle.broadcast("held")
        return sum(held) == 12

    await eventually(all_held)
    assert max(held) <= 7
    assert min(held) >= 1
    await handle.broadcast("open")
    await asyncio.gather(*calls)
