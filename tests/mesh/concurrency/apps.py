"""Applications whose code blocks, and which count who is inside."""

import threading
import time

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc


@pyserve.deployment
class Blocking(echo_pb2_grpc.EchoServicer):
    """``EchoSuspend`` holds the event loop for as many seconds as its payload says."""

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        return echo_pb2.EchoReply(payload=request.payload)

    async def EchoSuspend(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        time.sleep(float(request.payload))  # noqa: ASYNC251  # the fault that is shown
        return echo_pb2.EchoReply(payload=b"woke")

    async def check_health(self) -> None:
        """It is well as long as it is asked."""


def blocking(options: dict[str, object]) -> pyserve.Application:
    application: pyserve.Application = Blocking.options(
        health_check_period_s=float(str(options.get("period_s", 10))),
        health_check_timeout_s=float(str(options.get("timeout_s", 10))),
    ).bind()
    return application


@pyserve.deployment
class Gauge:
    """Counts its calls that are inside at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = self._most = 0

    def work(self, seconds: float) -> int:
        """Stay inside for a while, in a thread; return how many threads were."""
        with self._lock:
            self._inside += 1
            self._most = max(self._most, self._inside)
        threading.Event().wait(seconds)
        with self._lock:
            self._inside -= 1
        return self._most

    def reset(self) -> int:
        """Forget the greatest number of calls inside, and return it."""
        with self._lock:
            most, self._most = self._most, self._inside
        return most

    def stamp(self) -> float:
        """Return when it ran, on the clock that all processes of a machine share."""
        return time.monotonic()

    def threads(self) -> list[str]:
        """Return the names of the replica's threads."""
        return [thread.name for thread in threading.enumerate()]
