"""The zone of a process that the controller knows, and its environment does not."""

from __future__ import annotations

import pytest

from pyserve.config import NodeSettings
from pyserve.routing.in_process import InProcessRouter
from pyserve.types import MeshAddress

CONTROLLER = MeshAddress(controller="127.0.0.1:1", token=b"token")


@pytest.mark.parity("S-50")
@pytest.mark.parametrize(
    ("own", "told", "expected"), [("", "a", "a"), ("b", "a", "b"), ("b", "", "b"), ("", "", "")]
)
def test_a_zone_of_its_environment_wins(own: str, told: str, expected: str) -> None:
    router = InProcessRouter(CONTROLLER, NodeSettings(node_id="n", zone=own))

    router.enter_zone(told)

    assert expected == router._node.zone
    router.close()
