"""A mesh without a network: tests see every call that starts, and answer it when they like."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import msgpack

from pyserve.api.handles.calls import Metadata, Pinned, Receiver, Reservation, Route
from pyserve.api.handles.failures import FAILURE_KEY, encode_failure
from pyserve.api.handles.framing import REFERENCE, VALUE, RequestHeader, read_request
from pyserve.bridge import DONE, MESSAGE
from pyserve.errors import ReferenceLost
from pyserve.references import Descriptor
from pyserve.routing.in_process import CallsLoop
from pyserve.serializers import codec, join
from pyserve.types import DeploymentKey


@dataclass(eq=False)
class FakeCall:
    """One call that was started; also what the handle sees of it."""

    route: Route
    message: bytes
    timeout_s: float | None
    _receiver: Receiver | None
    place: Reservation | Pinned | None
    loop: asyncio.AbstractEventLoop
    status: tuple[grpc.StatusCode, str, Metadata] = (grpc.StatusCode.OK, "", ())
    is_cancelled: bool = False
    taken_bytes: int = 0

    @property
    def header(self) -> RequestHeader:
        return read_request(self.message)[1]

    @property
    def flags(self) -> int:
        return self.message[0]

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        _, _, body = read_request(self.message)
        return codec(self.route.codec).decode_call(body)

    # --- what the test does -----------------------------------------------------------------

    def answer(self, value: object, name: str = "pickle") -> None:
        self._deliver(DONE, join([bytes((VALUE,)), *codec(name).encode(value)]))

    def answer_held(self, descriptor: Descriptor) -> None:
        self._deliver(DONE, bytes((REFERENCE,)) + msgpack.packb(descriptor.to_wire()))

    def send(self, value: object) -> None:
        self._deliver(MESSAGE, join([bytes((VALUE,)), *codec("pickle").encode(value)]))

    def end(self) -> None:
        self._deliver(DONE, None)

    def raises(self, error: Exception) -> None:
        self.fails(grpc.StatusCode.INTERNAL, "", ((FAILURE_KEY, encode_failure(error)),))

    def fails(self, code: grpc.StatusCode, details: str = "", metadata: Metadata = ()) -> None:
        self.status = (code, details, metadata)
        self._deliver(DONE, None)

    def _deliver(self, kind: int, payload: bytes | None) -> None:
        receiver = self._receiver
        assert receiver is not None, "the call has ended"
        self.loop.call_soon_threadsafe(receiver.on_event, kind, None, payload)
        if kind == DONE:  # As the loop's endpoint does it.
            self._receiver = None

    @property
    def receiver(self) -> Receiver:
        assert self._receiver is not None, "the call has ended"
        return self._receiver

    # --- what the handle asks ---------------------------------------------------------------

    def code(self) -> int | None:
        number: int = self.status[0].value[0]
        return number

    def details(self) -> str | None:
        return self.status[1]

    def trailing_metadata(self) -> Metadata | None:
        return self.status[2]


class FakeCaller:
    def __init__(self, key: DeploymentKey) -> None:
        self.key = key
        self.calls: list[FakeCall] = []
        self.replica_ids = ["A", "B"]
        self.default_codec = ""
        self.near = True

    def prepare(self, route: Route) -> Route:
        return route

    def start(
        self,
        route: Route,
        message: Any,
        timeout_s: float | None,
        receiver: Receiver,
        place: Reservation | Pinned | None = None,
        /,
    ) -> FakeCall:
        whole = message if isinstance(message, bytes) else join(message)
        call = FakeCall(route, whole, timeout_s, receiver, place, asyncio.get_running_loop())
        self.calls.append(call)
        return call

    def backpressure(self, call: Any, /) -> tuple[int, float | None]:
        return 429, 2.0

    def cancel(self, call: Any, loop: asyncio.AbstractEventLoop, /) -> None:
        assert loop is call.loop
        call.is_cancelled = True

    def taken(self, call: Any, size_bytes: int, loop: asyncio.AbstractEventLoop, /) -> None:
        assert loop is call.loop
        call.taken_bytes += size_bytes

    async def choose(self, route: Route, timeout_s: float | None) -> FakeReservation:
        return FakeReservation("A")

    def place_of(self, replica_id: str) -> tuple[str, str]:
        return "127.0.0.1", ""

    def is_near(self) -> bool:
        return self.near

    def serializer(self) -> str:
        return self.default_codec

    def replicas(self) -> Sequence[tuple[str, str, Sequence[str]]]:
        return [(replica_id, "node", ()) for replica_id in self.replica_ids]


@dataclass(eq=False)
class FakeReservation:
    replica_id: str
    node: str = "node"
    is_released: bool = False

    def release(self) -> None:
        self.is_released = True


@dataclass
class FakeReferences:
    """Values by key; ``released`` has those that their last lease gave back."""

    values: dict[str, bytes] = field(default_factory=dict)
    released: list[str] = field(default_factory=list)

    def hold(self, body: Any, codec: str) -> Descriptor:
        key = f"key{len(self.values)}"
        self.values[key] = join(body)
        return descriptor(key, len(self.values[key]), codec)

    async def fetch(self, descriptor: Descriptor) -> bytes:
        return self.fetch_blocking(descriptor, None)

    def fetch_blocking(self, descriptor: Descriptor, timeout_s: float | None = None) -> bytes:
        if descriptor.key not in self.values:
            raise ReferenceLost(descriptor.key)
        return self.values[descriptor.key]

    def release(self, descriptor: Descriptor) -> None:
        self.released.append(descriptor.key)


class FakeMesh:
    def __init__(self) -> None:
        self.callers: dict[DeploymentKey, FakeCaller] = {}
        self.references: Any = FakeReferences()
        self._calls_loop = CallsLoop()

    def caller(self, key: DeploymentKey) -> FakeCaller:
        return self.callers.setdefault(key, FakeCaller(key))

    def prepare(self) -> None:
        """Nothing to start."""

    def calls_loop(self) -> asyncio.AbstractEventLoop:
        return self._calls_loop.get()

    def open_channel(self, key: DeploymentKey) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self._calls_loop.close()


def descriptor(key: str, size_bytes: int = 100_000, codec: str = "pickle") -> Descriptor:
    """Return a descriptor of a value that somebody else holds."""
    return Descriptor(
        holder_id="A", node="node", unix_path="", key=key, size_bytes=size_bytes, codec=codec
    )
