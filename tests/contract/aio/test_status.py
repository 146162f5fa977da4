"""How calls end: abort, status details, codes that were set, exceptions."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from pyserve.aio import ServerSettings, Status
from pyserve.aio._server import Server
from tests.contract.aio.sides import (
    GRPCIO,
    PYSERVE,
    SERVICE,
    Network,
    Stub,
    both,
    echo,
    failure,
    requests,
    responses,
    unary,
    within,
)

DETAILS = [
    "plain text",
    "",
    "percent % and %41 and 100%",
    "naïve – 你好 🚀",
    "line\nbreak\tand tab",
    'quotes " and \\ back slashes',
]


@pytest.mark.parametrize("details", DETAILS)
async def test_abort_details_arrive_unchanged(network: Network, details: str) -> None:
    async def abort(_request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, details)

    stub = await network.serve({"Call": unary(abort)})
    error = await failure(stub.unary()(b""))
    assert (grpc.StatusCode.FAILED_PRECONDITION, details) == (error.code(), error.details())


async def test_every_status_code_arrives(network: Network) -> None:
    async def abort(request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode[request.decode()], "why")

    stub = await network.serve({"Call": unary(abort)})
    for code in grpc.StatusCode:
        if code is not grpc.StatusCode.OK:
            assert code is (await failure(stub.unary()(code.name.encode()))).code()


async def test_abort_ends_all_kinds_of_calls(network: Network) -> None:
    async def in_unary(request_iterator: Any, context: Any) -> None:
        async for _ in request_iterator:
            pass
        await context.abort(grpc.StatusCode.NOT_FOUND, "gone")

    async def after_one(_request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"one"
        await context.abort(grpc.StatusCode.NOT_FOUND, "gone")

    async def after_all(request_iterator: Any, context: Any) -> AsyncIterator[bytes]:
        async for _ in request_iterator:
            yield b"one"
        await context.abort(grpc.StatusCode.NOT_FOUND, "gone")

    stub = await network.serve(
        {"In": requests(in_unary), "Out": responses(after_one), "Both": both(after_all)}
    )
    assert grpc.StatusCode.NOT_FOUND is (await failure(stub.requests("In")(iter([b"a"])))).code()
    for call in (stub.responses("Out")(b""), stub.both("Both")(iter([b"a"]))):
        assert b"one" == await within(call.read())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await within(call.read())
        assert (grpc.StatusCode.NOT_FOUND, "gone") == (
            caught.value.code(),
            caught.value.details(),
        )
        assert grpc.StatusCode.NOT_FOUND is await within(call.code())
        assert "gone" == await within(call.details())


async def test_abort_carries_trailing_metadata(network: Network) -> None:
    async def abort(_request: bytes, context: Any) -> None:
        metadata = (("retry-in", "5"), ("raw-bin", b"\0\1"))
        await context.abort(grpc.StatusCode.ABORTED, "why", metadata)

    stub = await network.serve({"Call": unary(abort)})
    trailers = (await failure(stub.unary()(b""))).trailing_metadata()
    assert trailers is not None
    assert ("5", b"\0\1") == (trailers["retry-in"], trailers["raw-bin"])


async def test_abort_keeps_trailing_metadata_that_was_set(network: Network) -> None:
    async def abort(_request: bytes, context: Any) -> None:
        context.set_trailing_metadata((("before", "set"),))
        context.set_details("details that were set")
        await context.abort(grpc.StatusCode.ABORTED)

    stub = await network.serve({"Call": unary(abort)})
    error = await failure(stub.unary()(b""))
    trailers = error.trailing_metadata()
    assert trailers is not None
    assert ("set", "details that were set") == (trailers["before"], error.details())


# As the size of a Python list's text: one error for each of many items.
_REPORT = ("report", "x" * 60_000)


@pytest.mark.parametrize("kind", ["abort", "set"])
async def test_a_status_keeps_its_code_where_its_metadata_is_too_large(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The largest are left out."""
    network = Network(PYSERVE, PYSERVE)
    small = [("retry-in", "5"), *((f"item-{index}", "y" * 1000) for index in range(5))]

    async def fail(_request: bytes, context: Any) -> bytes:
        metadata = (small[0], _REPORT, *small[1:], ("raw-bin", bytes(36_000)))
        if kind == "abort":
            await context.abort(grpc.StatusCode.ABORTED, "why", metadata)
        context.set_trailing_metadata(metadata)
        context.set_code(grpc.StatusCode.ABORTED)
        context.set_details("why")
        return b""

    stub = await network.serve({"Call": unary(fail)})
    for _ in range(3):
        error = await failure(stub.unary()(b""))
        assert (grpc.StatusCode.ABORTED, "why") == (error.code(), error.details())
        trailers = error.trailing_metadata()
        assert trailers is not None
        assert small == [pair for pair in trailers if pair in small]
        assert "report" not in trailers
        assert "raw-bin" not in trailers
    (told,) = [line for line in caplog.messages if "of trailing metadata" in line]
    assert told.endswith("left out: raw-bin, report")
    await network.close()


class _Status(grpc.Status):
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    details = "quota"
    trailing_metadata = (("grpc-status-details-bin", b"\x08\x08\x12\x05quota"),)


async def test_abort_with_status_carries_the_details_message(network: Network) -> None:
    async def abort(_request: bytes, context: Any) -> None:
        await context.abort_with_status(_Status())

    stub = await network.serve({"Call": unary(abort)})
    error = await failure(stub.unary()(b""))
    trailers = error.trailing_metadata()
    assert trailers is not None
    assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "quota") == (error.code(), error.details())
    assert b"\x08\x08\x12\x05quota" == trailers["grpc-status-details-bin"]


@pytest.mark.parametrize(
    "details",
    [b"\x08\x05\x12\x03why", b"\x08\x0a\x12\x05other", b"\xff no protobuf", b""],
    ids=["other_code", "other_text", "unreadable", "empty"],
)
async def test_status_details_that_contradict_the_status_arrive_as_they_are(
    network: Network, details: bytes
) -> None:
    """Which of them is right is not for the transport to say: rpc_status.from_call raises."""
    pair = ("grpc-status-details-bin", details)

    async def abort(_request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.ABORTED, "why", (pair,))

    async def abort_later(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request
        await context.abort(grpc.StatusCode.ABORTED, "why", (pair,))

    async def succeed(request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((pair,))
        return request

    stub = await network.serve(
        {"Abort": unary(abort), "Later": responses(abort_later), "Succeed": unary(succeed)}
    )
    for call in (stub.unary("Abort")(b""), stub.responses("Later")(b"")):
        error = await failure(call)
        assert (grpc.StatusCode.ABORTED, "why") == (error.code(), error.details())
        assert [pair] == list(error.trailing_metadata() or ())
    call = stub.unary("Succeed")(b"x")
    assert b"x" == await within(call)
    assert grpc.StatusCode.OK is await call.code()
    assert [pair] == list(await call.trailing_metadata())


async def test_abort_raises_and_may_not_be_called_twice(network: Network) -> None:
    seen: asyncio.Queue[type[BaseException]] = asyncio.Queue()

    async def abort(_request: bytes, context: Any) -> None:
        try:
            await context.abort(grpc.StatusCode.ABORTED, "first")
        except grpc.aio.AbortError as error:
            with pytest.raises(grpc.aio.UsageError):
                await context.abort(grpc.StatusCode.INTERNAL, "second")
            seen.put_nowait(type(error))
            raise

    stub = await network.serve({"Call": unary(abort)})
    error = await failure(stub.unary()(b""))
    assert (grpc.StatusCode.ABORTED, "first") == (error.code(), error.details())
    assert grpc.aio.AbortError is await within(seen.get())


async def test_suppressed_abort_still_ends_the_call(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    async def swallow(_request: bytes, context: Any) -> bytes:
        try:
            await context.abort(grpc.StatusCode.ABORTED, "kept")
        except grpc.aio.AbortError:
            return b"response"
        return b""

    stub = await network.serve({"Call": unary(swallow)})
    with caplog.at_level(logging.CRITICAL):
        error = await failure(stub.unary()(b""))
    assert (grpc.StatusCode.ABORTED, "kept") == (error.code(), error.details())


async def test_code_and_details_that_were_set_win_over_the_response(network: Network) -> None:
    async def refuse(request: bytes, context: Any) -> bytes:
        assert context.code() is None
        context.set_code(grpc.StatusCode.DATA_LOSS)
        context.set_details("torn")
        assert (grpc.StatusCode.DATA_LOSS, "torn") == (context.code(), context.details())
        return request

    stub = await network.serve({"Call": unary(refuse)})
    error = await failure(stub.unary()(b"x"))
    assert (grpc.StatusCode.DATA_LOSS, "torn") == (error.code(), error.details())


async def test_code_that_was_set_ends_a_stream_after_its_messages(network: Network) -> None:
    async def refuse(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request
        context.set_code(grpc.StatusCode.OUT_OF_RANGE)
        context.set_details("end")

    stub = await network.serve({"Call": responses(refuse)})
    call = stub.responses()(b"x")
    assert b"x" == await within(call.read())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within(call.read())
    assert (grpc.StatusCode.OUT_OF_RANGE, "end") == (caught.value.code(), caught.value.details())


async def test_details_beside_ok_are_dropped(network: Network) -> None:
    async def explain(request: bytes, context: Any) -> bytes:
        context.set_details("all good")
        return request

    stub = await network.serve({"Call": unary(explain)})
    call = stub.unary()(b"x")
    assert b"x" == await within(call)
    assert (grpc.StatusCode.OK, "") == (await call.code(), await call.details())


async def test_exceptions_end_the_call_with_unknown(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_request: Any, _context: Any) -> bytes:
        raise ValueError("a secret of the service")

    async def fail_late(request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield request
        raise ValueError("a secret of the service")

    def fail_plainly(_request: bytes, _context: Any) -> bytes:
        raise ValueError("a secret of the service")

    stub = await network.serve(
        {"Unary": unary(fail), "Late": responses(fail_late), "Plain": unary(fail_plainly)}
    )
    for call in (
        stub.unary("Unary")(b""),
        stub.responses("Late")(b"x"),
        stub.unary("Plain")(b""),
    ):
        assert grpc.StatusCode.UNKNOWN is (await failure(call)).code()
    # Both servers tell the traceback to their own log.
    assert 3 <= caplog.text.count("a secret of the service")


async def test_code_that_was_set_wins_over_an_exception(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_request: bytes, context: Any) -> bytes:
        context.set_code(grpc.StatusCode.PERMISSION_DENIED)
        raise ValueError("why")

    stub = await network.serve({"Call": unary(fail)})
    with caplog.at_level(logging.CRITICAL):
        assert grpc.StatusCode.PERMISSION_DENIED is (await failure(stub.unary()(b""))).code()


async def test_unknown_methods_are_unimplemented(network: Network) -> None:
    stub = await network.serve({"Call": unary(echo)})
    for name in ("Other", "call"):
        error = await failure(stub.unary(name)(b""))
        assert (grpc.StatusCode.UNIMPLEMENTED, "Method not found!") == (
            error.code(),
            error.details(),
        )
    error = await failure(stub.channel.unary_stream("/no.Such/Method")(b""))
    assert grpc.StatusCode.UNIMPLEMENTED is error.code()


async def test_errors_are_rpc_errors_with_a_readable_text(network: Network) -> None:
    async def abort(_request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.INTERNAL, "broken")

    stub = await network.serve({"Call": unary(abort)})
    with pytest.raises(grpc.RpcError, match="broken"):
        await within(stub.unary()(b""))


async def test_sync_handlers_abort_and_set_codes(network: Network) -> None:
    def abort(request: bytes, context: Any) -> bytes:
        if request == b"abort":
            context.abort(grpc.StatusCode.ABORTED, "sync", (("k", "v"),))
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details("sync too")
        return b""

    stub = await network.serve({"Call": unary(abort)})
    error = await failure(stub.unary()(b"abort"))
    trailers = error.trailing_metadata()
    assert trailers is not None
    assert (grpc.StatusCode.ABORTED, "sync", "v") == (error.code(), error.details(), trailers["k"])
    error = await failure(stub.unary()(b"set"))
    assert (grpc.StatusCode.NOT_FOUND, "sync too") == (error.code(), error.details())


async def test_collecting_after_an_error_keeps_raising(network: Network) -> None:
    async def abort(_request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.ABORTED, "once")

    stub = await network.serve({"Call": responses(abort)})
    call = stub.responses()(b"")
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError):
            await within(call.read())
    assert call.done()
    assert grpc.StatusCode.ABORTED is await within(call.code())


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("way", ["abort", "set"])
@pytest.mark.parametrize("details", [None, b"bytes", 5])
async def test_details_that_are_no_text_still_end_the_call(
    network: Network, details: Any, way: str, is_async: bool
) -> None:
    def choose(context: Any) -> None:
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details(details)

    async def fail(request: bytes, context: Any) -> bytes:
        if way == "abort":
            await context.abort(grpc.StatusCode.NOT_FOUND, details)
        choose(context)
        return request

    def fail_in_a_thread(request: bytes, context: Any) -> bytes:
        if way == "abort":
            context.abort(grpc.StatusCode.NOT_FOUND, details)
        choose(context)
        return request

    if network.server_side is GRPCIO and way == "abort" and not is_async:
        pytest.skip("such a call of grpcio never ends")
    stub = await network.serve({"Call": unary(fail if is_async else fail_in_a_thread)})
    error = await failure(stub.unary()(b"", timeout=10))
    if details is None:
        assert (grpc.StatusCode.NOT_FOUND, "") == (error.code(), error.details())
    else:
        assert error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNKNOWN)


async def test_a_status_of_an_exception_that_cannot_be_sent_still_ends_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = Network(PYSERVE, PYSERVE)
    status = Status(grpc.StatusCode.ABORTED, b"bytes", (("Upper", "v"),))  # type: ignore[arg-type]
    settings = ServerSettings(status_of=lambda _error, _context: status)

    async def fail(_request: bytes, _context: Any) -> bytes:
        raise ValueError

    server = Server(settings=settings)
    server.add_registered_method_handlers(SERVICE, {"Call": unary(fail)})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    error = await failure(Stub(network.channel(f"127.0.0.1:{port}")).unary()(b"", timeout=10))
    assert grpc.StatusCode.UNKNOWN is error.code()
    assert caplog.records
    await network.close()
    await within(server.stop(None))
