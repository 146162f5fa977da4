"""What is measured: the load of each benchmark, and the target that it has to meet."""

from __future__ import annotations

from dataclasses import dataclass

from services.echo import echo_pb2

_PAYLOAD_BYTES = 100
_STREAM_MESSAGES = 100
_MIB = 1024 * 1024
# Every call has a deadline that none should meet: watching it is part of the work.
_COMMON = ("--timeout-s", "10")
_SMALL_ECHO = ("--payload-bytes", str(_PAYLOAD_BYTES), "--expect-echo", *_COMMON)
_IN_FLIGHT_64 = ("--in-flight", "64", "--connections", "8")


@dataclass(frozen=True)
class Target:
    """A bound on the ratio of one metric, ours to the baseline's.

    Attributes:
        metric: Name in ``measure.METRICS``.
        bound: The ratio.
        at_least: Whether the ratio must reach the bound, or else stay within it.
        text: As people say it.
    """

    metric: str
    bound: float
    at_least: bool
    text: str

    def is_met(self, ratio: float) -> bool:
        """Say whether a ratio is good enough."""
        return ratio >= self.bound if self.at_least else ratio <= self.bound


@dataclass(frozen=True)
class Workload:
    """One benchmark.

    Attributes:
        name: For ``--only`` and the results.
        title: For people.
        arguments: Of the load generator, apart from target, time and warm-up.
        target: What the design demands.
    """

    name: str
    title: str
    arguments: tuple[str, ...]
    target: Target


def _at_most(metric: str, bound: float, text: str) -> Target:
    return Target(metric, bound, at_least=False, text=text)


def _at_least(metric: str, bound: float, text: str) -> Target:
    return Target(metric, bound, at_least=True, text=text)


def _stream_request() -> str:
    payload = bytes(range(_PAYLOAD_BYTES))
    request = echo_pb2.StreamRequest(payload=payload, messages=_STREAM_MESSAGES)
    return request.SerializeToString().hex()


def _stream_reply_bytes() -> int:
    return echo_pb2.EchoReply(payload=bytes(_PAYLOAD_BYTES)).ByteSize()


def _path(method: str) -> tuple[str, str]:
    return "--path", f"/services.echo.Echo/{method}"


WORKLOADS = (
    Workload(
        name="unary_64",
        title="unary, 64 in flight",
        arguments=(*_path("Echo"), *_SMALL_ECHO, *_IN_FLIGHT_64),
        target=_at_most("cpu_us_per_request", 1 / 8, "CPU per request <= 1/8"),
    ),
    Workload(
        name="suspend_64",
        title="unary, handler suspends once, 64 in flight",
        arguments=(*_path("EchoSuspend"), *_SMALL_ECHO, *_IN_FLIGHT_64),
        target=_at_most("cpu_us_per_request", 1 / 7, "CPU per request <= 1/7"),
    ),
    Workload(
        name="unary_1",
        title="unary, one in flight",
        arguments=(*_path("Echo"), *_SMALL_ECHO, "--in-flight", "1"),
        target=_at_most("p50_ms", 0.5, "p50 <= 0.5x"),
    ),
    Workload(
        name="stream_100",
        title="server streaming, 100 messages a call",
        arguments=(
            *_path("EchoStream"),
            *("--kind", "server-streaming", "--request-hex", _stream_request()),
            *("--expect-messages", str(_STREAM_MESSAGES)),
            *("--expect-bytes", str(_stream_reply_bytes())),
            *("--in-flight", "16", "--connections", "4"),
            *_COMMON,
        ),
        target=_at_least("messages_per_cpu_s", 8, "messages per CPU second >= 8x"),
    ),
    Workload(
        name="echo_1mib",
        title="unary, 1 MiB each way",
        arguments=(
            *_path("Echo"),
            *("--payload-bytes", str(_MIB), "--expect-echo"),
            *("--in-flight", "4", "--connections", "4"),
            *_COMMON,
        ),
        target=_at_least("mb_per_s", 2, "MB/s >= 2x"),
    ),
)
