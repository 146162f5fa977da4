"""Plain calls of every kind of method, over a replica's server."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import pyserve
from pyserve import serializers
from pyserve.api.handles.framing import ID, ID_PADDING, STREAM, RequestHeader
from pyserve.errors import SerializationError, UsageError
from pyserve.replica.plain.dispatcher import PlainDispatcher
from pyserve.request import current_request
from pyserve.serializers import codec, join
from pyserve.serializers.pickle import PickleCodec
from services.echo import echo_pb2_grpc
from tests.support.waiting import eventually
from tests.unit.replica.native_client import Client
from tests.unit.replica.plain_server import call, checked, framed, items, serving, value_of

OK, INVALID_ARGUMENT, UNIMPLEMENTED = 0, 3, 12


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
async def plain() -> AsyncIterator[Client]:
    async with serving(Plain()) as client:
        yield client


def test_public_methods_can_be_called_and_nothing_else() -> None:
    expected = {
        "__call__", "add", "count", "count_in_a_thread", "double", "fail", "hidden", "square",
        "stop_iteration", "thread", "who",
    }  # fmt: skip
    assert expected == set(PlainDispatcher(Plain(), "default", "Plain").methods)


async def test_each_kind_of_method_answers(plain: Client) -> None:
    assert "XYXY" == await call(plain, "__call__", "xy", times=2)
    assert 42 == await call(plain, "double", 21)
    assert 3 == await call(plain, "add", 1, second=2)
    assert "Plain" == await call(plain, "who")
    assert [0, 1, 4] == list(
        await asyncio.gather(*(call(plain, "square", number) for number in range(3)))
    )


async def test_a_def_runs_on_a_thread_and_sees_its_request(plain: Client) -> None:
    message = framed(header=RequestHeader(request_id="mine"))
    name, request_id = value_of((await plain.unary("thread", message)).message)
    assert threading.current_thread().name != name
    assert "mine" == request_id


async def test_an_async_function_behind_a_def_runs_on_the_loop(plain: Client) -> None:
    assert 8 == await call(plain, "hidden")


@pytest.mark.parametrize("name", ["count", "count_in_a_thread"])
async def test_a_generator_streams_and_is_closed_with_its_stream(name: str) -> None:
    instance = Plain()
    async with serving(instance) as client:
        assert [0, 1, 2] == await items(client, name, 3)
        assert 1 == instance.closed
        stream = client.start(name, framed(1_000_000_000, flags=STREAM), stream=True)
        assert 0 == value_of(await stream.messages.get())
        stream.cancel()
        await eventually(lambda: instance.closed == 2)


async def test_a_caller_that_is_wrong_about_streams_is_told_what_to_write(plain: Client) -> None:
    with pytest.raises(UsageError, match=r"Plain\.count yields.*\.options\(stream=True\)"):
        await call(plain, "count", 3)
    with pytest.raises(UsageError, match=r"Plain\.double .*leave \.options\(stream=True\) out"):
        await items(plain, "double", 3)


async def test_user_exceptions_pass_as_they_are(plain: Client) -> None:
    with pytest.raises(LookupError, match="nothing there"):
        await call(plain, "fail")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await call(plain, "stop_iteration")


async def test_wrong_arguments_are_pythons_own_error(plain: Client) -> None:
    with pytest.raises(TypeError, match=r"double\(\) missing 1 required positional argument"):
        await call(plain, "double")


async def test_an_unknown_method_is_unimplemented_and_names_the_close_one(plain: Client) -> None:
    outcome = await plain.unary("duoble", framed(1))
    assert UNIMPLEMENTED == outcome.code
    assert "no method 'duoble'" in outcome.details
    assert "did you mean 'double'" in outcome.details
    assert "no method '_private'" in (await plain.unary("_private", framed())).details


async def test_the_answer_comes_in_the_codec_that_was_asked_for(plain: Client) -> None:
    asked = plain.start("double", framed(4, header=RequestHeader(response_codec="json")))
    outcome = await asked.done
    assert asked.raw is not None
    assert ("json", 8) == (asked.raw.subtype(), value_of(outcome.message, "json"))


async def test_a_foreign_caller_sends_the_bare_body_of_any_codec(plain: Client) -> None:
    body = b'[["ab"],{"times":2}]'
    outcome = await plain.unary("__call__", body, subtype="json", framed=False)
    assert (OK, b'"ABAB"') == (outcome.code, outcome.message)


@pytest.mark.parametrize("message", [b"", b"\x01\x00", b"\x01\x00\x00\x00\x09x", b"\x08short"])
async def test_a_garbled_frame_is_refused(plain: Client, message: bytes) -> None:
    with pytest.raises(SerializationError, match=r"Plain\.double"):
        checked(await plain.unary("double", message))


async def test_a_foreign_caller_learns_what_was_wrong_with_its_body(plain: Client) -> None:
    outcome = await plain.unary("double", b"[", subtype="json", framed=False)
    assert INVALID_ARGUMENT == outcome.code
    assert "Plain.double" in outcome.details


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
    assert ["__call__"] == list(PlainDispatcher(function, "default", "named").methods)
    async with serving(function) as client:
        assert expected == await call(client, "__call__", argument)


async def test_batched_rpcs_get_the_contexts_of_their_calls() -> None:
    async with serving(Batching(), with_rpcs=True) as client:
        assert [("a", None), ("b", None)] == list(
            await asyncio.gather(*(call(client, "Echo", each) for each in "ab"))
        )
        assert [[("a", None)], [("b", None)]] == list(
            await asyncio.gather(*(items(client, "EchoStream", each) for each in "ab"))
        )


async def test_a_generator_function_streams() -> None:
    async with serving(count) as client:
        assert [0, 1] == await items(client, "__call__", 2)


def test_a_time_limit_of_a_def_is_refused() -> None:
    class Limited:
        @pyserve.method(timeout_s=1.0)
        def work(self) -> None:
            pass

    with pytest.raises(UsageError, match="cannot be stopped; make it `async def`"):
        PlainDispatcher(Limited(), "default", "Limited")


async def test_a_request_is_known_by_the_id_that_its_frame_names(plain: Client) -> None:
    prefix = bytes((ID,)) + b"0123456789abcdef" + ID_PADDING
    message = join([prefix, *codec("pickle").encode_call((), {})])
    _, request_id = value_of((await plain.unary("thread", message)).message)
    assert "0123456789abcdef" == request_id


class Private(PickleCodec):
    name = "private"


async def test_codecs_of_the_mesh_are_not_read_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native half knows them by the word pickle only, and a registered one may lack it."""
    monkeypatch.setattr(serializers, "_codecs", dict(serializers._codecs))
    serializers.register_codec(Private())
    (body,) = codec("pickle").encode_call((3,), {})
    async with serving(Plain()) as client:
        for subtype in ("pickle", "private"):
            outcome = await client.unary("double", bytes(body), subtype=subtype, framed=False)
            assert UNIMPLEMENTED == outcome.code
            assert "only inside the mesh" in outcome.details
