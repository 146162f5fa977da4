"""Deployments that do what their callers say, and calls between them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

import pyserve
from pyserve.api.context import attached
from pyserve.request import current_request


class HomeMadeError(Exception):
    """Makes its text from what it is given, which pickling would do twice."""

    def __init__(self, number: int) -> None:
        super().__init__(f"number {number}")
        self.number = number


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    number: int


class EmptyError(Exception):
    """False, as whatever has a length of 0."""

    def __len__(self) -> int:
        return 0


class UnreadableError(Exception):
    def __bool__(self) -> bool:
        raise LookupError


@pyserve.deployment(max_ongoing_requests=1_000)
class Worker:
    """Counts what runs, so that tests can see what ended and what did not."""

    def __init__(self) -> None:
        self.running = 0
        self.cancelled = 0
        self.closed = 0
        self.produced = 0
        self._opened = asyncio.Event()
        self._working = asyncio.Semaphore(2)

    def __call__(self, value: Any = None) -> Any:
        return value

    async def add(self, *values: float, **named: float) -> float:
        return sum(values) + sum(named.values())

    async def gather(self, *values: Any) -> list[Any]:
        return list(values)

    async def fail(self, kind: str) -> None:
        match kind:
            case "own":
                raise HomeMadeError(7)
            case "builtin":
                raise KeyError("no such key")
            case "local":

                class UnreachableError(Exception):
                    pass

                raise UnreachableError("cannot be imported")
            case "caused":
                try:
                    raise ValueError("the first")
                except ValueError as error:
                    raise RuntimeError("the second") from error
            case "frozen":
                raise FrozenError(7)
            case "false":
                raise EmptyError("nothing")
            case "unreadable":
                raise UnreadableError("nothing")
            case "abort":
                raise pyserve.Abort(grpc.StatusCode.NOT_FOUND, "no such digit", (("why", "7"),))

    async def fail_after_one(self, kind: str) -> AsyncIterator[int]:
        yield 1
        await self.fail(kind)

    async def wait(self, key: str = "") -> str:
        """Wait until ``open`` is called."""
        self.running += 1
        try:
            await self._opened.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return key

    async def open(self) -> None:
        self._opened.set()
        self._opened = asyncio.Event()

    async def sleep(self, delay_s: float) -> float:
        await asyncio.sleep(delay_s)
        return delay_s

    async def counts(self) -> dict[str, int]:
        return {
            "running": self.running,
            "cancelled": self.cancelled,
            "closed": self.closed,
            "produced": self.produced,
        }

    async def count_up(self, end: int, size: int = 0) -> AsyncIterator[Any]:
        self.produced = 0
        try:
            for number in range(end):
                self.produced += 1
                yield bytes(size) if size else number
        finally:
            self.closed += 1

    def count_in_thread(self, end: int) -> Iterator[int]:
        yield from range(end)

    async def stall(self) -> AsyncIterator[int]:
        """Yield one item, and the next after ``open``."""
        yield 1
        await self.wait()
        yield 2

    async def breaks(self) -> AsyncIterator[int]:
        yield 1
        raise ValueError("broken")

    async def blob(self, size: int, byte: int = 7) -> bytes:
        return bytes([byte]) * size

    async def size_of(self, value: Any) -> int:
        return len(value)

    async def held(self) -> int:
        return attached().references.held_count

    async def look_up(self, values: dict[str, pyserve.ObjectRef]) -> list[Any]:
        found = [await each for each in values.values()]
        return [len(each) if isinstance(each, bytes) else each for each in found]

    async def paced(self, count: int, delay_s: float) -> AsyncIterator[int]:
        for number in range(count):
            await asyncio.sleep(delay_s)
            yield number

    async def pass_on(self, delay_s: float, value: Any) -> Any:
        """Work on one value at a time."""
        async with self._working:
            await asyncio.sleep(delay_s)
        return value

    async def kind_of(self, value: Any) -> str:
        return type(value).__name__

    async def who(self) -> dict[str, Any]:
        request = current_request()
        assert request is not None
        return {
            "pid": os.getpid(),
            "replica": pyserve.get_replica_context().replica_id,
            "model": pyserve.get_multiplexed_model_id(),
            "request": request.request_id,
            "left_s": request.time_remaining(),
            "thread": threading.current_thread().name,
        }


@pyserve.deployment(max_ongoing_requests=1)
class OneAtATime:
    """Has room for one call only."""

    def __init__(self) -> None:
        self._seen: list[int] = []
        self._released: asyncio.Event | None = None

    async def __call__(self, value: int) -> int:
        self._seen.append(value)
        await asyncio.sleep(0)
        return value + 1

    async def seen(self) -> list[int]:
        return self._seen

    async def hold(self) -> None:
        """Keep the only place until ``release``, which has to be broadcast."""
        self._released = asyncio.Event()
        await self._released.wait()
        self._released = None

    async def is_held(self) -> bool:
        return self._released is not None

    async def release(self) -> None:
        assert self._released is not None
        self._released.set()


@pyserve.deployment(serializer="msgpack")
class Packing:
    """Its callers use msgpack unless they say something else."""

    async def __call__(self, value: Any) -> str:
        return type(value).__name__


@pyserve.deployment(num_replicas=3)
class Several:
    """Runs in several processes."""

    def __init__(self) -> None:
        self._noted: list[Any] = []

    async def __call__(self, value: Any = None) -> str:
        return pyserve.get_replica_context().replica_id

    async def size_of(self, value: Any) -> int:
        return len(value)

    async def process(self) -> int:
        return os.getpid()

    async def note(self, value: Any) -> list[Any]:
        self._noted.append(value)
        return self._noted

    async def noted(self) -> list[Any]:
        return self._noted

    async def fail_unless(self, replica_id: str) -> str:
        if pyserve.get_replica_context().replica_id != replica_id:
            raise HomeMadeError(7)
        return replica_id


@pyserve.deployment
class Patient:
    """Waits for a full batch longer than any test."""

    @pyserve.batch(max_batch_size=50, batch_wait_timeout_s=60)
    async def __call__(self, values: list[int]) -> list[int]:
        return [2 * value for value in values]


@pyserve.deployment
class Holder:
    """Has a handle from the start, and does not use it."""

    def __init__(self, held: pyserve.DeploymentHandle) -> None:
        self._held = held

    def threads(self) -> list[str]:
        return [thread.name for thread in threading.enumerate()]


@pyserve.deployment
class Adder:
    """One node of a graph."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    async def __call__(self, value: int) -> int:
        children = [each for each in self._parts if not isinstance(each, int)]
        own = sum(each for each in self._parts if isinstance(each, int))
        answers = [child.remote(value) for child in children]
        return int(own + sum([await answer for answer in answers]))


@pyserve.deployment(max_ongoing_requests=1_000)
class Chief:
    """Calls the others, as a replica does."""

    def __init__(
        self,
        worker: pyserve.DeploymentHandle,
        one: pyserve.DeploymentHandle,
        several: pyserve.DeploymentHandle,
        graph: pyserve.DeploymentHandle,
        *_others: pyserve.DeploymentHandle,
    ) -> None:
        self._worker = worker
        self._graph = graph
        self._kept: list[Any] = []
        self._looking_up = 0

    async def __call__(self, value: Any) -> Any:
        return await self._worker.remote(value)

    async def sum_of_graph(self, value: int) -> int:
        return int(await self._graph.remote(value))

    async def ensemble(self, names: list[str], value: int) -> int:
        """Ask all of them at once, and add up what they say."""
        answers = [pyserve.get_deployment_handle(name).remote(value) for name in names]
        return sum(await asyncio.gather(*answers))

    async def type_of_worker(self) -> str:
        return type(self._worker).__name__

    async def child_waits(self, *, detached: bool = False, shielded: bool = False) -> str:
        """Wait for a child call, or beside it."""
        child = self._worker.wait.options(detached=detached).remote("child")
        self._kept.append(child)
        if shielded:
            await asyncio.Event().wait()
        return str(await child)

    async def leaves_child(self) -> None:
        """End without having waited for a child call."""
        self._kept.append(self._worker.wait.remote("left"))

    async def keeps_value(self, size: int) -> int:
        """End with a reference to a child's value that nobody drops."""
        self._kept.append(await self._worker.blob.remote(size)._to_object_ref())
        return int(await self._worker.held.remote())

    async def forgets_value(self) -> int:
        """Use what ``keeps_value`` kept, and drop it."""
        return len(await self._kept.pop())

    async def who(self, **options: Any) -> list[dict[str, Any]]:
        child = await self._worker.who.options(**options).remote()
        request = current_request()
        assert request is not None
        own = {"request": request.request_id, "left_s": request.time_remaining()}
        return [own, child]

    def from_thread(self, value: int) -> int:
        """Call from a thread of the pool, which runs no loop."""
        return int(self._worker.remote(value).result(timeout_s=10))

    async def relay(self, size: int) -> int:
        """Let one child make a value and another one take it."""
        return int(await self._worker.size_of.remote(self._worker.blob.remote(size)))

    async def look_up(self, name: str, value: str) -> str:
        self._looking_up += 1
        try:
            return str(await pyserve.get_deployment_handle(name).remote(value))
        finally:
            self._looking_up -= 1

    async def looks_up(self) -> bool:
        return self._looking_up > 0

    async def fail_below(self, kind: str) -> None:
        await self._worker.fail.remote(kind)

    async def put(self, size: int) -> Any:
        return [pyserve.put(bytes(size)), pyserve.put(b"small")]


_leaves = [Adder.options(name=f"Leaf{number}").bind(number) for number in range(5)]
_graph = Adder.options(name="Root").bind(
    Adder.options(name="Left").bind(*_leaves[:3]),
    Adder.options(name="Right").bind(*_leaves[2:]),
    Adder.options(name="Middle").bind(_leaves[0], 100),
    1_000,
)

_worker = Worker.bind()
app = Chief.bind(
    _worker,
    OneAtATime.bind(),
    Several.bind(),
    _graph,
    Patient.bind(),
    Packing.bind(),
    Holder.bind(_worker),
)
