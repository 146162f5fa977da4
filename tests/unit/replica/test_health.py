"""When and what the health monitor reports."""

import asyncio
import contextlib
import os
import threading
from typing import Any, cast

import pytest

from pyserve.bridge import LoopProbe, running_endpoint
from pyserve.config import DeploymentOptions
from pyserve.replica.hooks import HealthMonitor
from tests.support.waiting import eventually

OPTIONS = DeploymentOptions(health_check_period_s=0.001, health_check_timeout_s=0.5)


class Reports:
    """Collects what a monitor says, and waits for it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[bool, str]] = asyncio.Queue()

    async def __call__(self, *, healthy: bool, reason: str) -> None:
        await self.queue.put((healthy, reason))

    async def next(self) -> tuple[bool, str]:
        return await asyncio.wait_for(self.queue.get(), 30)


def subject(check_health: Any) -> object:
    return type("Subject", (), {"check_health": staticmethod(check_health)})()


async def hang() -> None:
    await asyncio.Event().wait()


def fail() -> None:
    raise ValueError("no memory left")


async def fail_async() -> None:
    raise ValueError("no memory left")


async def give_up() -> None:
    """As where something was cancelled that the check waits for."""
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (fail, "check_health raised ValueError: no memory left"),
        (fail_async, "check_health raised ValueError: no memory left"),
        (hang, "check_health took longer than 0.5 s"),
        (give_up, "check_health was cancelled"),
    ],
)
async def test_every_failure_is_reported_with_its_reason(hook: Any, reason: str) -> None:
    reports = Reports()
    async with HealthMonitor(subject(hook), OPTIONS, reports):
        assert [(False, reason)] * 2 == [await reports.next() for _ in range(2)]


async def test_a_plain_check_that_hangs_keeps_one_thread() -> None:
    released = threading.Event()
    entered: list[threading.Thread] = []

    def wait() -> None:
        entered.append(threading.current_thread())
        released.wait(30)

    reports = Reports()
    try:
        async with HealthMonitor(subject(wait), OPTIONS, reports):
            late = "check_health took longer than 0.5 s"
            assert (False, late) == await reports.next()
            still = "check_health has not ended the call before"
            assert [(False, still)] * 3 == [await reports.next() for _ in range(3)]
            assert 1 == len(entered)
            # The process may end without it.
            assert entered[0].daemon
            released.set()
    finally:
        released.set()


async def test_health_is_reported_once_when_it_comes_back() -> None:
    outcomes = iter([False, True, True, True, False])
    reports = Reports()

    def check_health() -> None:
        if not next(outcomes, False):
            fail()

    async with HealthMonitor(subject(check_health), OPTIONS, reports):
        seen = [(await reports.next())[0] for _ in range(3)]
    assert [False, True, False] == seen


async def test_a_loop_that_nothing_wakes_is_reported_whatever_the_class_says() -> None:
    reports = Reports()
    with contextlib.closing(LoopProbe(running_endpoint())) as probe:
        checked: list[None] = []
        instance = subject(lambda: checked.append(None))
        async with HealthMonitor(instance, OPTIONS, reports, probe=probe):
            await eventually(lambda: len(checked) >= 2)
            assert reports.queue.empty()
            descriptor = running_endpoint().raw.fileno()
            own = os.dup(descriptor)
            try:
                os.dup2(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK), descriptor)
                # The loop still polls what was there. A wake-up that it had in this moment would
                # wake it for ever, since it reads it from what is there now.
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(own)
                healthy, reason = await reports.next()
            finally:
                os.dup2(own, descriptor, inheritable=False)
                os.close(own)
    assert not healthy
    assert reason.startswith("the event loop gave no sign of life for 0.5 s")


async def test_a_class_without_the_hook_is_never_asked() -> None:
    reports = Reports()
    async with HealthMonitor(object(), OPTIONS, reports):
        await asyncio.sleep(0)
    assert reports.queue.empty()


async def test_other_times_are_taken_on_at_once() -> None:
    reports = Reports()
    slow = DeploymentOptions(health_check_period_s=3600, health_check_timeout_s=3600)
    async with HealthMonitor(subject(hang), slow, reports) as monitor:
        await asyncio.sleep(0)  # The pause of an hour has begun.
        monitor.follow(OPTIONS)
        assert (False, "check_health took longer than 0.5 s") == await reports.next()


async def test_other_times_hold_for_signs_of_life_too() -> None:
    reports = Reports()
    slow = DeploymentOptions(health_check_period_s=3600, health_check_timeout_s=3600)
    asked: list[float] = []

    class Still:
        async def is_felt(self, timeout_s: float) -> bool:
            asked.append(timeout_s)
            return False

    async with HealthMonitor(object(), slow, reports, probe=cast("LoopProbe", Still())) as monitor:
        await asyncio.sleep(0)
        monitor.follow(OPTIONS)
        assert "gave no sign of life for 0.5 s" in (await reports.next())[1]
    assert {0.5} == set(asked)
