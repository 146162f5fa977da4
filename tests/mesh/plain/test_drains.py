"""A drain while calls wait in a batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import pyserve
from pyserve.types import ApplicationName
from tests.support.mesh import running_mesh
from tests.support.session import attached

pytestmark = pytest.mark.slow


@pytest.mark.parity("S-23")
async def test_a_drain_lets_a_batch_leave_that_would_wait_until_it_is_full() -> None:
    with (
        running_mesh("tests.mesh.plain.apps:patient") as running,
        attached(running.home) as session,
    ):
        patient: pyserve.DeploymentHandle[Any] = pyserve.DeploymentHandle("Patient", "default")
        calls = [patient.remote(number) for number in range(3)]
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(_result(call)) for call in calls], timeout=0.3
        )
        assert not done
        deleting = asyncio.to_thread(session.client.delete, ApplicationName("default"))
        results, _ = await asyncio.gather(asyncio.gather(*map(_result, calls)), deleting)
        assert [3, 3, 3] == results


async def _result(call: Any) -> Any:
    return await call
