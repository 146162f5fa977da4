"""Handlers that raise, abort, or return what they must not."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

import grpc
import grpc.aio
import pytest

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.calls.mesh import ANSWER_TIMEOUT_S, echo_mesh
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

SECRET = "the password is swordfish"
RAISE = echo_pb2.PerformRequest(raise_text=SECRET)
WRONG = echo_pb2.PerformRequest(return_wrong_type=True)


async def failure_of(call: Any) -> grpc.aio.AioRpcError:
    """Return how the call, of any kind, failed."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (_all_of(call) if hasattr(call, "__aiter__") else call)
    return caught.value


async def _all_of(stream: AsyncIterable[object]) -> list[object]:
    return [reply async for reply in stream]


def failing_calls(
    stub: echo_pb2_grpc.EchoAsyncStub, request: echo_pb2.PerformRequest
) -> dict[str, grpc.aio.Call]:
    """Begin one call of every kind of handler that answers with ``PerformReply``."""
    stream = echo_pb2.PerformStreamRequest(messages=1, each=request)
    return {
        "Perform": stub.Perform(request, timeout=ANSWER_TIMEOUT_S),
        "PerformSync": stub.PerformSync(request, timeout=ANSWER_TIMEOUT_S),
        "PerformStream": stub.PerformStream(stream, timeout=ANSWER_TIMEOUT_S),
        "PerformStreamSync": stub.PerformStreamSync(stream, timeout=ANSWER_TIMEOUT_S),
        "Converse": stub.Converse(iter([request]), timeout=ANSWER_TIMEOUT_S),
    }


async def test_an_exception_is_unknown_and_its_text_stays_in_the_mesh() -> None:
    async with echo_mesh() as mesh:
        for name, call in failing_calls(mesh.stub, RAISE).items():
            error = await failure_of(call)
            assert (name, grpc.StatusCode.UNKNOWN) == (name, error.code())
            assert "swordfish" not in repr(error) + str(error.trailing_metadata())
            assert "RuntimeError" not in repr(error)
        expected = f"RuntimeError: {SECRET}"
        await eventually(lambda: mesh.running.output().count(expected) == 5)


async def test_in_development_the_text_of_an_exception_is_told() -> None:
    async with echo_mesh(development=True) as mesh:
        for name, call in failing_calls(mesh.stub, RAISE).items():
            error = await failure_of(call)
            assert (name, grpc.StatusCode.UNKNOWN) == (name, error.code())
            assert SECRET in (error.details() or "")
            assert "RuntimeError" in (error.details() or "")


async def test_a_response_of_the_wrong_type_is_internal_and_the_log_names_the_right_one() -> None:
    expected = []
    async with echo_mesh() as mesh:
        for name, call in failing_calls(mesh.stub, WRONG).items():
            error = await failure_of(call)
            assert (name, grpc.StatusCode.INTERNAL) == (name, error.code())
            told = f"/services.echo.Echo/{name} returned services.echo.echo_pb2.CountReply, "
            expected.append(told + "expected services.echo.echo_pb2.PerformReply")
        await eventually(lambda: all(told in mesh.running.output() for told in expected))
        await mesh.settled()


async def test_an_abort_ends_the_call_with_its_own_status() -> None:
    abort = echo_pb2.PerformRequest(
        status=echo_pb2.Status(code=9, message="not now: 50 % · naïve\nsecond line")
    )
    async with echo_mesh() as mesh:
        for name, call in failing_calls(mesh.stub, abort).items():
            error = await failure_of(call)
            assert (name, grpc.StatusCode.FAILED_PRECONDITION) == (name, error.code())
            assert abort.status.message == error.details()
            assert "pyserve-answered-by" not in dict(error.trailing_metadata() or ())
        await mesh.settled()
        assert 5 == (await mesh.count()).failed


async def test_pyserve_abort_ends_the_call_with_its_own_status_and_metadata() -> None:
    async with echo_mesh("tests.mesh.calls.apps:aborting") as mesh:
        error = await failure_of(
            mesh.stub.Echo(echo_pb2.EchoRequest(payload=b"busy"), timeout=ANSWER_TIMEOUT_S)
        )
        assert (grpc.StatusCode.ABORTED, "busy") == (error.code(), error.details())
        assert "because" == dict(error.trailing_metadata() or ())["echo-trailing-why"]
