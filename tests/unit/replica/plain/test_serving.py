"""Plain calls over loopback: what a handle sees, what a stranger sees, and what is left behind."""

import asyncio
import contextvars
import json
import pickle
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

import pyserve
from pyserve.api.handles.failures import FAILURE_KEY, rebuild
from pyserve.api.handles.framing import ALIGNED, STREAM, VALUE, answer_body, frame_request
from pyserve.config import DeploymentOptions
from pyserve.config.ingress import IngressSettings
from pyserve.replica.loading import Loaded
from pyserve.replica.serving import make_server
from pyserve.request import current_request
from pyserve.serializers import codec, join
from tests.support.waiting import eventually
from tests.unit.replica.native_client import Client, Outcome

TOKEN = b"token"
OK, INVALID_ARGUMENT, UNIMPLEMENTED, INTERNAL = 0, 3, 12, 13
RETURNED = ["returned", "returned_of_a_thread", "awaited", "awaited_of_a_thread"]
STREAMS = ["numbers", "numbers_of_a_thread", *RETURNED]


class Plain:
    def __init__(self) -> None:
        self.closed = threading.Event()
        self.hanging = asyncio.Event()
        self.cancelled = 0
        self.made = 0

    async def echo(self, value: Any) -> Any:
        return value

    def thread(self) -> str:
        return threading.current_thread().name

    async def me(self) -> tuple[str, str, str, bool]:
        request = current_request()
        assert request is not None
        named = (request.application, request.deployment, request.method)
        return (*named, request.deadline is not None)

    async def fail(self) -> None:
        raise LookupError("a secret")

    def abort(self) -> None:
        raise pyserve.Abort(grpc.StatusCode.OUT_OF_RANGE, "too far", [("why", "told")])

    async def hang(self) -> None:
        self.hanging.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.cancelled += 1

    @pyserve.method(timeout_s=0.01)
    async def limited(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def numbers(self, stop: int) -> AsyncIterator[Any]:
        try:
            for number in range(stop):
                self.made = number
                yield bytes(1000)
        finally:
            self.closed.set()

    def numbers_of_a_thread(self, stop: int) -> Iterator[Any]:
        try:
            for number in range(stop):
                self.made = number
                yield bytes(1000)
        finally:
            self.closed.set()

    def returned(self, stop: int) -> AsyncIterator[Any]:
        return self.numbers(stop)

    def returned_of_a_thread(self, stop: int) -> Iterator[Any]:
        return self.numbers_of_a_thread(stop)

    async def awaited(self, stop: int) -> AsyncIterator[Any]:
        return self.numbers(stop)

    async def awaited_of_a_thread(self, stop: int) -> Iterator[Any]:
        return self.numbers_of_a_thread(stop)

    async def first_then_wait(self) -> AsyncIterator[str]:
        yield "first"
        await asyncio.get_running_loop().create_future()

    async def unsendable(self) -> Any:
        return threading.Lock()


@asynccontextmanager
async def serving(
    instance: object,
    *,
    token: bytes = TOKEN,
    development: bool = False,
    interceptors: Sequence[object] = (),
) -> AsyncIterator[Client]:
    loaded = Loaded(type(instance), DeploymentOptions(), (), {}, (), {}, interceptors)
    server = make_server(
        loaded,
        instance,
        application="default",
        deployment="Plain",
        replica_id="Plain#1",
        token=TOKEN,
        development=development,
        limits=IngressSettings(),
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = Client("default/Plain", port, token, "Plain#1")
    try:
        yield client
    finally:
        client.close()
        await server.stop(0)


def framed(*args: object, flags: int = 0, **kwargs: Any) -> bytes:
    return join(frame_request(codec("pickle").encode_call(args, kwargs), flags, None))


def value_of(message: bytes | None) -> Any:
    assert message is not None
    assert message[0] in {VALUE, ALIGNED}
    return pickle.loads(answer_body(message))


def failure(outcome: Outcome) -> Exception:
    return rebuild(outcome.trailers[FAILURE_KEY])


async def test_a_handle_gets_what_the_method_returns() -> None:
    async with serving(Plain()) as client:
        outcome = await client.unary("echo", framed((1, "two")))
        assert (OK, (1, "two")) == (outcome.code, value_of(outcome.message))
        outcome = await client.unary("thread", framed())
        assert value_of(outcome.message).startswith("pyserve-handler")
        outcome = await client.unary("me", framed())
        assert ("default", "Plain", "me", True) == value_of(outcome.message)


async def test_a_stranger_calls_with_json_and_never_with_pickle() -> None:
    async with serving(Plain()) as client:
        body = json.dumps([["x"], {}]).encode()
        outcome = await client.unary("echo", body, subtype="json", framed=False)
        assert (OK, b'"x"') == (outcome.code, outcome.message)
    async with serving(Plain(), token=b"another") as stranger:
        outcome = await stranger.unary("echo", framed(1), timeout_s=2.0)
        assert OK != outcome.code


async def test_an_unknown_codec_is_refused_by_name() -> None:
    async with serving(Plain()) as client:
        outcome = await client.unary("echo", b"x", subtype="bson")
    assert UNIMPLEMENTED == outcome.code
    assert "bson" in outcome.details
    assert "msgpack" in outcome.details


async def test_an_exception_reaches_a_handle_as_itself_and_strangers_as_a_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Plain()) as client:
        known = await client.unary("fail", framed())
        unknown = await client.unary("fail", b"[[],{}]", subtype="json", framed=False)
    error = failure(known)
    assert (INTERNAL, LookupError, "a secret") == (known.code, type(error), str(error))
    assert "in fail" in str(error.__cause__)
    assert INTERNAL == unknown.code
    assert "a secret" not in unknown.details
    assert FAILURE_KEY not in unknown.trailers
    # The traceback of both is the same, and is written once a minute.
    assert 2 == caplog.text.count("unexpected LookupError in /default.Plain/fail")
    assert 1 == caplog.text.count("Traceback")


async def test_development_mode_tells_strangers_the_text() -> None:
    async with serving(Plain(), development=True) as client:
        outcome = await client.unary("fail", b"[[],{}]", subtype="json", framed=False)
    assert "LookupError: a secret" == outcome.details


async def test_an_abort_keeps_its_code_text_and_metadata(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Plain()) as client:
        for message, options in (
            (framed(), {}),
            (b"[[],{}]", {"subtype": "json", "framed": False}),
        ):
            outcome = await client.unary("abort", message, **options)
            assert (11, "too far") == (outcome.code, outcome.details)
            assert "told" == outcome.trailers["why"]
    assert "" == caplog.text


async def test_wrong_arguments_are_the_callers_mistake(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Plain()) as client:
        known = await client.unary("echo", framed(1, 2))
        unknown = await client.unary("echo", b"[[],{}]", subtype="json", framed=False)
    assert isinstance(failure(known), TypeError)
    assert "takes 2 positional arguments but 3 were given" in str(failure(known))
    assert INVALID_ARGUMENT == unknown.code
    assert "missing 1 required positional argument: 'value'" in unknown.details
    assert "" == caplog.text


async def test_a_result_that_cannot_be_sent_is_a_failure_of_the_deployment() -> None:
    async with serving(Plain()) as client:
        outcome = await client.unary("unsendable", framed())
    assert INTERNAL == outcome.code
    assert isinstance(failure(outcome), pyserve.errors.SerializationError)
    assert "_thread.lock" in str(failure(outcome))


async def test_an_unknown_method_is_unimplemented_and_names_a_close_one() -> None:
    async with serving(Plain()) as client:
        outcome = await client.unary("ecko", framed(1))
    assert UNIMPLEMENTED == outcome.code
    assert "did you mean 'echo'?" in outcome.details


async def test_cancelling_a_call_cancels_the_method() -> None:
    instance = Plain()
    async with serving(instance) as client:
        call = client.start("hang", framed())
        await instance.hanging.wait()
        call.cancel()
        await eventually(lambda: instance.cancelled == 1)


async def test_the_deadline_of_a_call_ends_the_method() -> None:
    instance = Plain()
    async with serving(instance) as client:
        outcome = await client.unary("hang", framed(), timeout_s=1.0)
        assert 4 == outcome.code
        await eventually(lambda: instance.cancelled == 1)


async def test_a_method_has_its_own_limit_for_calls_without_a_deadline() -> None:
    async with serving(Plain()) as client:
        outcome = await client.unary("limited", framed(), timeout_s=None)
    assert (4, "took longer than 0.01 s") == (outcome.code, outcome.details)


@pytest.mark.parametrize("name", STREAMS)
async def test_a_generator_streams_to_its_end(name: str) -> None:
    instance = Plain()
    async with serving(instance) as client:
        call = client.start(name, framed(200, flags=STREAM), stream=True)
        assert 200 == len([value_of(message) async for message in call])
        assert OK == (await call.done).code
    assert instance.closed.is_set()


class Passing(grpc.aio.ServerInterceptor):
    """Has no say, but makes every call look its handler up."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        return await continuation(handler_call_details)


@pytest.mark.parametrize("name", RETURNED)
async def test_a_returned_generator_streams_behind_interceptors_and_to_strangers(name: str) -> None:
    async with serving(Plain(), interceptors=[Passing()]) as client:
        call = client.start(name, framed(3, flags=STREAM), stream=True)
        assert 3 == len([value_of(message) async for message in call])
        assert OK == (await call.done).code
        body = codec("msgpack").encode_call((3,), {})
        call = client.start(name, join(body), stream=True, subtype="msgpack", framed=False)
        assert [bytes(1000)] * 3 == [codec("msgpack").decode(each) async for each in call]


@pytest.mark.parity("S-38")
async def test_the_first_item_leaves_before_the_generator_ends() -> None:
    async with serving(Plain()) as client:
        call = client.start("first_then_wait", framed(flags=STREAM), stream=True)
        assert "first" == value_of(await call.messages.get())
        call.cancel()


@pytest.mark.parametrize("name", STREAMS)
async def test_a_generator_waits_for_its_reader_and_is_closed_on_cancel(name: str) -> None:
    instance = Plain()
    async with serving(instance) as client:
        call = client.start(name, framed(1_000_000, flags=STREAM), stream=True)
        await call.messages.get()
        last = -1

        def stands_still() -> bool:
            nonlocal last
            last, before = instance.made, last
            return last == before

        await eventually(stands_still)
        assert instance.made < 10_000
        call.cancel()
        await eventually(instance.closed.is_set)


async def test_a_caller_that_is_wrong_about_streams_is_told_what_to_write() -> None:
    async with serving(Plain()) as client:
        unary = await client.unary("numbers", framed(1))
        stream = client.start("echo", framed(1, flags=STREAM), stream=True)
        assert r".options(stream=True)" in str(failure(unary))
        assert "leave .options(stream=True) out" in str(failure(await stream.done))


REQUEST_VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("v", default="unset")


async def test_calls_do_not_see_the_variables_of_others() -> None:
    class Leaky:
        async def set(self) -> str:
            found = REQUEST_VARIABLE.get()
            REQUEST_VARIABLE.set("leaked")
            return found

        def set_in_a_thread(self) -> str:
            found = REQUEST_VARIABLE.get()
            REQUEST_VARIABLE.set("leaked")
            return found

    async with serving(Leaky()) as client:
        for name in ("set", "set", "set_in_a_thread", "set_in_a_thread"):
            assert "unset" == value_of((await client.unary(name, framed())).message)
