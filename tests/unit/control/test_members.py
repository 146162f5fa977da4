"""Commands to all replicas that have joined."""

from __future__ import annotations

import asyncio

from pyserve.control.replicas.sessions import Session
from tests.unit.control.test_externals import READY, Mesh


async def told(session: Session) -> list[str | None]:
    """Return the kinds of all commands that wait in a session."""
    session.end()
    kinds: list[str | None] = []
    async with asyncio.timeout(30):
        while (command := await session.next()) is not None:
            kinds.append(command.WhichOneof("kind"))
    return kinds


async def test_websockets_are_closed_where_there_are_any_and_where_some_may_come() -> None:
    """A call that waited for a replica may be a WebSocket too."""
    mesh = Mesh()
    ready, starting = (
        mesh.join("m:Echo", started_at=1, ready=is_ready) for is_ready in (True, False)
    )
    mesh.members.close_web_sockets()
    late = mesh.join("m:Echo", started_at=1, ready=False)
    mesh.members.hear(late, READY, mesh.now)

    assert ["assign", "close_web_sockets"] == await told(ready)
    assert ["assign"] == await told(starting), "it has no application yet"
    assert ["assign", "close_web_sockets"] == await told(late)


async def test_who_drains_closes_its_websockets_itself() -> None:
    mesh = Mesh()
    session = mesh.join("m:Echo", started_at=1)
    mesh.leave(session, drains=True)
    mesh.members.close_web_sockets()

    assert "close_web_sockets" not in await told(session)
