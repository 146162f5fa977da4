"""The differences on purpose; each test names its number in docs/reference/aio-differences.md.

These are the only tests whose expectations depend on the side.
"""

import asyncio
import gc
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import wrappers_pb2

import pyserve.aio
from pyserve.aio._server import Server
from tests.contract.aio.sides import (
    GRPCIO,
    PYSERVE,
    SERVICE,
    Network,
    Stub,
    echo,
    failure,
    responses,
    unary,
    within,
)
from tests.support.authority import Authority

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "aio-differences.md"


def test_the_page_lists_at_most_ten_differences_and_each_has_a_test() -> None:
    listed = [int(number) for number in re.findall(r"^(\d+)\. \*\*", PAGE.read_text(), re.M)]
    tested = re.findall(r"^(?:async )?def test_difference_(\d+)_", Path(__file__).read_text(), re.M)
    assert list(range(1, len(listed) + 1)) == listed
    assert len(listed) <= 10
    assert set(listed) == {int(number) for number in tested}


async def test_difference_1_server_credentials_of_grpc_are_refused() -> None:
    leaf = Authority().issue("localhost")
    credentials = grpc.ssl_server_credentials([(leaf.key, leaf.chain)])
    server = pyserve.aio.server()
    with pytest.raises(TypeError, match=r"pyserve\.aio\.ssl_server_credentials"):
        server.add_secure_port("127.0.0.1:0", credentials)


async def _fail(_request: bytes, _context: Any) -> bytes:
    raise ValueError("a secret")


async def test_difference_2_exception_texts_stay_on_the_server(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    stub = await network.serve({"Call": unary(_fail)})
    error = await failure(stub.unary()(b""))
    assert grpc.StatusCode.UNKNOWN is error.code()
    assert (network.server_side is GRPCIO) == ("a secret" in (error.details() or ""))
    assert "a secret" in caplog.text


async def test_difference_2_development_mode_tells_them(
    client_side: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(settings=pyserve.aio.ServerSettings(development=True))
    server.add_registered_method_handlers(SERVICE, {"Call": unary(_fail)})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with client_side.insecure_channel(f"127.0.0.1:{port}") as channel:
        error = await failure(Stub(channel).unary()(b""))
    assert "Unexpected <class 'ValueError'>: a secret" == error.details()
    assert caplog.records
    await within(server.stop(None))


@pytest.mark.parametrize("is_async", [True, False])
async def test_difference_2_requests_that_cannot_be_read_are_the_clients_fault(
    network: Network, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    async def take(_request: Any, _context: Any) -> Any:
        return wrappers_pb2.StringValue()

    def take_in_a_thread(_request: Any, _context: Any) -> Any:
        return wrappers_pb2.StringValue()

    string = wrappers_pb2.StringValue
    handler = grpc.unary_unary_rpc_method_handler(
        take if is_async else take_in_a_thread, string.FromString, string.SerializeToString
    )
    stub = await network.serve({"Call": handler})
    error = await failure(stub.unary()(b"{}"))
    if network.server_side is PYSERVE:
        assert grpc.StatusCode.INVALID_ARGUMENT is error.code()
        assert f"no message that /{SERVICE}/Call takes" in (error.details() or "")
        assert not caplog.records
    else:
        assert grpc.StatusCode.INVALID_ARGUMENT is not error.code()


async def test_difference_3_wrong_responses_are_internal(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing(_request: Any, _context: Any) -> None:
        return None

    string = wrappers_pb2.StringValue
    handler = grpc.unary_unary_rpc_method_handler(
        nothing, string.FromString, string.SerializeToString
    )
    stub = await network.serve({"Call": handler})
    ours = network.server_side is PYSERVE
    expected = grpc.StatusCode.INTERNAL if ours else grpc.StatusCode.UNKNOWN
    assert expected is (await failure(stub.unary()(b""))).code()
    assert ours == ("returned builtins.NoneType, expected" in caplog.text)


async def test_difference_4_handlers_that_cancel_themselves_are_answered(
    network: Network,
) -> None:
    async def give_up(_request: bytes, _context: Any) -> bytes:
        raise asyncio.CancelledError

    stub = await network.serve({"Call": unary(give_up)})
    error = await failure(stub.unary()(b"", timeout=0.5))
    ours = network.server_side is PYSERVE
    code = grpc.StatusCode.CANCELLED if ours else grpc.StatusCode.DEADLINE_EXCEEDED
    assert code is error.code()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_difference_4_aborts_without_await_end_the_call(network: Network) -> None:
    async def forget(request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "not yours")
        return request

    stub = await network.serve({"Call": unary(forget)})
    if network.server_side is GRPCIO:
        assert b"x" == await within(stub.unary()(b"x"))
        return
    assert grpc.StatusCode.PERMISSION_DENIED is (await failure(stub.unary()(b"x"))).code()


@pytest.mark.parametrize("why", ["client", "deadline", "stop"])
async def test_difference_4_cleanup_learns_that_the_call_was_cut_short(
    network: Network, why: str
) -> None:
    started: asyncio.Event = asyncio.Event()
    told: asyncio.Queue[bool] = asyncio.Queue()

    async def wait(_request: bytes, context: Any) -> bytes:
        assert not context.cancelled()
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.put_nowait(context.cancelled())
        return b""

    server, target = await network.start({"Call": unary(wait)})
    call = Stub(network.channel(target)).unary()(b"", timeout=1.0 if why == "deadline" else 30)
    await within(started.wait())
    if why == "client":
        call.cancel()
    elif why == "stop":
        await within(server.stop(0))
    assert (network.server_side is PYSERVE) == await within(told.get())
    await within(call.code())


async def test_difference_5_ports_are_shared_on_request_only(network: Network) -> None:
    def add(port: int, **arguments: Any) -> int:
        server = network.new_server({"Call": unary(echo)}, **arguments)
        bound: int = server.add_insecure_port(f"127.0.0.1:{port}")
        return bound

    port = add(0)
    if network.server_side is GRPCIO:
        assert port == add(port)
    else:
        with pytest.raises(RuntimeError, match="Failed to bind"):
            add(port)
    shared = {"options": [("grpc.so_reuseport", 1)]}
    port = add(0, **shared)
    assert port == add(port, **shared)


def test_difference_6_servers_are_made_on_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        pyserve.aio.server()


async def test_difference_7_unix_sockets_need_an_authority_from_c_clients(
    network: Network, tmp_path: Path
) -> None:
    server = network.new_server({"Call": unary(echo)})
    path = tmp_path / "s.sock"
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    call = Stub(network.channel(f"unix:{path}")).unary()
    if network.server_side is PYSERVE and network.client_side is GRPCIO:
        assert grpc.StatusCode.INTERNAL is (await failure(call(b"x"))).code()
    else:
        assert b"x" == await within(call(b"x"))


async def test_difference_8_dropped_streams_are_cancelled(network: Network) -> None:
    started = asyncio.Event()
    cancelled = asyncio.Event()

    async def wait(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    stub = await network.serve({"Call": responses(wait)})
    # Those of grpcio end by their deadline.
    call = stub.responses()(b"", timeout=3 if network.client_side is GRPCIO else None)
    assert b"first" == await within(call.read())
    await within(started.wait())
    del call
    gc.collect()
    await within(cancelled.wait())


def test_difference_9_channels_take_tls_credentials_only() -> None:
    with pytest.raises(TypeError, match="ssl_channel_credentials"):
        pyserve.aio.secure_channel("localhost:1", grpc.local_channel_credentials())


async def test_difference_10_mistakes_raise_where_the_call_is_made() -> None:
    channel = pyserve.aio.insecure_channel("127.0.0.1:1")

    def refuse(_request: object) -> bytes:
        raise KeyError("not serializable")

    with pytest.raises(ValueError, match="'Upper'"):
        channel.unary_unary("/s/m")(b"", metadata=(("Upper", "v"),))
    with pytest.raises(TypeError, match="'number'"):
        channel.unary_unary("/s/m")(b"", metadata=(("number", 1),))  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="not serializable"):
        channel.unary_unary("/s/m", refuse)(b"")
    await channel.close()
