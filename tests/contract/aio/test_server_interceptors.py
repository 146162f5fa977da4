"""Server interceptors: order, replaced handlers, refusals, context variables."""

import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import (
    SERVICE,
    Network,
    both,
    collect,
    echo,
    failure,
    requests,
    responses,
    unary,
    within,
)

Continuation = Callable[[Any], Awaitable[Any]]
caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")


class Recorder(grpc.aio.ServerInterceptor):
    """Notes the calls it sees."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log

    async def intercept_service(self, continuation: Continuation, details: Any) -> Any:
        self._log.append(f"{self._name}:{details.method}")
        handler = await continuation(details)
        self._log.append(f"{self._name}:found={handler is not None}")
        return handler


async def test_interceptors_run_in_order_around_the_lookup(network: Network) -> None:
    log: list[str] = []
    interceptors = (Recorder("a", log), Recorder("b", log))
    stub = await network.serve({"Call": unary(echo)}, interceptors=interceptors)
    assert b"x" == await within(stub.unary()(b"x"))
    path = f"/{SERVICE}/Call"
    assert [f"a:{path}", f"b:{path}", "b:found=True", "a:found=True"] == log


async def test_interceptors_see_unknown_methods(network: Network) -> None:
    log: list[str] = []
    stub = await network.serve({"Call": unary(echo)}, interceptors=(Recorder("a", log),))
    assert grpc.StatusCode.UNIMPLEMENTED is (await failure(stub.unary("Other")(b""))).code()
    assert [f"a:/{SERVICE}/Other", "a:found=False"] == log


async def test_interceptors_leave_all_kinds_working(network: Network) -> None:
    async def join(request_iterator: Any, _context: Any) -> bytes:
        return b"+".join([request async for request in request_iterator])

    async def split(request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for value in request:
            yield bytes([value])

    async def echo_all(request_iterator: Any, _context: Any) -> AsyncIterator[bytes]:
        async for request in request_iterator:
            yield request

    def double(request: bytes, _context: Any) -> bytes:
        return request * 2

    log: list[str] = []
    stub = await network.serve(
        {
            "In": requests(join),
            "Out": responses(split),
            "Both": both(echo_all),
            "Plain": unary(double),
        },
        interceptors=(Recorder("a", log),),
    )
    assert b"a+b" == await within(stub.requests("In")(iter([b"a", b"b"])))
    assert [b"a", b"b"] == await within(collect(stub.responses("Out")(b"ab")))
    assert [b"a", b"b"] == await within(collect(stub.both("Both")(iter([b"a", b"b"]))))
    assert b"xx" == await within(stub.unary("Plain")(b"x"))
    assert b"" == await within(stub.requests("In")(iter([])))


class Refuser(grpc.aio.ServerInterceptor):
    """Replaces the handler of callers without a password."""

    async def intercept_service(self, continuation: Continuation, details: Any) -> Any:
        if dict(details.invocation_metadata).get("password") == "open":
            return await continuation(details)

        async def refuse(_request: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no password")

        return grpc.unary_unary_rpc_method_handler(refuse)


async def test_interceptor_replaces_the_handler(network: Network) -> None:
    stub = await network.serve({"Call": unary(echo)}, interceptors=(Refuser(),))
    error = await failure(stub.unary()(b"x"))
    assert (grpc.StatusCode.UNAUTHENTICATED, "no password") == (error.code(), error.details())
    assert b"x" == await within(stub.unary()(b"x", metadata=(("password", "open"),)))


class Named(grpc.aio.ServerInterceptor):
    """Sets a context variable for the handler."""

    async def intercept_service(self, continuation: Continuation, details: Any) -> Any:
        caller.set(str(dict(details.invocation_metadata)["name"]))
        return await continuation(details)


async def test_context_variables_reach_the_handler(network: Network) -> None:
    async def tell(_request: bytes, _context: Any) -> bytes:
        return caller.get().encode()

    stub = await network.serve({"Call": unary(tell)}, interceptors=(Named(),))
    for name in ("ann", "bob"):
        assert name.encode() == await within(stub.unary()(b"", metadata=(("name", name),)))


class Broken(grpc.aio.ServerInterceptor):
    """Raises instead of answering."""

    async def intercept_service(self, continuation: Continuation, details: Any) -> Any:
        raise ValueError("broken interceptor")


async def test_interceptor_that_raises_ends_the_call_with_unknown(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    stub = await network.serve({"Call": unary(echo)}, interceptors=(Broken(),))
    assert grpc.StatusCode.UNKNOWN is (await failure(stub.unary()(b"x"))).code()
    assert "broken interceptor" in caplog.text


async def test_objects_of_other_types_are_refused_as_interceptors(network: Network) -> None:
    with pytest.raises(ValueError, match="ServerInterceptor"):
        network.new_server({}, interceptors=(object(),))
