"""Startup and shutdown of an application, in one task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyserve.replica.asgi import AsgiApplication, LifespanFailed
from tests.support.waiting import eventually


def _app(*answers: Any, log: list[Any]) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for answer in answers:
            log.append(((await receive())["type"], asyncio.current_task()))
            await send(answer)

    return app


async def test_startup_and_shutdown_share_a_task() -> None:
    log: list[Any] = []
    complete = {"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}
    application = AsgiApplication(_app(*complete, log=log))
    await application.startup()
    assert ["lifespan.startup"] == [kind for kind, _ in log]
    await application.shutdown()
    assert ["lifespan.startup", "lifespan.shutdown"] == [kind for kind, _ in log]
    assert log[0][1] is log[1][1]


async def test_a_startup_that_fails_says_why() -> None:
    application = AsgiApplication(
        _app({"type": "lifespan.startup.failed", "message": "no model"}, log=[])
    )
    with pytest.raises(LifespanFailed, match="no model"):
        await application.startup()
    await application.shutdown()  # Nothing is left to shut down.


async def test_a_shutdown_that_fails_says_why() -> None:
    answers = [
        {"type": "lifespan.startup.complete"},
        {"type": "lifespan.shutdown.failed", "message": "still in use"},
    ]
    application = AsgiApplication(_app(*answers, log=[]))
    await application.startup()
    with pytest.raises(LifespanFailed, match="still in use"):
        await application.shutdown()


async def test_an_application_without_a_lifespan_is_as_good() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"

    application = AsgiApplication(app)
    await application.startup()
    await application.shutdown()


async def test_a_startup_that_is_given_up_ends_its_task() -> None:
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    application = AsgiApplication(app)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await application.startup()
    await asyncio.sleep(0)
    assert ["ended"] == ended


async def test_a_lifespan_that_ends_early_is_not_waited_for() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        raise RuntimeError("lost")

    application = AsgiApplication(app)
    await application.startup()
    await asyncio.sleep(0)
    await application.shutdown()


@pytest.mark.parametrize("error", [SystemExit("no model file"), KeyboardInterrupt()])
async def test_an_exit_in_the_startup_fails_it(error: BaseException) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise error

    application = AsgiApplication(app)
    with pytest.raises(LifespanFailed) as caught:
        await application.startup()
    last_line = caught.value.text.strip().rpartition("\n")[2]
    assert last_line.startswith(type(error).__name__)
    assert "await receive()" not in caught.value.text
    assert "raise error" in caught.value.text
    await application.shutdown()  # Nothing is left to shut down.


async def test_an_exit_in_the_shutdown_fails_it() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        raise SystemExit(3)

    application = AsgiApplication(app)
    await application.startup()
    with pytest.raises(LifespanFailed, match="SystemExit: 3"):
        await application.shutdown()


async def test_an_exit_between_them_leaves_the_replica(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        raise SystemExit(3)

    application = AsgiApplication(app)
    await application.startup()
    await asyncio.sleep(0)
    assert "left its lifespan" in caplog.text
    await application.shutdown()


async def test_a_lifespan_that_fails_amid_requests_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Starlette says it so when a task group of its lifespan fails."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await breaking.wait()
        await send({"type": "lifespan.shutdown.failed", "message": "no connection"})
        raise RuntimeError("no connection")

    breaking = asyncio.Event()
    application = AsgiApplication(app)
    await application.startup()
    breaking.set()
    await eventually(lambda: caplog.messages)
    assert [True] == ["no connection" in each for each in caplog.messages]
    await application.shutdown()
