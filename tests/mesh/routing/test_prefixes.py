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


def run(
    policy: str, *, max_ongoing_requests: int = 20, **config: object
) -> pyserve.DeploymentHandle:
    app = Prefixes.options(
        max_ongoing_requests=max_ongoing_requests,
        request_router_config={"policy": policy, **config},
    ).bind()
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


async def spread(handle: pyserve.DeploymentHandle, count: int) -> list[int]:
    """Return how many of so many calls with one beginning each replica has."""
    calls = [asyncio.ensure_future(ask(handle, "hot", "hold")) for _ in range(count)]
    held: list[int] = []

    async def all_held() -> bool:
        held[:] = await handle.broadcast("held")
        return sum(held) == count

    await eventually(all_held)
    await handle.broadcast("open")
    await asyncio.gather(*calls)
    return held


@pytest.mark.parity("G-74")
async def test_a_prefix_that_everybody_asks_for_is_shared_out(base_url: str) -> None:
    """A share of 43 calls, those who look included, is 18, and three deviations more are 31."""
    held = await spread(run("consistent_hash", max_ongoing_requests=100), 40)
    assert max(held) <= 31
    assert sum(held) - max(held) >= 9


@pytest.mark.parity("G-74")
async def test_a_bound_that_nobody_reaches_keeps_a_prefix_at_one_replica(base_url: str) -> None:
    """Three times the mean of three replicas is all."""
    pyserve.delete("prefixes")  # Its replicas count what was held before.
    handle = run("consistent_hash", max_ongoing_requests=100, load_bound=3)
    assert [0, 0, 40] == sorted(await spread(handle, 40))
