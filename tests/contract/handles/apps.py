"""The deployments that the contract of handles is tested with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc

import pyserve

# More than what travels inline, so it stays at its producer where it may.
LARGE = 200_000


class Refused(Exception):
    """An exception of user code that can be rebuilt from its argument."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Mute(Exception):
    """Has no text to give."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Base(BaseException):
    """No ``Exception``, which handlers of exceptions do not expect."""


def _odd(kind: str) -> BaseException:
    odd: dict[str, BaseException] = {
        "mute": Mute(),
        "surrogate": ValueError("\udc80"),
        "abort": pyserve.Abort(grpc.StatusCode.NOT_FOUND, "\udc80"),
        "base": Base("base"),
    }
    return odd[kind]


@pyserve.deployment
class Echo:
    """One method of each kind."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._ended: list[str] = []
        self._held = asyncio.Event()

    def __call__(self, value: object) -> object:
        return value

    async def say(self, word: str, *, times: int = 1) -> str:
        return self._prefix + word * times

    def thread(self) -> str:
        return threading.current_thread().name

    async def numbers(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    def plain_numbers(self, count: int) -> Iterator[int]:
        yield from range(count)

    async def large(self, fill: int) -> bytes:
        return bytes([fill]) * LARGE

    async def large_pieces(self, count: int) -> AsyncIterator[bytes]:
        for fill in range(count):
            yield bytes([fill]) * LARGE

    async def fail(self, reason: str) -> None:
        raise Refused(reason)

    async def fail_oddly(self, kind: str) -> None:
        raise _odd(kind)

    def fail_oddly_on_a_thread(self, kind: str) -> None:
        raise _odd(kind)

    async def fail_oddly_after_one(self, kind: str) -> AsyncIterator[int]:
        yield 1
        raise _odd(kind)

    async def fail_after(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number
        raise Refused("enough")

    async def abort(self) -> None:
        raise pyserve.Abort(grpc.StatusCode.NOT_FOUND, "there is none")

    async def wait(self, name: str) -> None:
        """Wait until somebody cancels the call, and remember that somebody did."""
        try:
            await asyncio.Event().wait()
        finally:
            self._ended.append(name)

    async def wait_and_tidy_up(self, name: str) -> None:
        """Wait until somebody cancels the call, and have that remembered by a call."""
        try:
            await asyncio.Event().wait()
        finally:
            context = pyserve.get_replica_context()
            own = pyserve.get_deployment_handle(context.deployment, context.app_name)
            await own.note.remote(name)

    def note(self, name: str) -> None:
        self._ended.append(name)

    async def wait_streaming(self, name: str) -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            self._ended.append(name)

    async def endless(self, name: str) -> AsyncIterator[bytes]:
        """Make messages as fast as somebody takes them."""
        self.made = 0
        try:
            while True:
                self.made += 1
                yield bytes(1000)
        finally:
            self._ended.append(name)

    async def count_made(self) -> int:
        return self.made

    async def ended(self) -> list[str]:
        return self._ended

    async def seen(self) -> tuple[str, str, bool, str]:
        request = pyserve.get_request_context()
        context = pyserve.get_replica_context()
        has_deadline = request.time_remaining() is not None
        return request.request_id, request.multiplexed_model_id, has_deadline, context.deployment

    async def first(self, *values: object) -> list[object]:
        return [type(value).__name__ for value in values]

    async def sizes(self, *values: bytes, last: bytes = b"") -> list[tuple[int, int]]:
        return [(len(value), value[0] if value else 0) for value in (*values, last)]


@pyserve.deployment
class Returning(Echo):
    """Returns generators where others yield."""

    def return_numbers(self, count: int) -> AsyncIterator[int]:
        return self.numbers(count)

    def return_plain_numbers(self, count: int) -> Iterator[int]:
        return self.plain_numbers(count)

    async def await_numbers(self, count: int) -> AsyncIterator[int]:
        return self.numbers(count)

    async def await_plain_numbers(self, count: int) -> Iterator[int]:
        return self.plain_numbers(count)

    @pyserve.method(timeout_s=0.5)
    async def return_limited(self, name: str) -> AsyncIterator[int]:
        return self.wait_streaming(name)

    def return_waiting(self, name: str) -> AsyncIterator[int]:
        return self.wait_streaming(name)

    async def return_failing(self, count: int) -> AsyncIterator[int]:
        return self.fail_after(count)

    def return_endless(self, name: str) -> AsyncIterator[bytes]:
        return self.endless(name)

    def return_endless_on_a_thread(self, name: str) -> Iterator[bytes]:
        return self._endless_on_a_thread(name)

    async def await_endless_on_a_thread(self, name: str) -> Iterator[bytes]:
        return self._endless_on_a_thread(name)

    def _endless_on_a_thread(self, name: str) -> Iterator[bytes]:
        self.made = 0
        try:
            while True:
                self.made += 1
                yield bytes(1000)
        finally:
            self._ended.append(name)

    def return_a_list(self) -> list[int]:
        return [1, 2]

    async def await_a_list(self) -> list[int]:
        return [1, 2]

    def return_an_iterator(self) -> Iterator[int]:
        return iter([1, 2])

    def relay_through(self, child: pyserve.DeploymentHandle, count: int) -> AsyncIterator[int]:
        stream: AsyncIterator[int] = child.numbers.options(stream=True).remote(count)
        return stream


@pyserve.deployment
class Door:
    """Holds all callers until it is opened."""

    def __init__(self) -> None:
        self._inside = 0
        self._inside_max = 0
        self._entered: list[str] = []
        self._open = asyncio.Event()

    async def enter(self, name: str) -> str:
        self._inside += 1
        self._inside_max = max(self._inside_max, self._inside)
        self._entered.append(name)
        try:
            await self._open.wait()
        finally:
            self._inside -= 1
        return name

    async def look(self) -> tuple[int, int, list[str]]:
        return self._inside, self._inside_max, self._entered

    async def open(self) -> None:
        self._open.set()

    async def begin_again(self) -> None:
        self._open.clear()
        self._inside_max = 0
        self._entered.clear()


@pyserve.deployment(max_ongoing_requests=2, max_queued_requests=3)
class Narrow:
    """Two calls at a time, three may wait."""

    def __init__(self, door: pyserve.DeploymentHandle) -> None:
        self._door = door

    async def enter(self, name: str) -> str:
        entered: str = await self._door.enter.remote(name)
        return entered


@pyserve.deployment(max_ongoing_requests=1)
class Single:
    """One call at a time."""

    async def __call__(self, value: int) -> int:
        await asyncio.sleep(0)
        return value + 1


@pyserve.deployment
class Batches:
    def __init__(self) -> None:
        self._seen: list[tuple[str, list[int]]] = []

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=30.0)
    async def double(self, numbers: list[int]) -> list[object]:
        self._seen.append((pyserve.get_multiplexed_model_id(), sorted(numbers)))
        return [Refused("negative") if number < 0 else number * 2 for number in numbers]

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=30.0)
    async def steps(self, numbers: list[int]) -> AsyncIterator[list[int]]:
        for step in range(2):
            yield [step * number for number in numbers]

    async def one_by_one(self) -> list[list[int]]:
        """Call twice, and read the one after the other."""
        streams = [self.steps(number) for number in (1, 2)]
        return [[item async for item in stream] for stream in streams]

    def return_steps(self, number: int) -> AsyncIterator[int]:
        steps: AsyncIterator[int] = self.steps(number)
        return steps

    async def await_steps(self, number: int) -> AsyncIterator[int]:
        return self.return_steps(number)

    async def seen(self) -> list[tuple[str, list[int]]]:
        found, self._seen = self._seen, []
        return found


@pyserve.deployment
class Models:
    def __init__(self) -> None:
        self._loads: list[str] = []

    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def load(self, model_id: str) -> str:
        self._loads.append(model_id)
        return model_id.upper()

    async def __call__(self) -> str:
        return await self.load(pyserve.get_multiplexed_model_id())

    async def loads(self) -> list[str]:
        return self._loads


@pyserve.deployment
async def shout(text: str) -> str:
    return text.upper()


@pyserve.deployment
class Front:
    """Calls the others, as an application's ingress does."""

    def __init__(
        self,
        echo: pyserve.DeploymentHandle,
        shout: pyserve.DeploymentHandle,
        others: list[pyserve.DeploymentHandle],
    ) -> None:
        self._echo = echo
        self._shout = shout
        self._others = others

    async def __call__(self, word: str) -> str:
        shouted: str = await self._shout.remote(self._echo.say.remote(word))
        return shouted

    async def relay(self, count: int) -> AsyncIterator[int]:
        async for number in self._echo.numbers.options(stream=True).remote(count):
            yield number * 10

    async def wait_below(self, name: str) -> None:
        await self._echo.wait.remote(name)

    async def deadline_below(self) -> bool:
        _, _, has_deadline, _ = await self._echo.seen.remote()
        return bool(has_deadline)

    async def id_below(self) -> tuple[str, str]:
        return pyserve.get_request_context().request_id, (await self._echo.seen.remote())[0]

    def from_thread(self, word: str) -> str:
        said: str = self._echo.say.remote(word).result(timeout_s=30)
        return said

    async def large_through(self, fill: int) -> list[tuple[int, int]]:
        sizes: list[tuple[int, int]] = await self._echo.sizes.remote(self._echo.large.remote(fill))
        return sizes


@pyserve.deployment
class Holder:
    """Has deployments below it, and no method of its own."""

    def __init__(self, *children: pyserve.DeploymentHandle) -> None:
        self._children = children


@pyserve.deployment
class Slow:
    """Needs the loop to come up, and to end."""

    def __new__(cls, *_arguments: object, **_keywords: object) -> Slow:
        made: Slow = super().__new__(cls)
        made.is_ready = False  # type: ignore[attr-defined]
        return made

    async def __init__(self, notes: str, *, fails: bool = False) -> None:  # type: ignore[misc]
        self._notes = Path(notes)
        await asyncio.sleep(0)
        if fails:
            raise ValueError("no weights")
        self.context = pyserve.get_replica_context().deployment
        self._note("ready")
        self.is_ready = True

    async def __call__(self) -> tuple[bool, str]:
        return self.is_ready, self.context

    async def aclose(self) -> None:
        self._note("aclose")

    async def __del__(self) -> None:
        await asyncio.sleep(0)
        self._note("__del__")

    def _note(self, what: str) -> None:
        with self._notes.open("a") as file:
            file.write(f"{what}\n")


app = Front.bind(
    Echo.bind(),
    shout.bind(),
    [Returning.bind(), Narrow.bind(Door.bind()), Single.bind(), Batches.bind(), Models.bind()],
)
