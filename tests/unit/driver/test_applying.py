"""Messages about a file that a controller of an earlier release does not accept as a whole."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

import pytest

from pyserve.driver.client import ControlClient
from pyserve.driver.progress import apply
from pyserve.wire.v1 import control_pb2

pytestmark = pytest.mark.parity("G-31")


class Controller:
    """Takes every file; one of an earlier release tells no share of it."""

    def __init__(self, *, knows_shares: bool) -> None:
        self._knows_shares = knows_shares
        self._share: float | None = None

    def apply(self, request: control_pb2.ApplyRequest, run: object) -> Generator[object]:
        del run
        if self._knows_shares and request.HasField("target_capacity"):
            self._share = request.target_capacity
        for each in request.applications:
            event = control_pb2.DeployEvent(deployed=control_pb2.Deployed())
            yield control_pb2.ApplyEvent(application=each.application, event=event)

    def status(self) -> control_pb2.StatusReply:
        return control_pb2.StatusReply(target_capacity=self._share)


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize(
    ("knows_shares", "share", "warns"),
    [(False, 50.0, True), (True, 50.0, False), (False, None, False)],
)
def test_a_share_that_the_controller_does_not_know_is_warned_of(
    capsys: pytest.CaptureFixture[str],
    knows_shares: bool,
    share: float | None,
    warns: bool,
    wait: bool,
) -> None:
    client = cast("ControlClient", Controller(knows_shares=knows_shares))
    shop = control_pb2.DeployRequest(application="shop")

    apply(client, control_pb2.ApplyRequest(applications=[shop], target_capacity=share), wait=wait)

    said = capsys.readouterr().err
    assert warns == ("does not know target_capacity, and runs all replicas" in said), said
