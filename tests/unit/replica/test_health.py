"""When and what the health monitor reports."""

import asyncio
from typing import Any

import pytest

from pyserve.config import DeploymentOptions
from pyserve.replica.health import HealthMonitor

OPTIONS = DeploymentOptions(health_check_period_s=0.001, health_check_timeout_s=0.05)


class Reports:
    """Collects what a monitor says, and waits for it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[bool, str]] = asyncio.Queue()

    async def __call__(self, *, healthy: bool, reason: str) -> None:
        await self.queue.put((healthy, reason))

    async def next(self) -> tuple[bool, str]:
        return await asyncio.wait_for(self.queue.get(), 5)


def subject(check_health: Any) -> object:
    return type("Subject", (), {"check_health": staticmethod(check_health)})()


async def hang() -> None:
    await asyncio.Event().wait()


def fail() -> None:
    raise ValueError("no memory left")


async def fail_async() -> None:
    raise ValueError("no memory left")


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (fail, "check_health raised ValueError: no memory left"),
        (fail_async, "check_health raised ValueError: no memory left"),
        (hang, "check_health took longer than 0.05 s"),
    ],
)
async def test_every_failure_is_reported_with_its_reason(hook: Any, reason: str) -> None:
    reports = Reports()
    async with HealthMonitor(subject(hook), OPTIONS, reports):
        assert [(False, reason)] * 2 == [await reports.next() for _ in range(2)]


async def test_health_is_reported_once_when_it_comes_back() -> None:
    outcomes = iter([False, True, True, True, False])
    reports = Reports()

    def check_health() -> None:
        if not next(outcomes, False):
            fail()

    async with HealthMonitor(subject(check_health), OPTIONS, reports):
        seen = [(await reports.next())[0] for _ in range(3)]
    assert [False, True, False] == seen


async def test_a_class_without_the_hook_is_never_asked() -> None:
    reports = Reports()
    async with HealthMonitor(object(), OPTIONS, reports):
        await asyncio.sleep(0)
    assert reports.queue.empty()
