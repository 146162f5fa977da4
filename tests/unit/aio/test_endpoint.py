"""The endpoint of a loop: dispatch, flush, and its end with the loop."""

import asyncio
import contextvars
import gc
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from pyserve import _router
from pyserve.bridge import LoopEndpoint, running_endpoint
from tests.support.waiting import eventually
from tests.unit.aio.fake_ring import FakeEndpoint

RunLoop = Callable[[Coroutine[Any, Any, Any]], Any]


class Recorder:
    """Receives events and keeps them."""

    def __init__(self) -> None:
        self.events: list[tuple[int, object, object]] = []
        self.abandoned = False

    def on_event(self, kind: int, subject: object, payload: object) -> None:
        self.events.append((kind, subject, payload))

    def abandon(self) -> None:
        self.abandoned = True


class Broken(Recorder):
    """Raises at every event."""

    def on_event(self, kind: int, subject: object, payload: object) -> None:
        raise ValueError("broken receiver")


def _run_with_new_loop(main: Coroutine[Any, Any, Any]) -> Any:
    """Drive a loop by hand, as threads with loops of their own do."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def _run_in_thread(main: Coroutine[Any, Any, Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(main)))
    thread.start()
    thread.join(10)
    return results[0]


WAYS = [asyncio.run, uvloop.run, _run_with_new_loop, _run_in_thread]


def _raw(endpoint: LoopEndpoint) -> FakeEndpoint:
    raw: Any = endpoint.raw
    assert isinstance(raw, FakeEndpoint)
    return raw


@pytest.mark.usefixtures("fake_ring")
async def test_events_reach_the_receiver_of_their_token() -> None:
    endpoint = running_endpoint()
    one, two = Recorder(), Recorder()
    endpoint.receivers.update({1: one, 2: two})
    _raw(endpoint).push(_router.MESSAGE, 1, None, b"a")
    _raw(endpoint).push(_router.MESSAGE, 2, None, b"b")
    _raw(endpoint).push(_router.MESSAGE, 3, None, b"nobody's")
    await eventually(lambda: two.events)
    assert [(_router.MESSAGE, None, b"a")] == one.events
    assert [(_router.MESSAGE, None, b"b")] == two.events
    assert 1 == _raw(endpoint).wakeups


@pytest.mark.usefixtures("fake_ring")
async def test_a_flood_of_events_leaves_turns_for_others() -> None:
    endpoint = running_endpoint()
    recorder = Recorder()
    endpoint.receivers[1] = recorder
    for number in range(1000):
        _raw(endpoint).push(_router.MESSAGE, 1, None, number)
    seen = []
    while len(recorder.events) < 1000:
        await asyncio.sleep(0)
        seen.append(len(recorder.events))
    steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert max(steps) <= 64
    assert list(range(1000)) == [payload for _, _, payload in recorder.events]


@pytest.mark.usefixtures("fake_ring")
async def test_a_broken_receiver_loses_no_event_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = running_endpoint()
    recorder = Recorder()
    endpoint.receivers.update({1: Broken(), 2: recorder})
    _raw(endpoint).push(_router.MESSAGE, 1)
    _raw(endpoint).push(_router.MESSAGE, 2)
    await eventually(lambda: recorder.events)
    assert "broken receiver" in caplog.text


@pytest.mark.usefixtures("fake_ring")
async def test_events_that_race_with_arming_are_dispatched() -> None:
    endpoint = running_endpoint()
    recorder = Recorder()
    endpoint.receivers[1] = recorder
    raw = _raw(endpoint)
    arm = raw.arm

    def late_event() -> bool:
        raw.arm = arm  # type: ignore[method-assign]
        raw.push(_router.MESSAGE, 1, None, b"late")
        return arm()

    raw.arm = late_event  # type: ignore[method-assign]
    raw.push(_router.MESSAGE, 1, None, b"early")
    await eventually(lambda: len(recorder.events) == 2)


@pytest.mark.usefixtures("fake_ring")
async def test_one_flush_serves_a_turn() -> None:
    endpoint = running_endpoint()
    raw = _raw(endpoint)
    for _ in range(10):
        if raw.note():
            endpoint.schedule_flush()
    assert 0 == raw.flushes
    await asyncio.sleep(0)
    assert 1 == raw.flushes


@pytest.mark.usefixtures("fake_ring")
async def test_the_end_of_a_turn_calls_everybody_who_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = running_endpoint()
    called: list[str] = []

    def fail() -> None:
        raise ValueError("broken callback")

    def ask_again() -> None:
        called.append("first")
        endpoint.at_turn_end(lambda: called.append("next turn"))

    for callback in (ask_again, fail, lambda: called.append("last")):
        endpoint.at_turn_end(callback)
    assert [] == called
    await asyncio.sleep(0)
    assert ["first", "last"] == called
    assert "broken callback" in caplog.text
    await asyncio.sleep(0)
    assert ["first", "last", "next turn"] == called


async def test_the_loop_keeps_one_endpoint() -> None:
    assert running_endpoint() is running_endpoint()


@pytest.mark.usefixtures("fake_ring")
@pytest.mark.parametrize("run", WAYS)
def test_endpoints_close_with_their_loop(run: RunLoop) -> None:
    recorder = Recorder()
    closed: list[str] = []

    async def main() -> LoopEndpoint:
        endpoint = running_endpoint()
        endpoint.receivers[1] = recorder
        endpoint.add_close_callback(lambda: closed.append("first added"))
        endpoint.add_close_callback(lambda: closed.append("last added"))
        return endpoint

    first = run(main())
    assert first.closed
    assert _raw(first).closed
    assert recorder.abandoned
    assert ["last added", "first added"] == closed
    second = run(main())
    assert second is not first


@pytest.mark.usefixtures("fake_ring")
def test_closing_a_running_loop_leaves_its_endpoint() -> None:
    async def main() -> bool:
        endpoint = running_endpoint()
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop().close()
        return endpoint.closed

    assert not asyncio.run(main())


@pytest.mark.usefixtures("fake_ring")
def test_loops_are_not_kept_alive_by_their_endpoints() -> None:
    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        running_endpoint()
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(main())
    gc.collect()
    assert loop() is None


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.mark.usefixtures("fake_ring")
async def test_receivers_run_in_an_empty_context() -> None:
    variable.set("of whoever came first")
    endpoint = running_endpoint()
    seen: list[str] = []

    class MeshSnapshot(Recorder):
        def on_event(self, kind: int, subject: object, payload: object) -> None:
            seen.append(variable.get())

    endpoint.receivers[1] = MeshSnapshot()
    _raw(endpoint).push(_router.MESSAGE, 1)
    await eventually(lambda: seen)
    assert ["unset"] == seen


def test_no_loop_no_endpoint() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        running_endpoint()


def test_descriptors_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native endpoint closes its descriptor when the loop has ended."""

    async def main() -> None:
        running_endpoint()

    asyncio.run(main())
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(20):
        asyncio.run(main())
    gc.collect()
    # What earlier tests have left may go meanwhile.
    assert before >= len(os.listdir("/proc/self/fd"))  # noqa: PTH208


async def test_forked_children_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_router, "forked", lambda: True)
    with pytest.raises(RuntimeError, match="spawn"):
        running_endpoint()


# From Python 3.12 on, a fork with threads warns; here the child uses none of them.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
async def test_a_fork_leaves_all_further_events_to_its_parent() -> None:
    """Also those that were taken together with the event at which it forked."""
    endpoint = running_endpoint()
    parent, children, told = os.getpid(), [], Recorder()

    class Forking(Recorder):
        def on_event(self, kind: int, subject: object, payload: object) -> None:
            children.append(os.fork())

    endpoint.receivers |= {1: Forking(), 2: told}
    for token in (1, 2):
        endpoint.raw.probe(token)
    taken = endpoint.process()
    if os.getpid() != parent:
        # The bell of the parent is not this process's to ring or to hear.
        os.eventfd_write(endpoint.raw.fileno(), 1)
        os._exit(len(told.events) + taken + (0 if endpoint.closed else 10))
    (child,) = children
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # noqa: ASYNC222  # ends at once
    assert (2, 1) == (taken, len(told.events))
    endpoint.raw.arm()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(endpoint.raw.fileno())
