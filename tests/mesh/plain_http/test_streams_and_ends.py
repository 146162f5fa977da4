"""Answers in pieces, deadlines, and clients that leave."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from pyserve.api.handles.handle import DeploymentHandle
from tests.mesh.plain_http.apps import PLACES

pytestmark = pytest.mark.slow

PATIENCE_S = 30


@pytest.mark.parity("G-35")
@pytest.mark.parametrize("kind", ["generator", "response"])
async def test_the_first_piece_comes_before_the_last_is_made(
    base_url: str, ledger: DeploymentHandle, key: str, kind: str
) -> None:
    async with (
        httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client,
        client.stream("GET", "/stream", params={"key": key, kind: "1"}) as response,
    ):
        pieces = response.aiter_text()
        assert "first " == await anext(pieces)
        await ledger.note.remote(key, "go on")
        assert ["last"] == [piece async for piece in pieces]
        assert 200 == response.status_code


def test_an_answer_that_breaks_off_is_not_taken_for_complete(
    client: httpx.Client, ledger: DeploymentHandle, key: str
) -> None:
    with client.stream("GET", "/break-off", params={"key": key}) as response:
        pieces = response.iter_text()
        assert "a" == next(pieces)
        ledger.note.remote(key, "go on").result(timeout_s=PATIENCE_S)
        with pytest.raises(httpx.RemoteProtocolError):
            next(pieces)


async def _leave(base_url: str, path: str, key: str, until: str, ledger: DeploymentHandle) -> None:
    """Send a request and close its connection once ``until`` has happened."""
    headers = {"x-request-disconnect-disabled": "?1"} if path == "/outlive" else {}
    async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client:
        request = asyncio.create_task(client.get(path, params={"key": key}, headers=headers))
        await _until(ledger, key, until)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request


async def _until(ledger: DeploymentHandle, key: str, what: str) -> list[str]:
    response = ledger.until.options(timeout_s=PATIENCE_S).remote(key, what)
    found: list[str] = await response
    return found


@pytest.mark.parity("G-36")
async def test_a_client_that_leaves_cancels_the_handler_and_its_child_call(
    base_url: str, ledger: DeploymentHandle, key: str
) -> None:
    await _leave(base_url, "/hold", key, "child began", ledger)
    await _until(ledger, key, "child cancelled")
    await _until(ledger, key, "handler cancelled")


@pytest.mark.parity("G-36")
async def test_a_client_that_leaves_cancels_a_child_call_that_nobody_awaits_yet(
    base_url: str, ledger: DeploymentHandle, key: str
) -> None:
    await _leave(base_url, "/scatter", key, "child began", ledger)
    await _until(ledger, key, "child cancelled")


@pytest.mark.parity("G-36")
async def test_a_header_lets_the_request_outlive_its_client(
    base_url: str, ledger: DeploymentHandle, key: str
) -> None:
    await _leave(base_url, "/outlive", key, "began", ledger)
    # Another client has left after this one, and its request is known to have ended.
    await _leave(base_url, "/hold", f"other {key}", "child began", ledger)
    await _until(ledger, f"other {key}", "handler cancelled")
    await ledger.note.remote(key, "go on")
    assert ["began", "go on", "finished"] == await _until(ledger, key, "finished")


async def test_a_client_that_leaves_closes_the_generator(
    base_url: str, ledger: DeploymentHandle, key: str
) -> None:
    async with (
        httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client,
        client.stream("GET", "/stream", params={"key": key}) as response,
    ):
        assert "first " == await anext(response.aiter_text())
    assert ["closed"] == await _until(ledger, key, "closed")


async def test_places_come_back_after_clients_that_leave(
    base_url: str, ledger: DeploymentHandle, key: str
) -> None:
    async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client:
        waiting = [
            asyncio.create_task(client.get("/hold", params={"key": key})) for _ in range(3 * PLACES)
        ]
        await _until(ledger, key, "child began")
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
    host, _, port = base_url.removeprefix("http://").partition(":")
    for _ in range(2 * PLACES):  # Clients that leave in the middle of their body.
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 100000\r\n\r\nabc")
        await writer.drain()
        writer.close()
    async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client:
        answers = await asyncio.gather(*(client.get("/about") for _ in range(2 * PLACES)))
    assert [200] * 2 * PLACES == [each.status_code for each in answers]


@pytest.mark.parity("S-45")
@pytest.mark.parity("S-46")
@pytest.mark.parametrize("path", ["/hold", "/idle"])
async def test_a_request_that_takes_too_long_is_408_and_cancelled(
    base_url: str, ledger: DeploymentHandle, key: str, path: str
) -> None:
    async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client:
        response = await client.get(
            path, params={"key": key}, headers={"x-request-timeout-seconds": "2"}
        )
    assert 408 == response.status_code
    await _until(ledger, key, "child cancelled" if path == "/hold" else "handler cancelled")


@pytest.mark.parity("G-37")
def test_the_header_replaces_the_timeout_of_the_deployment(client: httpx.Client) -> None:
    def remaining_s(header: str | None) -> float | None:
        headers = {} if header is None else {"x-request-timeout-seconds": header}
        value: float | None = client.get("/about", headers=headers).json()["time_remaining_s"]
        return value

    by_default, longer, shorter = remaining_s(None), remaining_s("300"), remaining_s("5.5")
    assert by_default is not None
    assert longer is not None
    assert shorter is not None
    assert 20 < by_default <= 30 < 250 < longer <= 300
    assert 1 < shorter <= 5.5
    assert [None, None] == [remaining_s("0"), remaining_s("-1")]
