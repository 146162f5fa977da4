"""Code that holds the loop is found, told once with its place, and counted."""

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from pyserve.bridge import running_endpoint
from pyserve.observe.delays import Delays
from pyserve.replica import watchdog
from pyserve.replica.watchdog import LoopWatchdog
from tests.support.waiting import eventually

STALL_S = 0.1
TOKEN = 0  # As of a pulse.


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable:  # type: ignore[type-arg]
    """Runs a coroutine on a loop of either kind."""
    factory = None
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop", reason="no wheel for this platform").new_event_loop

    def runs(coroutine):  # type: ignore[no-untyped-def]
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(coroutine)

    return runs


def hold_the_loop(seconds: float) -> None:
    """Block as a careless handler does, by waiting for something in its thread."""
    threading.Event().wait(seconds)


def of_the_test(told: list[str]) -> list[str]:
    """Leave out what a busy machine has done, for example while the thread began."""
    return [each for each in told if "in hold_the_loop" in each]


async def stall_ended(watchdog: LoopWatchdog, total_s: float = 0.0) -> None:
    await eventually(lambda: watchdog.stats().total_s > total_s)


@pytest.mark.slow
@pytest.mark.parity("S-14")
def test_a_stall_is_told_once_with_the_place_that_blocks(run):
    told: list[str] = []

    async def main():
        with LoopWatchdog(STALL_S, told.append) as watchdog:
            await asyncio.sleep(2 * STALL_S)
            hold_the_loop(14 * STALL_S)
            await stall_ended(watchdog)
            return watchdog.stats()

    stats = run(main())

    assert len(told) == stats.count
    assert 3 * STALL_S < stats.longest_s <= stats.total_s
    (text,) = of_the_test(told)
    assert f"has stood still for 0.1 s (stall {1 + told.index(text)})" in text
    assert __file__ in text


@pytest.mark.slow
def test_a_stall_is_kept_for_calls_that_were_there_with_a_line_of_no_library(run, monkeypatch):
    delays = Delays()
    monkeypatch.setattr(watchdog, "PROCESS_DELAYS", delays)
    begun_at = time.time()

    async def main():
        with LoopWatchdog(STALL_S, lambda text: None) as watching:
            await asyncio.sleep(2 * STALL_S)
            hold_the_loop(14 * STALL_S)
            await stall_ended(watching)

    run(main())

    (stall,) = (
        each
        for each in delays.of("anything")["stalls"]
        if re.fullmatch(r"test_watchdog\.py:\d+ in hold_the_loop", each["place"])
    )
    assert 3 * STALL_S < stall["duration_s"] < time.time() - begun_at
    assert begun_at <= stall["begun_at"] <= time.time()


@pytest.mark.slow
@pytest.mark.parity("S-14")
def test_a_second_stall_at_the_same_place_is_counted_and_not_told_again_soon(run):
    told: list[str] = []

    async def main():
        with LoopWatchdog(STALL_S, told.append) as watchdog:
            for _ in range(3):
                ended_s = watchdog.stats().total_s
                hold_the_loop(14 * STALL_S)
                await stall_ended(watchdog, ended_s)
            return watchdog.stats()

    assert run(main()).count >= 3
    assert 1 == len(of_the_test(told))


@pytest.mark.slow
def test_a_busy_loop_that_turns_is_not_stalled(run):
    # Far above what a busy machine keeps a thread waiting that could run.
    stall_s = 4 * STALL_S

    async def main():
        with LoopWatchdog(stall_s, pytest.fail) as watchdog:
            end = time.monotonic() + 4 * stall_s
            while time.monotonic() < end:
                sum(range(1000))
                await asyncio.sleep(0)
            return watchdog.stats()

    assert 0 == run(main()).count


@pytest.mark.slow
def test_an_idle_loop_is_left_in_peace(run):
    """No sign of life is asked for: an idle replica wakes for nobody."""
    asked = []

    async def main():
        loop = asyncio.get_running_loop()
        original = loop.call_soon_threadsafe

        class Recorder:
            def call_soon_threadsafe(self, callback):
                asked.append(callback)
                original(callback)

        watchdog = LoopWatchdog(STALL_S)
        thread = threading.Thread(
            target=watchdog._watch, args=(Recorder(), threading.get_ident()), daemon=True
        )
        await asyncio.sleep(STALL_S)
        thread.start()
        await asyncio.sleep(10 * STALL_S)
        watchdog._ended.set()
        await asyncio.to_thread(thread.join)

    run(main())

    # The loop works for a moment at both ends of the sleep.
    assert len(asked) <= 2


class Call:
    """Holds the loop of the endpoint that it comes to."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self.began_at = self.ended_at = 0.0

    def on_event(self, _kind: int, _subject: object, _payload: object, /) -> None:
        self.began_at = time.time()
        hold_the_loop(self._hold_s)
        self.ended_at = time.time()

    def abandon(self) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize("rest_s", [0.0, 2 * STALL_S, 4 * STALL_S, 9 * STALL_S])
def test_a_stall_of_a_call_after_a_rest_is_found_with_its_whole_time(run, monkeypatch, rest_s):
    """However deep the watch slept when the call came."""
    delays = Delays()
    monkeypatch.setattr(watchdog, "PROCESS_DELAYS", delays)
    call = Call(5 * STALL_S)

    async def main():
        endpoint = running_endpoint()
        endpoint.receivers[TOKEN] = call
        with LoopWatchdog(STALL_S, lambda text: None) as watching:
            await eventually(lambda: watching._rests)
            await asyncio.sleep(rest_s)
            endpoint.raw.probe(TOKEN)
            await eventually(lambda: call.ended_at and len(found()) > 0)

    def found():
        stalls = delays.of("anything")["stalls"]
        return [each for each in stalls if "in hold_the_loop" in each["place"]]

    run(main())

    (stall,) = found()
    took_s = call.ended_at - call.began_at
    assert took_s == pytest.approx(stall["duration_s"], abs=STALL_S / 2)
    assert call.began_at == pytest.approx(stall["begun_at"], abs=STALL_S / 2)


@pytest.mark.slow
@pytest.mark.parametrize("wait_s", [5 * STALL_S, 16 * STALL_S])
def test_a_stall_is_found_when_a_call_goes_on_after_a_wait(run, monkeypatch, wait_s):
    """While the code of a call waits the loop is idle, and is watched all the same."""
    delays = Delays()
    monkeypatch.setattr(watchdog, "PROCESS_DELAYS", delays)

    async def main():
        running_endpoint().receivers[TOKEN + 1] = Call(0.0)  # A call under way.
        with LoopWatchdog(STALL_S, lambda text: None) as watching:
            await asyncio.sleep(wait_s)
            hold_the_loop(4 * STALL_S)
            await stall_ended(watching)

    run(main())

    (stall,) = (each for each in delays.of("any")["stalls"] if "hold_the_loop" in each["place"])
    # When it began is known by the looks before it.
    assert stall["duration_s"] == pytest.approx(4 * STALL_S, abs=STALL_S)


@pytest.mark.slow
def test_the_watch_ends_during_a_stall():
    """The loop's own thread leaves the context while its sign of life is still due."""
    told: list[str] = []

    async def main():
        with LoopWatchdog(STALL_S, told.append):
            hold_the_loop(14 * STALL_S)

    begun = time.monotonic()
    asyncio.run(main())

    assert 1 == len(of_the_test(told))
    assert time.monotonic() - begun < 30.0


# Garbage whose finalizers let others run, while threads end: in CPython 3.11 this stands still at
# once if garbage is collected while frames are looked up.
_LOOKING = """
import gc, os, sys, threading, time

from pyserve.replica.watchdog import frame_of


class Garbage:
    def __init__(self):
        self.itself = self

    def __del__(self):
        time.sleep(0.0005)


def end_threads():
    while True:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()


for _ in range(3):
    threading.Thread(target=end_threads, daemon=True).start()
gc.set_threshold(3)
for _ in range(1000):
    Garbage()
    assert frame_of(threading.get_ident()).f_back is sys._getframe()
assert gc.isenabled()
print("looked", flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_looking_at_a_thread_does_not_wait_for_one_that_ends():
    done = subprocess.run(
        [sys.executable, "-c", _LOOKING], capture_output=True, timeout=50, check=False, text=True
    )

    assert "looked\n" == done.stdout, done.stderr
