"""A controller that ends alone: what it leaves goes on, and routers hear nothing of that."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.control.test_reconfiguring import Mesh, outcome

# A step, and the time for which news of it are collected: nothing announces that none comes.
_PUBLISHED_WITHIN_S = 0.1


@pytest.mark.parametrize("goes_on", [False, True])
async def test_replicas_that_leave_a_controller_which_ends_are_news_only_if_they_end(
    goes_on: bool,
) -> None:
    mesh = Mesh()
    watch = mesh.deploy(1)
    await mesh.bring_up()
    assert "deployed" == await outcome(watch)
    registry = mesh.controller.registry
    before = registry.version

    await mesh.controller.close(goes_on=goes_on)
    for replica in mesh.replicas:
        mesh.controller.leave(replica.session)
    await asyncio.sleep(_PUBLISHED_WITHIN_S)

    assert goes_on == (before == registry.version)
