"""Plain calls of every kind of method, without sockets."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

import pyserve
from pyserve.api.handles.framing import STREAM, VALUE, RequestHeader, frame_request, id_prefix
from pyserve.errors import Abort, SerializationError, UsageError
from pyserve.replica.checks import check_class
from pyserve.replica.plain.dispatcher import PlainDispatcher
from pyserve.replica.servicers import find_services
from pyserve.request import Request, current_request
from pyserve.serializers import codec, join
from services.echo import echo_pb2_grpc


class Plain:
    """Has one method of each kind."""

    closed = 0
    label = "no method"

    class Inner:
        pass

    def __call__(self, text: str, *, times: int = 1) -> str:
        return text.upper() * times

    async def double(self, number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    def thread(self) -> tuple[str, str]:
        request = current_request()
        assert request is not None
        return threading.current_thread().name, request.request_id

    async def count(self, stop: int) -> AsyncIterator[int]:
        try:
            for number in range(stop):
                yield number
        finally:
            self.closed += 1

    def count_in_a_thread(self, stop: int) -> Iterator[int]:
        try:
            yield from range(stop)
        finally:
            self.closed += 1

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=0.0)
    async def square(self, numbers: list[int]) -> list[int]:
        return [number * number for number in numbers]

    @staticmethod
    def add(first: int, second: int) -> int:
        return first + second

    @classmethod
    async def who(cls) -> str:
        return cls.__name__

    async def fail(self) -> None:
        raise LookupError("nothing there")

    def stop_iteration(self) -> None:
        raise StopIteration

    def hidden(self) -> Any:
        return self.double(4)

    def _private(self) -> None:
        raise AssertionError("nobody may call this")

    @property
    def size(self) -> int:
        raise AssertionError("a property is no method")


def framed(
    *args: object, flags: int = 0, header: RequestHeader | None = None, **kwargs: Any
) -> bytes:
    return join(frame_request(codec("pickle").encode_call(args, kwargs), flags, header))


def joined(message: Any) -> bytes:
    return join([message] if isinstance(message, bytes) else message)


def value_of(message: Any, name: str = "pickle") -> Any:
    body = joined(message)
    assert VALUE == body[0]
    return codec(name).decode(memoryview(body)[1:])


class Batching(echo_pb2_grpc.EchoServicer):
    """Batched RPCs that take the contexts too."""

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=30.0)
    async def Echo(self, requests: list[Any], contexts: list[Any]) -> list[Any]:
        return [
            (each, context.time_remaining())
            for each, context in zip(requests, contexts, strict=True)
        ]

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=30.0)
    async def EchoStream(
        self, requests: list[Any], contexts: list[Any]
    ) -> AsyncIterator[list[Any]]:
        yield [
            (each, context.time_remaining())
            for each, context in zip(requests, contexts, strict=True)
        ]


@pytest.fixture
def dispatcher() -> PlainDispatcher:
    return PlainDispatcher(Plain(), "default", "Plain")


async def call(dispatcher: PlainDispatcher, name: str, *args: object, **kwargs: Any) -> Any:
    message, answered = await dispatcher.unary(
        name, framed(*args, **kwargs), subtype="pickle", framed=True, request=Request()
    )
    return value_of(message, answered)


def stream(dispatcher: PlainDispatcher, name: str, *args: object) -> AsyncIterator[Any]:
    return dispatcher.stream(
        name, framed(*args, flags=STREAM), subtype="pickle", framed=True, request=Request()
    )


def test_public_methods_can_be_called_and_nothing_else(dispatcher: PlainDispatcher) -> None:
    expected = {
        "__call__", "add", "count", "count_in_a_thread", "double", "fail", "hidden", "square",
        "stop_iteration", "thread", "who",
    }  # fmt: skip
    assert expected == set(dispatcher.methods)


async def test_each_kind_of_method_answers(dispatcher: PlainDispatcher) -> None:
    assert "XYXY" == await call(dispatcher, "__call__", "xy", times=2)
    assert 42 == await call(dispatcher, "double", 21)
    assert 3 == await call(dispatcher, "add", 1, second=2)
    assert "Plain" == await call(dispatcher, "who")
    assert [0, 1, 4] == list(
        await asyncio.gather(*(call(dispatcher, "square", number) for number in range(3)))
    )


async def test_a_def_runs_on_a_thread_and_sees_its_request(dispatcher: PlainDispatcher) -> None:
    message, _ = await dispatcher.unary(
        "thread", framed(), subtype="pickle", framed=True, request=Request(request_id="mine")
    )
    name, request_id = value_of(message)
    assert threading.current_thread().name != name
    assert "mine" == request_id


async def test_an_async_function_behind_a_def_runs_on_the_loop(
    dispatcher: PlainDispatcher,
) -> None:
    assert 8 == await call(dispatcher, "hidden")


@pytest.mark.parametrize("name", ["count", "count_in_a_thread"])
async def test_a_generator_streams_and_is_closed_with_its_stream(name: str) -> None:
    instance = Plain()
    dispatcher = PlainDispatcher(instance, "default", "Plain")
    assert [0, 1, 2] == [value_of(each) async for each in stream(dispatcher, name, 3)]
    assert 1 == instance.closed
    items = stream(dispatcher, name, 1_000_000_000)
    assert 0 == value_of(await anext(items))
    await items.aclose()  # type: ignore[attr-defined]
    assert 2 == instance.closed


async def test_a_caller_that_is_wrong_about_streams_is_told_what_to_write(
    dispatcher: PlainDispatcher,
) -> None:
    with pytest.raises(UsageError, match=r"Plain\.count yields.*\.options\(stream=True\)"):
        await call(dispatcher, "count", 3)
    with pytest.raises(UsageError, match=r"Plain\.double .*leave \.options\(stream=True\) out"):
        await anext(stream(dispatcher, "double", 3))


async def test_user_exceptions_pass_as_they_are(dispatcher: PlainDispatcher) -> None:
    with pytest.raises(LookupError, match="nothing there"):
        await call(dispatcher, "fail")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await call(dispatcher, "stop_iteration")


async def test_wrong_arguments_are_pythons_own_error(dispatcher: PlainDispatcher) -> None:
    with pytest.raises(TypeError, match=r"double\(\) missing 1 required positional argument"):
        await call(dispatcher, "double")


async def test_an_unknown_method_is_unimplemented_and_names_the_close_one(
    dispatcher: PlainDispatcher,
) -> None:
    with pytest.raises(Abort, match=r"no method 'duoble'.*did you mean 'double'") as raised:
        await call(dispatcher, "duoble", 1)
    assert grpc.StatusCode.UNIMPLEMENTED is raised.value.code
    with pytest.raises(Abort, match="no method '_private'"):
        await call(dispatcher, "_private")


async def test_the_answer_comes_in_the_codec_that_was_asked_for(
    dispatcher: PlainDispatcher,
) -> None:
    message, answered = await dispatcher.unary(
        "double",
        framed(4, header=RequestHeader(response_codec="json")),
        subtype="pickle",
        framed=True,
        request=Request(),
    )
    assert ("json", 8) == (answered, value_of(message, "json"))


async def test_a_foreign_caller_sends_the_bare_body_of_any_codec(
    dispatcher: PlainDispatcher,
) -> None:
    message, answered = await dispatcher.unary(
        "__call__", b'[["ab"],{"times":2}]', subtype="json", framed=False, request=Request()
    )
    assert ("json", b'"ABAB"') == (answered, joined(message))


@pytest.mark.parametrize("message", [b"", b"\x01\x00", b"\x01\x00\x00\x00\x09x", b"\x08short"])
async def test_a_garbled_frame_is_refused(dispatcher: PlainDispatcher, message: bytes) -> None:
    with pytest.raises(SerializationError, match=r"Plain\.double"):
        await dispatcher.unary("double", message, subtype="pickle", framed=True, request=Request())


async def test_a_foreign_caller_learns_what_was_wrong_with_its_body(
    dispatcher: PlainDispatcher,
) -> None:
    with pytest.raises(Abort, match=r"Plain\.double") as raised:
        await dispatcher.unary("double", b"[", subtype="json", framed=False, request=Request())
    assert grpc.StatusCode.INVALID_ARGUMENT is raised.value.code


def shout(text: str) -> str:
    return text.upper()


async def double(number: int) -> int:
    return 2 * number


async def count(stop: int) -> AsyncIterator[int]:
    for number in range(stop):
        yield number


@pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
async def halve(numbers: list[int]) -> list[float]:
    return [number / 2 for number in numbers]


@pytest.mark.parametrize(
    ("function", "argument", "expected"), [(shout, "a", "A"), (double, 2, 4), (halve, 3, 1.5)]
)
async def test_a_function_is_called_as_it_is(
    function: Callable[..., Any], argument: object, expected: object
) -> None:
    dispatcher = PlainDispatcher(function, "default", "named")
    assert ["__call__"] == list(dispatcher.methods)
    assert expected == await call(dispatcher, "__call__", argument)


async def test_batched_rpcs_get_the_contexts_of_their_calls() -> None:
    rpcs, _ = check_class(Batching, find_services(Batching))
    dispatcher = PlainDispatcher(Batching(), "default", "Batching", rpcs=rpcs)
    assert [("a", None), ("b", None)] == list(
        await asyncio.gather(*(call(dispatcher, "Echo", each) for each in "ab"))
    )

    async def first(text: str) -> Any:
        return [value_of(each) async for each in stream(dispatcher, "EchoStream", text)]

    assert [[("a", None)], [("b", None)]] == list(await asyncio.gather(first("a"), first("b")))


async def test_a_generator_function_streams() -> None:
    dispatcher = PlainDispatcher(count, "default", "count")
    assert [0, 1] == [value_of(each) async for each in stream(dispatcher, "__call__", 2)]


def test_a_time_limit_of_a_def_is_refused() -> None:
    class Limited:
        @pyserve.method(timeout_s=1.0)
        def work(self) -> None:
            pass

    with pytest.raises(UsageError, match="cannot be stopped; make it `async def`"):
        PlainDispatcher(Limited(), "default", "Limited")


async def test_a_request_is_known_by_the_id_that_its_frame_names(
    dispatcher: PlainDispatcher,
) -> None:
    body = codec("pickle").encode_call((3,), {})
    message = join([id_prefix(0, "0123456789abcdef"), *body])
    answer, _ = await dispatcher.unary(
        "double", message, subtype="pickle", framed=True, request=Request()
    )
    assert 6 == value_of(answer)


async def test_codecs_of_the_mesh_are_not_read_from_others(dispatcher: PlainDispatcher) -> None:
    """The native half knows them by the word pickle only, and a registered one may lack it."""
    (body,) = codec("pickle").encode_call((3,), {})
    with pytest.raises(Abort, match="only inside the mesh") as caught:
        await dispatcher.unary(
            "double", bytes(body), subtype="pickle", framed=False, request=Request()
        )
    assert grpc.StatusCode.UNIMPLEMENTED == caught.value.code
