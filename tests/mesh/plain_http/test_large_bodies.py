"""Large bodies between ingress and replicas go through memory that both share."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest

import pyserve
from tests.mesh.plain_http import apps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_MIB = 1 << 20
_ARENA = "pyserve-arena"


def replica_pid(application: str) -> int:
    (replica,) = pyserve.status().applications[application].deployments["Web"].replicas
    return int(replica.pid)


def ingress_pid() -> int:
    (ingress,) = pyserve.status().ingresses
    return int(ingress.pid)


def arenas(pid: int) -> int:
    """Return how many arenas a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count(_ARENA)


def resident_kib(pid: int) -> int:
    """Return how much memory of its arenas a process has touched and not given back."""
    found, is_arena = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if not first.endswith(":"):
            is_arena = _ARENA in line
        elif is_arena and first == "Rss:":
            found += int(line.split()[1])
    return found


def test_a_large_body_needs_memory_for_as_long_as_it_is_on_its_way(client: httpx.Client) -> None:
    body = os.urandom(_MIB)
    assert client.post("/echo", content=body).content == body
    # It has read the body there, and written it; some blocks were used twice.
    assert _MIB >> 10 <= resident_kib(replica_pid("web")) <= 4 * _MIB >> 10
    wait_until(lambda: resident_kib(replica_pid("web")) <= 64, what="the memory was given back")
    assert client.post("/echo", content=body).content == body


def test_more_than_shared_memory_holds_at_once_arrives_whole(base_url: str) -> None:
    bodies = [os.urandom(3 * _MIB) for _ in range(8)]

    async def echoed() -> list[bytes]:
        async with httpx.AsyncClient(base_url=base_url, timeout=60) as client:
            posts = (client.post("/echo", content=body) for body in bodies)
            return [answer.content for answer in await asyncio.gather(*posts)]

    assert asyncio.run(echoed()) == bodies


def test_a_replica_that_is_killed_leaves_no_memory_behind(base_url: str) -> None:
    before = arenas(ingress_pid())
    pyserve.run(apps.Web.bind(apps.Ledger.bind()), name="killed", route_prefix="/killed")
    try:
        bodies = [os.urandom(2 * _MIB) for _ in range(16)]

        async def killed_amid() -> list[httpx.Response | BaseException]:
            async with httpx.AsyncClient(base_url=f"{base_url}/killed", timeout=60) as client:
                assert (await client.post("/echo", content=bodies[0])).content == bodies[0]
                assert arenas(ingress_pid()) > before
                posts = [
                    asyncio.ensure_future(client.post("/echo", content=body)) for body in bodies
                ]
                await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
                os.kill(replica_pid("killed"), signal.SIGKILL)
                return await asyncio.gather(*posts, return_exceptions=True)

        for body, answer in zip(bodies, asyncio.run(killed_amid()), strict=True):
            if isinstance(answer, httpx.Response) and answer.status_code == 200:
                assert answer.content == body
            elif isinstance(answer, httpx.Response):
                assert answer.status_code == 503
            else:  # Its answer had begun.
                assert isinstance(answer, httpx.RemoteProtocolError), repr(answer)
    finally:
        pyserve.delete("killed")
    wait_until(lambda: arenas(ingress_pid()) <= before, what="the arenas of the dead are gone")
