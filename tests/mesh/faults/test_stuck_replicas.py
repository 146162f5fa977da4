"""Replicas that answer nothing any more, for whatever reason, are replaced by ones that do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import pytest

from pyserve.config.control import PING_PERIOD_S, SILENT_AFTER_S
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.commands import status_of
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
# Three checks take 4.5 s at most, a drain in vain three more; the rest is for a busy machine.
OPTIONS = ("period_s=0.5", "timeout_s=1.0")
REPLACED_TIMEOUT_S = 40.0
CALL_TIMEOUT_S = 2.0
NO_SIGN = "the event loop gave no sign of life for 1 s"


class Replica:
    """The one replica, as a client sees it."""

    def __init__(self, mesh: RunningMesh, channel: grpc.Channel) -> None:
        self.mesh = mesh
        self._stub = echo_pb2_grpc.EchoStub(channel)
        self.pid = self.tell("pid", timeout_s=20)

    def tell(self, instruction: str, timeout_s: float = CALL_TIMEOUT_S) -> str:
        request = echo_pb2.EchoRequest(payload=instruction.encode())
        reply: echo_pb2.EchoReply = self._stub.Echo(request, timeout=timeout_s)
        return reply.payload.decode()

    def leave(self, instruction: str) -> None:
        """Send it something that it may never answer."""
        with pytest.raises(grpc.RpcError):
            self.tell(instruction)

    def is_another(self) -> bool:
        try:
            return self.pid != self.tell("pid")
        except grpc.RpcError:
            return False


@contextmanager
def replica(separate: bool = True, options: tuple[str, ...] = OPTIONS) -> Iterator[Replica]:
    environment = {"PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": str(int(separate))}
    with (
        running_mesh("tests.mesh.apps.forking:made", *options, environment=environment) as mesh,
        grpc.insecure_channel(mesh.address) as channel,
    ):
        yield Replica(mesh, channel)


def hold_the_loop(asked: Replica) -> None:
    asked.leave("hold")


def lose_the_wake_ups(asked: Replica) -> None:
    assert asked.tell("lose", timeout_s=20) == "lost"


@pytest.mark.parity("G-10")
@pytest.mark.parametrize("wedge", [hold_the_loop, lose_the_wake_ups])
def test_a_replica_whose_loop_gives_no_sign_of_life_is_replaced(
    wedge: Callable[[Replica], None],
) -> None:
    """Its class has no ``check_health``."""
    with replica() as asked:
        wedge(asked)
        wait_until(asked.is_another, REPLACED_TIMEOUT_S)
        assert f"fails its health check: {NO_SIGN}" in asked.mesh.output()


def test_lost_wake_ups_are_noticed_where_duties_share_the_loop() -> None:
    with replica(separate=False) as asked:
        lose_the_wake_ups(asked)
        wait_until(asked.is_another, REPLACED_TIMEOUT_S)


@pytest.mark.long
@pytest.mark.parametrize("separate", [True, False])
def test_a_replica_whose_process_gives_no_sign_of_life_is_replaced(separate: bool) -> None:
    """Stopped as a whole, or its duties behind a loop that somebody holds."""
    with replica(separate, ("period_s=2", "timeout_s=2")) as asked:
        if separate:
            os.kill(int(asked.pid), signal.SIGSTOP)
        else:
            hold_the_loop(asked)
        environment = {**os.environ, "PYSERVE_HOME": str(asked.mesh.home)}

        def is_told() -> bool:
            (deployment,) = status_of(environment)["applications"]["default"][
                "deployments"
            ].values()
            return "does not answer health checks" in deployment["message"]

        wait_until(is_told, 2 * (PING_PERIOD_S + SILENT_AFTER_S))
        wait_until(asked.is_another, REPLACED_TIMEOUT_S)
        # One that is stopped answers no keepalive either, whichever comes first.
        reasons = ["it has given no sign of life for 12 s", "it left and did not join again"]
        assert any(reason in asked.mesh.output() for reason in reasons[: 1 + separate])


def test_a_loop_that_is_held_for_less_than_the_limit_is_left_alone() -> None:
    with replica() as asked:
        for _ in range(3):
            assert asked.tell("hold 0.7", timeout_s=20) == "held"
        assert not asked.is_another()
        assert NO_SIGN not in asked.mesh.output()
